"""Go on in a root that bubblewrap composes: as a new process, in namespaces that are not ours.

Loaded by path into the warden's bare interpreter: the standard library only. Runs in the forked
child that becomes the harness. bubblewrap is started beside it, with a program that does nothing as
what runs inside; once that one is there, the root is complete. Then this process joins its
namespaces and forks: who is in a namespace of processes was born there. So nothing that puts up the
walls lies in the root or starts there, which would take as long as all the rest.

bubblewrap and the new process are our siblings: they are the burier's children, and the first ends
with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.linux import fork_sibling, fork_sibling_into
    from capsule_runtime.host.sweep import PARENT, children, read_stat
else:
    from linux import fork_sibling, fork_sibling_into
    from sweep import PARENT, children, read_stat

_THERE = b"\0"
"""No complaint of bubblewrap has it, wherever a reading of one is cut."""
_WORDS_BYTES = 4096
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x20000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
"""By the name of its file in /proc: the flag for it."""
_OWN_CGROUPS = 0x2000000
_CANNOT_BE_BORN_THERE = (errno.ENOSYS, errno.EINVAL, errno.E2BIG, errno.EOPNOTSUPP)
"""What kernels before 5.7 say, and cgroups that take single threads."""

Composing = tuple[int, int]
"""The pid of bubblewrap, and the descriptor at which it and what it starts are heard."""

_libc = ctypes.CDLL(None, use_errno=True)


def compose(composer: list[bytes]) -> Composing:
    """Start *composer*, which is bubblewrap with its arguments, and wait for nothing.

    Raises:
        OSError: the system refuses.
    """
    heard, says = os.pipe2(os.O_CLOEXEC)
    idle, awake = os.pipe2(os.O_CLOEXEC)
    os.write(awake, _THERE)
    bubblewrap = fork_sibling()
    if bubblewrap == 0:
        try:
            # What runs inside repeats what it reads, and then waits: it holds the other end itself.
            os.set_inheritable(awake, True)
            for target, descriptor in ((0, idle), (1, says), (2, says)):
                os.dup2(descriptor, target)
            os.execve(composer[0], composer, {})
        except OSError as refusal:
            os.write(says, f"{composer[0].decode(errors='replace')}: {refusal}".encode())
        finally:
            os._exit(1)
    for descriptor in (says, idle, awake):
        os.close(descriptor)
    return bubblewrap, heard


def enter(composing: Composing, first_free: int, cgroup: str | None = None) -> bool:
    """Wait for the root, and go on in it; return whether this is the new process.

    The old one has nothing left to do, and nothing open: it returns once the new one has ended, for
    nobody else knows of that one yet. The new one is in *cgroup* too, and in all others of the old
    one; of its descriptors, those from *first_free* on are closed.

    Raises:
        OSError: the root could not be composed, or not be entered.
    """
    bubblewrap, heard = composing
    try:
        words = _hear(heard)
    finally:
        os.closerange(first_free, os.sysconf("SC_OPEN_MAX"))
    if not words.endswith(_THERE):
        complaint = words.decode(errors="replace").strip()
        raise OSError(0, complaint or "bubblewrap ended without a word")
    entrances = None if cgroup is None else _open_cgroup(cgroup)
    _join(bubblewrap)
    if new := _fork(entrances):
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        _wait_for_end(new)
        return False
    os.closerange(first_free, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    if os.path.exists("/proc/self/ns/cgroup"):
        # Inside, what it is in has no name. bubblewrap's own view is of what that is in.
        _checked(_libc.unshare(_OWN_CGROUPS), "unshare")
    return True


def _open_cgroup(folder: str) -> tuple[int, int]:
    """Open *folder*, and what moves a process into it: in another root nobody finds them."""
    moves = os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    return os.open(folder, os.O_PATH | os.O_CLOEXEC), moves


def _fork(entrances: tuple[int, int] | None) -> int:
    if entrances is None:
        return fork_sibling()
    cgroup, moves = entrances
    try:
        return fork_sibling_into(cgroup)
    except OSError as refusal:
        if refusal.errno not in _CANNOT_BE_BORN_THERE:
            raise
    os.write(moves, b"0")
    return fork_sibling()


def _hear(heard: int) -> bytes:
    """Return what is said until the program inside is there, or nobody can say anything more."""
    words = b""
    while not words.endswith(_THERE) and (more := os.read(heard, _WORDS_BYTES)):
        words += more
    return words


def _join(bubblewrap: int) -> None:
    """Join the namespaces that are not ours of what *bubblewrap* has started, its only child.

    From now on what this process forks is in its namespace of processes; itself stays outside.
    """
    first = next(iter(children(bubblewrap)), 0)
    try:
        process = _open(first, bubblewrap)
        flags = sum(flag for name, flag in _NAMESPACES.items() if _is_other(first, name))
    except (FileNotFoundError, ProcessLookupError):
        raise OSError(0, "bubblewrap has ended") from None
    try:
        _checked(_libc.setns(process, flags), "setns")
    finally:
        os.close(process)


def _open(first: int, bubblewrap: int) -> int:
    """Return a pidfd of *first*, the child of *bubblewrap*, which is our sibling.

    Raises:
        ProcessLookupError: one of them has ended; another process may have got its number.
    """
    if not first:
        raise ProcessLookupError
    process = os.pidfd_open(first)
    if [_parent(first), _parent(bubblewrap)] != [bubblewrap, os.getppid()]:
        os.close(process)
        raise ProcessLookupError
    return process


def _parent(process: int) -> int:
    return int(next(iter(read_stat(process)[PARENT : PARENT + 1]), 0))


def _is_other(process: int, name: str) -> bool:
    try:
        own = os.stat(f"/proc/self/ns/{name}").st_ino
    except FileNotFoundError:
        return False  # The kernel has no such namespaces.
    return os.stat(f"/proc/{process}/ns/{name}").st_ino != own


def _wait_for_end(process: int) -> None:
    try:
        life = os.pidfd_open(process)
    except ProcessLookupError:
        return
    ended = select.poll()
    ended.register(life, select.POLLIN)
    ended.poll()


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
