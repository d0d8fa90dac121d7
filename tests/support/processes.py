"""Who is alive, as /proc says."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

from capsule_runtime.host.leftovers import boot_id
from capsule_runtime.host.strays import environ_of


def processes_of(run: str) -> list[int]:
    """Return the living processes whose environment says that they are of *run*."""
    return _processes("environ", f"CAPSULE_RUN={run}\0".encode())


def processes_below(state: Path) -> list[int]:
    """Return the living processes that have a path below *state* in environment or arguments."""
    mark = f"{state}/".encode()
    return [*_processes("environ", mark), *_processes("cmdline", mark)]


def harnesses_below(state: Path) -> list[int]:
    """Return the living processes whose HOME is below *state*: what runs have started."""
    return _processes("environ", f"HOME={state}/".encode())


def started_by_runs(state: Path) -> list[int]:
    """Return the living processes of the runs of *state*, whatever names a sealed one gives folders."""
    runs = state / "runs"
    return [
        pid for run in (runs.iterdir() if runs.exists() else ()) for pid in processes_of(run.name)
    ]


def caged_by(supervisor: int) -> list[int]:
    """Return the living processes in the cgroups that the process *supervisor* had made."""
    return _processes("cgroup", f"/capsule-{boot_id()}-{supervisor}-".encode())


def parent_of(pid: int) -> int:
    """Return the parent of the process *pid*."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_gone(pid: int, seconds: float = 30.0) -> None:
    """Wait until the process *pid*, maybe no child of ours, has ended."""
    try:
        life = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([life], [], [], seconds)[0], f"process {pid} lives on"
    finally:
        os.close(life)


def _is_dead(process: Path) -> bool:
    """Whether it has ended, and whoever has to does not look."""
    return (process / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")


def _processes(file: str, mark: bytes) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            # It may end while we look, or be none of our business.
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                process = Path("/proc", name)
                is_closed = file == "environ"
                words = environ_of(process) if is_closed else (process / file).read_bytes()
                if mark in words and not _is_dead(process):
                    found.append(int(name))
    return found
