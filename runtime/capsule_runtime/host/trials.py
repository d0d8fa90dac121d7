"""Try each wall: do the forbidden thing in a child of its own, without the wall and behind it.

Run as `python -I -S trials.py FOLDER GROUPS`: an empty folder of ours, and the cgroups that there
are, as JSON. Loaded by path: the standard library only. It writes one JSON object: by the name of
each trial, how it ended without and behind the wall: `done`, `refused: why` or `no wall: why`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.cgroup import Cgroups, make, release
    from capsule_runtime.host.landlock import restrict
    from capsule_runtime.host.walls import drop_privileges, lower_limit
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from cgroup import make, release
    from landlock import restrict
    from walls import drop_privileges, lower_limit

FILES_AT_MOST, PROCESSES, MEBIBYTES = 32, 16, 192
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")

Deed = Callable[[], None]


def main() -> None:
    folder, groups = sys.argv[1], json.loads(sys.argv[2])
    outside, inside = f"{folder}/outside", f"{folder}/inside"
    for made in (outside, inside):
        os.mkdir(made)
    with open(f"{outside}/canary", "w", encoding="ascii") as file:
        file.write("canary")
    if os.geteuid() == 0:
        prepare_for_root(inside)
    inherited = os.open(f"{outside}/canary", os.O_RDONLY)
    os.set_inheritable(inherited, True)

    def landlock() -> None:
        drop_privileges()
        system = [path.encode() for path in SYSTEM if os.path.exists(path)]
        restrict([*((path, "read") for path in system), (inside.encode(), "write")])

    def few_files() -> None:
        lower_limit(resource.RLIMIT_NOFILE, FILES_AT_MOST)
        drop_privileges()

    trials: dict[str, tuple[Deed, Deed]] = {
        "read-outside": (lambda: read(f"{outside}/canary"), landlock),
        "write-outside": (lambda: write_in(outside), landlock),
        "signal-parent": (lambda: os.kill(os.getppid(), 0), landlock),
        "regain-capability": (regain, drop_privileges),
        "setuid-program": (lambda: become_other(inside), drop_privileges),
        "raise-limit": (open_many, few_files),
        "inherit-descriptor": (lambda: read_descriptor(inherited), close_all),
    }
    told = {
        name: [attempt(deed, None), attempt(deed, wall)] for name, (deed, wall) in trials.items()
    }
    for name, deed in (("exceed-processes", fork_many), ("exceed-memory", take_memory)):
        told[name] = [attempt(deed, None), attempt_in_cage(deed, groups.get(name))]
    sys.stdout.write(json.dumps(told))


def attempt(deed: Deed, wall: Deed | None) -> str:
    """Return how *deed* ends in a child behind *wall*."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(writer, try_out(deed, wall).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read().decode(errors="replace")
    os.waitpid(child, 0)
    return said or "refused: it was ended by the kernel"


def try_out(deed: Deed, wall: Deed | None) -> str:
    try:
        if wall is not None:
            wall()
    except OSError as exc:
        return f"no wall: {exc}"
    try:
        deed()
    except (OSError, ValueError) as exc:
        return f"refused: {getattr(exc, 'strerror', None) or exc}"
    return "done"


def attempt_in_cage(deed: Deed, cgroups: Cgroups | None) -> str:
    """Return how *deed* ends in a cgroup that is too small for it."""
    if cgroups is None:
        return "no wall: there is no cgroup to be had"
    try:
        return attempt(deed, lambda: make(cgroups))
    finally:
        release(cgroups)


def read(path: str) -> None:
    with open(path, encoding="ascii") as file:
        file.read()


def write_in(folder: str) -> None:
    os.close(os.open(f"{folder}/new", os.O_WRONLY | os.O_CREAT, 0o600))


def read_descriptor(descriptor: int) -> None:
    os.pread(descriptor, 1, 0)


def close_all() -> None:
    """Close what a harness does not inherit; the pipe to our parent is the child's own."""
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, descriptors[-2])


def regain() -> None:
    """Do what only a capability allows: pass by the rights of a file that is another's."""
    path = f"{sys.argv[1]}/inside/theirs"
    if not os.path.exists(path):
        raise OSError(0, "there is nothing to be regained: only root has capabilities")
    read(path)


def become_other(folder: str) -> None:
    """Run a program that is to run as another user."""
    program = f"{folder}/id"
    if not os.path.exists(program):
        raise OSError(0, "only root can make a program to try it with")
    reader, writer = os.pipe()
    child = os.posix_spawn(
        program, ["id", "-u"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)]
    )
    os.waitpid(child, 0)
    if int(os.read(reader, 100)) == os.getuid():
        raise OSError(0, "it ran as the same user")


def open_many() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * FILES_AT_MOST:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * FILES_AT_MOST, 2 * FILES_AT_MOST))
    for _ in range(FILES_AT_MOST):
        os.open(os.devnull, os.O_RDONLY)


def fork_many() -> None:
    children: list[int] = []
    try:
        for _ in range(PROCESSES):
            children.append(os.fork())
            if children[-1] == 0:
                signal.pause()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def take_memory() -> None:
    taken = [b"x" * (1 << 20) for _ in range(MEBIBYTES)]
    taken.clear()


def prepare_for_root(inside: str) -> None:
    """Make what only root can make: a file of another user, and a program that becomes him."""
    with open(f"{inside}/theirs", "w", encoding="ascii") as file:
        file.write("theirs")
    shutil.copy("/usr/bin/id", f"{inside}/id")
    for name, mode in (("theirs", 0o600), ("id", 0o4755)):
        os.chown(f"{inside}/{name}", 65534, 65534)
        os.chmod(f"{inside}/{name}", mode)


if __name__ == "__main__":
    main()
