"""A context keeps where its first run took place: another run is refused, or follows it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from capsule_runtime import UsageError
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import Supervisor, open_supervisor
from support.harness import agent_capsule
from support.supervised import ended, request_for

pytestmark = pytest.mark.anyio


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    return agent_capsule(tmp_path / "capsule", "never_reads")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    return one, other


async def run_in(
    supervisor: Supervisor, capsule: Path, workdir: Path, tier: str | None = "advisory"
) -> str:
    """Run *capsule* in the one context to its end, and return the tier that it had."""
    asked = request_for(capsule, workdir=workdir, containment=tier, context="talk")
    log = await ended(await supervisor.start(asked))
    return log.record.attempt.containment if log.record.attempt else ""


def need(*tiers: str) -> None:
    for why in (
        find_namespaces().why if "sealed" in tiers else "",
        find_scopes().why if "scoped" in tiers else "",
    ):
        if why:
            pytest.skip(why)


async def test_another_work_directory_is_refused_before_anything_is_created(
    state: Path, capsule: Path, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, one)
        with pytest.raises(UsageError) as refused:
            await run_in(supervisor, capsule, other)
        await run_in(supervisor, capsule, one)
        runs = len(supervisor.list())

    assert refused.value.code == "E-USE-014"
    assert "work directory" in refused.value.message
    assert str(one) in refused.value.message
    assert str(other) in refused.value.message
    assert f"--workdir {one}" in refused.value.hint
    assert runs == 2
    assert len(list((state / "runs").iterdir())) == 2


async def test_a_link_to_the_work_directory_is_the_same_one(
    state: Path, capsule: Path, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    other.rmdir()
    other.symlink_to(one)
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, one)

        assert await run_in(supervisor, capsule, other) == "advisory"


async def test_sealed_every_work_directory_is_the_same_to_the_harness(
    state: Path, capsule: Path, folders: tuple[Path, Path]
) -> None:
    need("sealed")
    async with open_supervisor(state) as supervisor:
        for folder in folders:
            assert await run_in(supervisor, capsule, folder, "sealed") == "sealed"


@pytest.mark.parametrize(("first", "then"), [("sealed", "scoped"), ("scoped", "sealed")])
async def test_another_class_of_tier_is_refused_where_it_is_named(
    state: Path, capsule: Path, folders: tuple[Path, Path], first: str, then: str
) -> None:
    need("sealed", "scoped")
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, folders[0], first)
        with pytest.raises(UsageError) as refused:
            await run_in(supervisor, capsule, folders[0], then)

    assert refused.value.code == "E-USE-014"
    assert "tier" in refused.value.message
    assert f"--containment {first}" in refused.value.hint


@pytest.mark.parametrize("first", ["sealed", "scoped"])
async def test_a_run_that_names_no_tier_stays_in_that_of_its_context(
    state: Path, capsule: Path, folders: tuple[Path, Path], first: str
) -> None:
    need("sealed", "scoped")
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, folders[0], first)

        assert await run_in(supervisor, capsule, folders[0], None) == first


async def test_a_context_of_before_takes_the_place_of_its_next_run(
    state: Path, capsule: Path, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, one)
    with sqlite3.connect(state / "capsule.db") as database:
        database.execute("update contexts set tier = null, home = null, workdir = null")
    database.close()
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, other)
        with pytest.raises(UsageError) as refused:
            await run_in(supervisor, capsule, one)

    assert refused.value.code == "E-USE-014"


async def test_rebuilt_from_the_logs_a_context_is_where_it_was(
    state: Path, capsule: Path, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    async with open_supervisor(state) as supervisor:
        await run_in(supervisor, capsule, one)
    async with open_runs(state) as runs:
        await runs.rebuild()
        problems = await runs.check()
    async with open_supervisor(state) as supervisor:
        with pytest.raises(UsageError) as refused:
            await run_in(supervisor, capsule, other)

    assert problems == []
    assert refused.value.code == "E-USE-014"
