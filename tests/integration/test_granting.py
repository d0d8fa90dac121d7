"""Asks and grants of a Python program's runs, on both event loops."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from capsule_runtime import ManifestError, Outcome, TrustError
from capsule_runtime.core.grants import Grants
from capsule_runtime.granting import standing_of
from capsule_runtime.plan import plan_run
from capsule_runtime.request import check_request
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from capsule_runtime.trust import look_at, trust
from support.harness import shell_capsule
from support.supervised import ended, request_for

SAYS = """
read task
echo '{"type":"turn-end","result":"'$TOKEN'"}'
"""
ASKS = '[capabilities]\nread = ["/usr/share"]\nsecrets = ["TOKEN"]\n'
GRANTED = ("read=/usr/share", "secret=TOKEN")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", "blue")
    folder = shell_capsule(tmp_path / "capsule", SAYS)
    with (folder / "capsule.toml").open("a") as manifest:
        manifest.write(ASKS)
    return folder


async def test_a_run_without_grants_is_refused_and_its_neighbours_go_on(
    capsule: Path, state: Path, tmp_path: Path
) -> None:
    modest = shell_capsule(tmp_path / "modest", SAYS)
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(modest))
        with pytest.raises(TrustError) as caught:
            await supervisor.start(request_for(capsule))
        log = await ended(run)
    async with open_runs(state) as runs:
        recorded = [row.id for row in runs.recent()]

    assert (caught.value.code, caught.value.exit_status) == ("E-TRU-001", 7)
    assert log.final.response == ""
    assert recorded == [run.id]


async def test_what_is_granted_is_on_record_before_the_launch(capsule: Path, state: Path) -> None:
    async with open_supervisor(state) as supervisor:
        run = await supervisor.start(request_for(capsule, grants=GRANTED))
        log = await ended(run)

    assert log.record.outcome is Outcome.COMPLETED
    assert log.final.response == "blue"
    assert log.record.created is not None
    assert log.record.created.digest == look_at(capsule, state).digest.text
    assert log.record.attempt is not None
    assert log.record.attempt.grants == Grants(read=("/usr/share",), secrets=("TOKEN",))
    assert "TOKEN" in log.record.attempt.env_names


async def test_runs_of_one_capsule_can_be_checked_at_once(capsule: Path, state: Path) -> None:
    async with open_supervisor(state) as supervisor, anyio.create_task_group() as tasks:

        async def go() -> None:
            log = await ended(await supervisor.start(request_for(capsule, grants=GRANTED)))
            assert log.final.response == "blue"

        for _ in range(8):
            tasks.start_soon(go)


def test_trust_is_of_one_state_directory(capsule: Path, state: Path, tmp_path: Path) -> None:
    trust(look_at(capsule, state), state)
    other = tmp_path / "other"

    assert check_request(request_for(capsule), state).grants.secrets == ("TOKEN",)
    with pytest.raises(TrustError):
        check_request(request_for(capsule), other)


def test_a_plan_names_the_trust_and_says_what_is_missing(capsule: Path, state: Path) -> None:
    before = plan_run(request_for(capsule), state).asks
    trust(look_at(capsule, state), state)
    after = plan_run(request_for(capsule), state).asks

    assert (before.missing, before.granted) == (GRANTED, {})
    assert after.missing == ()
    assert all(source.startswith("trusted 20") for source in after.granted.values())
    assert after.digest == before.digest == look_at(capsule, state).digest.text


def test_a_flag_is_named_before_a_trust(capsule: Path, state: Path) -> None:
    trust(look_at(capsule, state), state)
    asks = plan_run(request_for(capsule, grants=GRANTED[:1]), state).asks

    assert asks.granted["read=/usr/share"] == "--grant"
    assert asks.granted["secret=TOKEN"].startswith("trusted ")


def test_a_recorded_path_is_not_followed_anew(capsule: Path, state: Path, tmp_path: Path) -> None:
    """What was trusted is where a path led then, not where it leads by now."""
    (tmp_path / "data").mkdir()
    manifest = capsule / "capsule.toml"
    manifest.write_text(manifest.read_text().replace("/usr/share", str(tmp_path / "data")))
    look = look_at(capsule, state)
    trust(look, state)
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "data").symlink_to("moved")
    standing = standing_of(look.capsule, (), "advisory", state)

    assert [str(item) for item in standing.missing] == [f"read={tmp_path}/moved"]
    assert not standing.has_changed


def test_the_state_directory_of_the_supervisor_is_never_given(
    capsule: Path, tmp_path: Path
) -> None:
    manifest = capsule / "capsule.toml"
    manifest.write_text(manifest.read_text().replace("/usr/share", str(tmp_path / "data")))
    request = request_for(capsule, grants=(f"read={tmp_path}/data", "secret=TOKEN"))

    assert check_request(request, tmp_path / "state").grants.read == (f"{tmp_path}/data",)
    with pytest.raises(ManifestError, match="kept there"):
        check_request(request, tmp_path / "data/state")
