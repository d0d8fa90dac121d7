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
else:
    import _signal as signal  # `signal` brings `enum`: 4 ms of a 10 ms start.

Shift = tuple[int, tuple[bytes, ...], tuple[bytes, ...]]
Sealing = tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...], "Shift | None"]
"""Folders and data, each with the number of the descriptor it is to have, and what is shifted."""

SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 437, 442
"""The same on every architecture."""
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x02, 0x04
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
OPEN_TREE_CLONE, MOVE_FROM_DESCRIPTOR, MOVE_TO_DESCRIPTOR = 1, 0x04, 0x40
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC_PRIVATE = 0x4000 | 0x40000
MOUNT_ATTR_IDMAP = 0x100000

_libc = ctypes.CDLL(None, use_errno=True)


def prepare(sealing: Sealing) -> None:
    """Open what bubblewrap binds and reads, at the numbers that it was told.

    Raises:
        OSError: a folder is not there, or has become a link; the system refuses.
    """
    folders, data, shift = sealing
    if shift is not None:
        _shift_owners(*shift)
    for number, path in folders:
        _place(open_folder(path), number)
    for number, content in data:
        _place(_memory_file(content), number)
    os.umask(0o022)
    os.chdir("/")


def open_folder(path: bytes) -> int:
    """Return a descriptor of the folder *path*, which has no link in it.

    Raises:
        OSError: it is not there, or is none.
    """
    how = struct.pack(
        "QQQ",
        os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC,
        0,
        RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
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


def _shift_owners(user: int, written: tuple[bytes, ...], read: tuple[bytes, ...]) -> None:
    """Mount each path over itself, with its owner shown as *user*, for this process only."""
    _checked(_libc.unshare(CLONE_NEWNS), "unshare")
    _checked(_libc.mount(None, b"/", None, MS_REC_PRIVATE, None), "private mounts")
    namespaces: dict[tuple[int, int], int] = {}
    for path in written:
        _shift_owner(open_folder(path), user, namespaces)
    for path in read:
        try:
            _shift_owner(os.open(path, os.O_PATH | os.O_CLOEXEC), user, namespaces)
        except OSError:
            continue  # Then its modes say whether the run can read it.
    for namespace in namespaces.values():
        os.close(namespace)


def _shift_owner(place: int, user: int, namespaces: dict[tuple[int, int], int]) -> None:
    try:
        found = os.stat(place)
        owner = (found.st_uid, found.st_gid)
        if owner not in namespaces:
            namespaces[owner] = _namespace(owner, user)
        _mount_shifted(place, namespaces[owner])
    finally:
        os.close(place)


def _mount_shifted(place: int, namespace: int) -> None:
    flags = OPEN_TREE_CLONE | AT_EMPTY_PATH | os.O_CLOEXEC
    tree = _checked(_libc.syscall(SYS_OPEN_TREE, place, b"", flags), "open_tree")
    try:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace)
        size = ctypes.c_size_t(len(attributes))
        done = _libc.syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, size)
        _checked(done, "shift owners")
        both = MOVE_FROM_DESCRIPTOR | MOVE_TO_DESCRIPTOR
        _checked(_libc.syscall(SYS_MOVE_MOUNT, tree, b"", place, b"", both), "move_mount")
    finally:
        os.close(tree)


def _namespace(owner: tuple[int, int], user: int) -> int:
    """Return a user namespace in which *owner*, of files, is *user* outside."""
    ready, begun = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            _checked(_libc.unshare(CLONE_NEWUSER), "unshare")
            os.write(begun, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(begun)
    try:
        if not os.read(ready, 1):
            raise OSError(0, "no user namespace can be had")
        for name, id in (("uid_map", owner[0]), ("gid_map", owner[1])):
            map = os.open(f"/proc/{child}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(map, b"%d %d 1" % (id, user))
            os.close(map)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
