"""Get a root of its own for the child that becomes a harness: what bubblewrap wants opened first.

Loaded by path into the warden's bare interpreter: the standard library only. Runs in the forked
child. Folders are opened without following links, and what is opened is bound. Signals stay blocked:
what is meant for the harness reaches its whole group, and bubblewrap is in it. Where root starts
the run, the folders are shown to the run's user as its own: by mounts that shift owners, in a mount
namespace of this child alone. On disk everything goes on to belong to whom it belonged to.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from capsule_runtime.host.linux import fork_with
    from capsule_runtime.host.refusal_words import CANNOT_SHIFT
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

    from linux import fork_with
    from refusal_words import CANNOT_SHIFT

Shift = tuple[int, tuple[bytes, ...], tuple[bytes, ...]]
Sealing = tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...], "Shift | None"]
"""Places and data, each with the number of the descriptor it is to have, and what is shifted."""

SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 437, 442
"""The same on every architecture."""
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x02, 0x04
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_FROM_DESCRIPTOR, MOVE_TO_DESCRIPTOR = 1, 0x04, 0x40
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC_PRIVATE = 0x4000 | 0x40000
MOUNT_ATTR_IDMAP = 0x100000
_NUMBERS = 2**32 - 1

_libc = ctypes.CDLL(None, use_errno=True)


def prepare(sealing: Sealing) -> None:
    """Open what bubblewrap binds and reads, at the numbers that it was told.

    Raises:
        OSError: a place is not there, or has become a link; the system refuses.
    """
    places, data, shift = sealing
    if shift is not None:
        _shift_owners(*shift)
    for number, path in places:
        _place(open_place(path), number)
    for number, content in data:
        _place(_memory_file(content), number)
    os.umask(0o022)
    os.chdir("/")


def open_place(path: bytes) -> int:
    """Return a descriptor of the file or folder *path*, which has no link in it.

    Raises:
        OSError: it is not there, or there is a link.
    """
    how = struct.pack(
        "QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    )
    return _checked(
        _libc.syscall(SYS_OPENAT2, AT_FDCWD, path, how, ctypes.c_size_t(len(how))),
        f"open {os.fsdecode(path)}",
    )


def _place(descriptor: int, number: int) -> None:
    if descriptor == number:
        os.set_inheritable(number, True)
        return
    os.dup2(descriptor, number)
    os.close(descriptor)


def _memory_file(content: bytes) -> int:
    file = os.memfd_create("capsule", os.MFD_CLOEXEC)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def try_shift(path: bytes, user: int) -> None:
    """Try whether *path* can be shown to *user* as its own; nothing is mounted.

    Raises:
        OSError: it cannot.
    """
    place = open_place(path)
    try:
        found = os.stat(place)
        namespace = _namespace((found.st_uid, found.st_gid), user)
        try:
            os.close(_shifted(place, path, namespace))
        finally:
            os.close(namespace)
    finally:
        os.close(place)


def _shift_owners(user: int, written: tuple[bytes, ...], read: tuple[bytes, ...]) -> None:
    """Mount each path over itself, with its owner shown as *user*, for this process only."""
    _checked(_libc.unshare(CLONE_NEWNS), "unshare")
    _checked(_libc.mount(None, b"/", None, MS_REC_PRIVATE, None), "private mounts")
    namespaces: dict[tuple[int, int], int] = {}
    shown: list[bytes] = []
    for path in sorted({*written, *read}):
        if any(path.startswith(one + b"/") for one in shown):
            continue  # It is shown with the folder in which it lies, and none is shown twice.
        try:
            _shift_owner(path, user, namespaces)
        except OSError:
            if path in written:
                raise
            continue  # Then its modes say whether the run can read it.
        shown.append(path)
    for namespace in namespaces.values():
        os.close(namespace)


def _shift_owner(path: bytes, user: int, namespaces: dict[tuple[int, int], int]) -> None:
    place = open_place(path)
    try:
        found = os.stat(place)
        owner = (found.st_uid, found.st_gid)
        if owner not in namespaces:
            namespaces[owner] = _namespace(owner, user)
        _mount_shifted(place, path, namespaces[owner])
    finally:
        os.close(place)


def _mount_shifted(place: int, path: bytes, namespace: int) -> None:
    tree = _shifted(place, path, namespace)
    try:
        both = MOVE_FROM_DESCRIPTOR | MOVE_TO_DESCRIPTOR
        _checked(_libc.syscall(SYS_MOVE_MOUNT, tree, b"", place, b"", both), "move_mount")
    finally:
        os.close(tree)


def _shifted(place: int, path: bytes, namespace: int) -> int:
    """Return a mount of *place*, which is nowhere yet, that shows other owners."""
    # With what is mounted beneath it: else the run would find empty folders there, and believe them.
    flags = OPEN_TREE_CLONE | AT_EMPTY_PATH | AT_RECURSIVE | os.O_CLOEXEC
    tree = _checked(_libc.syscall(SYS_OPEN_TREE, place, b"", flags), "open_tree")
    try:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace)
        size = ctypes.c_size_t(len(attributes))
        deep = AT_EMPTY_PATH | AT_RECURSIVE
        done = _libc.syscall(SYS_MOUNT_SETATTR, tree, b"", deep, attributes, size)
        _checked(done, f"{CANNOT_SHIFT} {os.fsdecode(path)}")
    except BaseException:
        os.close(tree)
        raise
    return tree


def _namespace(owner: tuple[int, int], user: int) -> int:
    """Return a user namespace in which *owner*, of files, is *user* outside."""
    child = fork_with(CLONE_NEWUSER)
    if child == 0:
        while True:
            signal.pause()
    try:
        for name, id in (("uid_map", owner[0]), ("gid_map", owner[1])):
            _write_map(f"/proc/{child}/{name}", id, user)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write_map(path: str, owner: int, user: int) -> None:
    """Have files of *owner* be those of *user*, and all others stay whose they are.

    Nothing could be written in a folder whose owner or group were nobody.
    """
    map = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(map, b"".join(b"%d %d %d\n" % one for one in _ranges(owner, user)))
    except OSError:
        os.write(map, b"%d %d 1" % (owner, user))  # Not all numbers are ours to give.
    finally:
        os.close(map)


def _ranges(owner: int, user: int) -> list[tuple[int, int, int]]:
    low, high = sorted((owner, user))
    between = ((0, low), (low + 1, high), (high + 1, _NUMBERS))
    return [
        (owner, user, 1),
        *((first, first, end - first) for first, end in between if first < end),
    ]


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
