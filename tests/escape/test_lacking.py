"""What a machine lacks is taken away in turn: the tier changes, a floor refuses, nothing is weaker."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule_runtime import ContainmentError, HostError
from capsule_runtime.containing import Shell, shell_of
from capsule_runtime.core import bpf
from capsule_runtime.core.grants import Tier
from capsule_runtime.core.machine import Hierarchies
from capsule_runtime.core.namespaces import SETTINGS, Namespaces, fix_for
from capsule_runtime.core.seccomp import ALLOW, ENOSYS
from capsule_runtime.core.syscalls import NUMBERS, known_machine
from capsule_runtime.diagnosing import examine
from capsule_runtime.granting import Standing
from capsule_runtime.host import namespaces, scoping
from capsule_runtime.host.machine import find_machine
from support.cell import Cell
from support.command import HELLO, Command
from support.corpus.program import SYSTEM_PYTHON, UNPRIVILEGED, readable_copy, why_not_another
from support.docker import container_profile
from support.filtered import argv_behind_program
from support.harness import agent_capsule

pytestmark = pytest.mark.usefixtures("namespaces")

Candidates = Callable[..., None]
PIDFD_OPEN = 434
"""The same on every architecture."""


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Generator[Candidates]:
    """Return what has bubblewrap looked for in other places."""

    def look_at(*paths: Path) -> None:
        monkeypatch.setattr(namespaces, "CANDIDATES", tuple(map(str, paths)))
        monkeypatch.setattr(namespaces, "wheel_bwraps", tuple)
        namespaces.find_namespaces.cache_clear()

    yield look_at
    namespaces.find_namespaces.cache_clear()


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def shell(floor: Tier, state: Path, *, is_named: bool = False) -> Shell:
    return shell_of(Standing({}, floor, is_named), state)


def refusal(state: Path) -> ContainmentError:
    """Return how a run is refused that is to be sealed."""
    with pytest.raises(ContainmentError) as refused:
        shell("sealed", state, is_named=True)
    assert refused.value.code == "E-CAP-001"
    return refused.value


FAILS = 'case $1 in --version) echo bubblewrap 0.9.0;; *) echo "no: EPERM"; exit 1;; esac'
WRONG: dict[str, tuple[str, int, str, str]] = {
    "setuid": ("", 0o4755, "setuid", "not setuid"),
    "writable": ("", 0o777, "can be changed by others", "nobody else"),
    "not executable": ("", 0o644, "is no program", "root owns"),
    "old": ("echo bubblewrap 0.4.1", 0o755, "0.4.1", "apt-get"),
    "broken": (FAILS, 0o755, "no: EPERM", "SYS_ADMIN"),
}


def test_without_bubblewrap_nothing_is_sealed(tmp_path: Path, candidates: Candidates) -> None:
    candidates(tmp_path / "bwrap")

    refused = refusal(tmp_path)

    assert "not installed" in refused.message
    assert "apt-get install bubblewrap" in refused.hint


@pytest.mark.parametrize("wrong", WRONG)
def test_a_bubblewrap_that_will_not_do_is_refused_with_reason_and_fix(
    tmp_path: Path, candidates: Candidates, wrong: str
) -> None:
    text, mode, why, fix = WRONG[wrong]
    candidates(program(tmp_path / "bwrap", text, mode))

    refused = refusal(tmp_path)

    assert why in refused.message
    assert fix in refused.hint
    assert shell("scoped", tmp_path).tier == "scoped"


def test_a_bubblewrap_in_a_folder_of_everybody_is_refused(
    tmp_path: Path, candidates: Candidates
) -> None:
    tmp_path.chmod(0o777)
    candidates(program(tmp_path / "bwrap", ""))

    assert "can be replaced by others" in refusal(tmp_path).message


def test_a_second_bubblewrap_is_taken_where_the_first_will_not_do(
    tmp_path: Path, candidates: Candidates
) -> None:
    candidates(program(tmp_path / "bwrap", "", 0o777), Path("/usr/bin/bwrap"))

    assert namespaces.find_namespaces().bwrap == "/usr/bin/bwrap"


def test_the_doctor_names_the_tier_that_a_run_gets(tmp_path: Path, candidates: Candidates) -> None:
    whole = examine()
    candidates(tmp_path / "bwrap")
    lacking = examine()

    assert (whole.tier, lacking.tier) == ("sealed", "scoped")
    assert whole.mechanism.bwrap == "/usr/bin/bwrap"
    assert whole.mechanism.variant in whole.tiers[0].how
    assert "apt-get install bubblewrap" in lacking.tiers[0].fix
    assert [one.tier for one in lacking.tiers if one.is_had] == ["scoped", "advisory"]


def test_what_is_kept_of_one_standing_is_not_believed_in_another(
    tmp_path: Path, candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates(Path("/usr/bin/bwrap"))
    assert namespaces.find_namespaces(tmp_path).variant
    namespaces.find_namespaces.cache_clear()
    monkeypatch.setattr(namespaces, "namespace_words", no_words)
    kept = namespaces.find_namespaces(tmp_path)
    namespaces.find_namespaces.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    assert kept.variant
    assert not namespaces.find_namespaces(tmp_path).variant


def no_words(found: Namespaces) -> list[str]:
    return [f"--no-such-option-{found.variant}"]


async def test_a_kernel_that_keeps_less_than_planned_starts_nothing(cell: Cell) -> None:
    walls = cell.sealed()
    planned = (
        replace(walls, landlock_abi=walls.landlock_abi + 1),
        replace(walls, rules=None),
    )

    for plan in planned:
        with pytest.raises(HostError) as refused:
            await cell.tries("print('ran')", plan)
        assert refused.value.code == "E-HOST-030"


async def test_without_landlock_a_sealed_run_says_so(cell: Cell) -> None:
    machine = replace(find_machine(), landlock_abi=0, landlock_why="the kernel has none")

    walls = cell.sealed(machine=machine)

    assert walls.rules is None
    assert [one for one in walls.report.missing if one.want == "landlock"]
    assert "its own init process is of its own user: it can be looked into" in walls.report.caveats
    assert await cell.tries("print('ran')", walls) == "ran\n"


async def test_without_cgroups_a_run_of_its_own_user_is_held_all_the_same(cell: Cell) -> None:
    machine = replace(find_machine(), cgroups=Hierarchies(why="none is mounted"))
    code = """
import os
children = 0
try:
    while children < 500:
        if os.fork() == 0:
            os.pause() if hasattr(os, "pause") else __import__("signal").pause()
        children += 1
except OSError:
    print(children < 64)
"""

    walls = cell.sealed(machine=machine)

    assert walls.report.axes.resources.processes == "rlimit"
    assert await cell.tries(code, walls) == "True\n"


def test_without_landlock_there_is_no_scoped_tier(
    tmp_path: Path, candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(find_machine(), landlock_abi=0, landlock_why="the kernel has no Landlock")
    monkeypatch.setattr(scoping, "find_machine", lambda: machine)
    scoping.find_scopes.cache_clear()
    candidates(tmp_path / "bwrap")
    try:
        with pytest.raises(ContainmentError, match="no Landlock") as refused:
            shell("scoped", tmp_path)
    finally:
        scoping.find_scopes.cache_clear()

    assert "lsm=" in refused.value.hint
    assert shell("advisory", tmp_path).tier == "advisory"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_forbids_namespaces_is_named(name: str) -> None:
    forbidding, fix = SETTINGS[name]
    why = "setting up uid map: Permission denied"

    assert fix_for(why, {name: forbidding}, is_root=False) == fix
    assert "--cap-add SYS_ADMIN" in fix_for(why, {name: forbidding}, is_root=True)


def test_a_covered_proc_is_named() -> None:
    why = "Can't mount proc on /newroot/proc: Operation not permitted"

    assert "systempaths=unconfined" in fix_for(why, {}, is_root=True)


def profile_without(number: int) -> bytes:
    """Return a filter that makes a kernel of one that lacks the call *number*."""
    steps = (bpf.Load(bpf.NUMBER), bpf.Jump("equal", number, no="another"))
    missing = (bpf.Return(0x00050000 | ENOSYS), bpf.Mark("another"), bpf.Return(ALLOW))
    return bpf.assemble([*steps, *missing])


@contextmanager
def contained(
    *words: str, profile: bytes | None = None
) -> Generator[subprocess.CompletedProcess[str]]:
    """Run `capsule` with *words* as a plain user of a container, or behind *profile*, would."""
    if (why := why_not_another()) is not None:
        pytest.skip(why)
    with readable_copy() as copy:
        home = copy / "home"
        agent = [SYSTEM_PYTHON, "-m", "capsule_runtime", *words]
        command = argv_behind_program(profile or container_profile(), agent)
        yield subprocess.run(
            [SYSTEM_PYTHON, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            user=UNPRIVILEGED,
            group=UNPRIVILEGED,
            extra_groups=[],
            cwd=home,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(home),
                "PYTHONPATH": str(copy),
                "CAPSULE_STATE": str(home / "state"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )


def test_in_a_container_the_doctor_says_what_there_is_and_what_helps() -> None:
    with contained("doctor", "--json") as done:
        told = json.loads(done.stdout)

    sealed, scoped, _ = told["tiers"]
    assert (told["tier"], sealed["is_had"], scoped["is_had"]) == ("scoped", False, True)
    assert "cannot compose a root" in sealed["why"]
    assert "SYS_ADMIN" in sealed["fix"]


def test_in_a_container_a_plain_user_works_in_place_and_is_told_the_tier() -> None:
    place = Path(tempfile.mkdtemp(prefix="container-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        (place / "work").mkdir()
        os.chown(place / "work", UNPRIVILEGED, UNPRIVILEGED)
        command = Command(place)
        capsule = command.capsule(f"echo made > made\n{HELLO}")
        words = ("run", capsule, "--task", "x", "--workdir", str(place / "work"))
        with contained(*words) as done:
            assert (done.returncode, done.stdout) == (0, "hello world\n"), done.stderr
            assert "containment: scoped" in done.stderr
        assert (place / "work/made").stat().st_uid == UNPRIVILEGED
    finally:
        shutil.rmtree(place)


def test_in_a_container_a_floor_of_sealed_refuses_before_anything_is_made(tmp_path: Path) -> None:
    capsule = agent_capsule(Path("/var/tmp") / tmp_path.name, "waits")
    try:
        with contained("run", "--task", "x", "--containment", "sealed", str(capsule)) as done:
            assert done.returncode == 6, done.stderr
            assert "'sealed' cannot be had here" in done.stderr
            assert "SYS_ADMIN" in done.stderr
    finally:
        subprocess.run(["rm", "-r", str(capsule)], check=True)


@pytest.mark.parametrize("call", ["setns", "clone3", "pidfd_open"])
def test_a_kernel_too_old_to_enter_a_root_is_found_out_before_a_run(
    tmp_path: Path, call: str
) -> None:
    number = NUMBERS[known_machine(platform.machine())].get(call, PIDFD_OPEN)
    capsule = agent_capsule(Path("/var/tmp") / tmp_path.name, "waits")
    words = ("run", "--task", "x", "--containment", "sealed", str(capsule))
    try:
        with contained(*words, profile=profile_without(number)) as done:
            assert done.returncode == 6, done.stderr
            assert "Function not implemented" in done.stderr
    finally:
        subprocess.run(["rm", "-r", str(capsule)], check=True)
