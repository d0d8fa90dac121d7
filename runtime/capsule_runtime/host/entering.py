"""Go on in a root that bubblewrap composes: as a new process, in namespaces that are not ours.

Loaded by path into the warden's bare interpreter: the standard library only. Runs in the forked
child that becomes the harness. bubblewrap is started beside it, with a program that does nothing as
what runs inside. As soon as its namespaces are there, this process joins them and forks: who is in a
namespace of processes was born there. The new process gets ready while the root is composed, and
goes in once that is whole. So nothing that puts up the walls lies in the root or starts there.

bubblewrap and the new process are our siblings, children of the burier; the first ends with it. This
process stays outside, to hear what bubblewrap complains of: with that, all inside ends.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.linux import fork_sibling, fork_sibling_into
    from capsule_runtime.host.sweep import PARENT, read_stat
else:
    from linux import fork_sibling, fork_sibling_into
    from sweep import PARENT, read_stat

_THERE = b"\0"
"""No complaint of bubblewrap has it, wherever a reading of one is cut."""
_WORDS_BYTES = 4096
SUCCESSOR_BYTES = 8
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

_SET_PIPE_BYTES, _BYTES_LEFT = 1031, 0x541B

Composing = tuple[int, int, int, int]
"""The pid of bubblewrap, and descriptors: at which it and what it starts are heard, at which it says
what it has started, and which can be written to once it has read, as it does when its root is whole."""

_libc = ctypes.CDLL(None, use_errno=True)


def compose(composer: list[bytes]) -> Composing:
    """Start *composer*, which is bubblewrap with its arguments, and wait for nothing.

    Raises:
        OSError: the system refuses.
    """
    heard, says = os.pipe2(os.O_CLOEXEC)
    idle, awake = os.pipe2(os.O_CLOEXEC)
    named, names = os.pipe2(os.O_CLOEXEC)
    # It is full with one message.
    reads, whole = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)
    fcntl.fcntl(whole, _SET_PIPE_BYTES, 1)
    for writer in (awake, whole):
        os.write(writer, _THERE)
    end = composer.index(b"--") if b"--" in composer else len(composer)
    told = (b"--info-fd", b"%d" % names, b"--block-fd", b"%d" % reads)
    bubblewrap = fork_sibling()
    if bubblewrap == 0:
        try:
            # What runs inside repeats what it reads, and then waits: it holds the other end itself.
            for descriptor in (awake, names, reads):
                os.set_inheritable(descriptor, True)
            for target, descriptor in ((0, idle), (1, says), (2, says)):
                os.dup2(descriptor, target)
            os.execve(composer[0], [*composer[:end], *told, *composer[end:]], {})
        except OSError as refusal:
            os.write(says, f"{composer[0].decode(errors='replace')}: {refusal}".encode())
        finally:
            os._exit(1)
    for descriptor in (says, idle, awake, names, reads):
        os.close(descriptor)
    return bubblewrap, heard, named, whole


def enter(
    composing: Composing, first_free: int, moved: int | None = None, cgroup: str | None = None
) -> int:
    """Go on in the root, as a new process. The old one returns -1, and has nothing left to do.

    The new one returns the descriptor *first_free*: see `settle`. It is in *cgroup* too, and in all
    others of the old one; of its other descriptors, those above are closed. Its pid is in the
    empty file *moved* before it is settled.

    Raises:
        OSError: the root could not be composed, or not be entered.
    """
    bubblewrap, *ours = composing
    # They were opened in this order, so none is where another one of them goes.
    heard, named, whole = (
        one if one == target else os.dup2(one, target, inheritable=False)
        for target, one in enumerate(ours, first_free)
    )
    os.closerange(whole + 1, os.sysconf("SC_OPEN_MAX"))
    entrances = None if cgroup is None else _open_cgroup(cgroup)
    first = _first_process(named)
    try:
        process = _open(first, bubblewrap)
        later = _join_early(process, first, whole)
        settled, settles = os.pipe2(os.O_CLOEXEC)
        new = _fork(entrances)
    except OSError:
        _hear_until_there(heard, bubblewrap)  # Why it has ended is more to the point.
        raise
    if new:
        os.close(settled)
        if moved is not None:
            os.pwrite(moved, new.to_bytes(SUCCESSOR_BYTES, "little"), 0)
        _hear_until_there(heard, bubblewrap)
        try:
            os.write(settles, _THERE)
        except BrokenPipeError:
            pass  # The new process has ended: whose child it is knows.
        return -1
    os.close(settles)
    _get_ready(whole)
    _join(process, first, later)
    os.dup2(settled, first_free, inheritable=False)
    os.closerange(first_free + 1, os.sysconf("SC_OPEN_MAX"))
    return first_free


def _get_ready(whole: int) -> None:
    """Do what needs no root, and wait for it."""
    os.setsid()
    if os.path.exists("/proc/self/ns/cgroup"):
        # Inside, what it is in has no name. bubblewrap's own view is of what that is in.
        _checked(_libc.unshare(_OWN_CGROUPS), "unshare")
    if not _becomes_whole(whole):
        os._exit(1)  # The old process hears why, and tells it.


def _becomes_whole(whole: int) -> bool:
    """Wait for bubblewrap to read what is in *whole*; return whether it did not end before."""
    taken = select.poll()
    taken.register(whole, select.POLLOUT)
    taken.poll()
    # Once it has read it closes its end, as it does when it ends.
    return not any(fcntl.ioctl(whole, _BYTES_LEFT, bytes(4)))


def settle(settled: int) -> None:
    """Wait until what runs beside us is there, and who buries us knows us, or raise OSError."""
    there = os.read(settled, 1)
    os.close(settled)
    if not there:
        raise OSError(0, "bubblewrap has ended")


def _first_process(named: int) -> int:
    """Return the pid of what bubblewrap has started; 0 when it says none, and ended."""
    # It begins with the pid, and says that in one go.
    _, _, pid = os.read(named, _WORDS_BYTES).partition(b'"child-pid":')
    return int((pid.replace(b",", b" ").split() or [b"0"])[0])


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


def _hear_until_there(heard: int, bubblewrap: int) -> None:
    """Listen at *heard* until the program inside is there.

    Raises:
        OSError: *bubblewrap* has ended, or nobody can say anything more.
    """
    patience = None
    either = select.poll()
    either.register(heard, select.POLLIN)
    try:
        either.register(os.pidfd_open(bubblewrap), select.POLLIN)
    except ProcessLookupError:
        patience = 0  # It was reaped: all its words are there.
    words = b""
    while not words.endswith(_THERE):
        # What it said before its end comes first.
        is_heard = any(descriptor == heard for descriptor, _ in either.poll(patience))
        more = os.read(heard, _WORDS_BYTES) if is_heard else b""
        if not more:
            complaint = words.decode(errors="replace").strip()
            raise OSError(0, complaint or "bubblewrap ended without a word")
        words += more
    # Without it, what is inside is not bound to it yet, or never.
    if patience == 0 or either.poll(0):
        raise OSError(0, "bubblewrap has ended")


def _join_early(process: int, first: int, whole: int) -> list[str]:
    """Join all but the mounts, and return what is left; all, and late, if there is one of users.

    With that, bubblewrap goes on to a second one when it has mounted all, and who is in that one
    has no say over the mounts. From outside of both, both can be joined at once.
    """
    names, later = _known_namespaces(), ["mnt"]
    if "user" in names and _namespace(first, "user") != _namespace("self", "user"):
        _becomes_whole(whole)
        later = []
    _join(process, first, [name for name in names if name not in later])
    return [name for name in later if name in names]


def _join(process: int, first: int, names: list[str]) -> None:
    """Join the namespaces *names* of *first*, of which *process* is a pidfd, that are not ours.

    What this process forks is in its namespace of processes then; itself stays outside.
    """
    try:
        flags = sum(
            _NAMESPACES[name]
            for name in names
            if _namespace(first, name) != _namespace("self", name)
        )
    except (FileNotFoundError, ProcessLookupError):
        raise OSError(0, "bubblewrap has ended") from None
    if flags:
        _checked(_libc.setns(process, flags), "setns")


def _open(first: int, bubblewrap: int) -> int:
    """Return a pidfd of *first*, the child of *bubblewrap*, which is our sibling.

    Raises:
        OSError: one of them has ended; another process may have got its number.
    """
    try:
        process = os.pidfd_open(first) if first else -1
    except ProcessLookupError:
        raise OSError(0, "bubblewrap has ended") from None
    if [_parent(first), _parent(bubblewrap)] != [bubblewrap, os.getppid()]:
        raise OSError(0, "bubblewrap has ended")
    return process


def _parent(process: int) -> int:
    return int(next(iter(read_stat(process)[PARENT : PARENT + 1]), 0))


def _known_namespaces() -> list[str]:
    """Return which of the namespaces the kernel has."""
    return [name for name in _NAMESPACES if os.path.exists(f"/proc/self/ns/{name}")]


def _namespace(process: int | str, name: str) -> int:
    return os.stat(f"/proc/{process}/ns/{name}").st_ino


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
