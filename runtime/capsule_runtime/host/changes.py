"""What a run changed in its copy of a work directory: found, kept, and written as a patch.

The tree is whatever its harness made of it, and no process of it is left. Nothing of it is run: no
git looks at it. A file counts as the same while its inode, size and dates are: whoever writes to it
cannot set back the date of its last change.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import Struct

from capsule_runtime.core.git_patch import LINK_MODE, Side
from capsule_runtime.host.beneath import FILE, open_beneath, parted
from capsule_runtime.host.copy_index import Copied, CopyIndex, identity_of
from capsule_runtime.host.filling import Stopped
from capsule_runtime.host.tree_walk import Found, Walk, open_up

MOST_ENTRIES_MORE = 250_000
"""How many entries a run may add and still have all of them looked at."""
MOST_CHANGES = 50_000
MOST_FILE_BYTES = 256 * 1024 * 1024
MOST_BYTES = 1024 * 1024 * 1024
"""How much new content is collected in all."""
_CHUNK = 1024 * 1024
_LINK_BYTES = 4096


class Piece(Struct, frozen=True, array_like=True):
    """One side of a change."""

    mode: int
    """In git's terms: 100644, 100755 or 120000."""
    id: str
    """git's id of the contents."""
    size: int

    @property
    def side(self) -> Side:
        return Side(self.mode, self.id)


class Change(Struct, frozen=True, array_like=True):
    """One file or link that a run added, changed or removed."""

    path: bytes
    old: Piece | None
    new: Piece | None
    offset: int = 0
    """Where the new contents begin in the file of kept contents."""
    internal: bool = False
    """Whether it is of a repository's own files, inside `.git`."""
    moved_on: bool = False
    """Whether the original is no longer what was copied."""
    target: bytes = b""
    """What a new link says."""


@dataclass(slots=True)
class Candidate:
    """A path at which the copy is not what it was: *base* was copied, *found* is there now."""

    path: str
    base: Copied | None
    found: Found | None
    status: os.stat_result | None = None


@dataclass(slots=True)
class Findings:
    """What there is to collect, and what is left out."""

    candidates: list[Candidate] = field(default_factory=list[Candidate])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False


def is_internal(path: str) -> bool:
    """Whether *path* is of a repository's own files."""
    return any(part.lower() == ".git" for part in path.split("/"))


def find_candidates(top: int, index: CopyIndex, stopped: Callable[[], bool]) -> Findings:
    """Compare the tree beneath *top* with what was copied; reads no contents.

    Raises:
        Stopped: *stopped* said so.
    """
    base = {os.fsdecode(entry.path): entry for entry in index.entries}
    walk = Walk(top, len(base) + MOST_ENTRIES_MORE, opens_closed=True, stopped=stopped)
    findings, present = Findings(), set[str]()
    for found in walk:
        present.add(found.path)
        _judge(found, base.get(found.path), findings)
    if stopped():
        raise Stopped
    findings.is_cut = walk.is_cut
    findings.left_out.update(walk.unseen)
    if not walk.is_cut:
        blind = {*walk.unseen, *map(os.fsdecode, index.unseen)}
        for path in base.keys() - present:
            if base[path].kind != "d" and not _is_hidden(path, blind):
                findings.candidates.append(Candidate(path, base[path], None))
    findings.candidates.sort(key=lambda one: os.fsencode(one.path))
    if len(findings.candidates) > MOST_CHANGES:
        findings.is_cut = True
        del findings.candidates[MOST_CHANGES:]
    return findings


def _judge(found: Found, base: Copied | None, findings: Findings) -> None:
    """Add *found* to what there is to collect, unless it is what was copied."""
    if found.is_folder:
        if base is not None and base.kind != "d":
            findings.candidates.append(Candidate(found.path, base, None))
        return
    kind = "f" if found.is_file else "l" if found.is_link else ""
    if base is not None and base.kind == kind and base.here == identity_of(found.status):
        return
    if not kind:
        findings.left_out[found.path] = "it is neither file nor folder nor link"
    elif kind == "f" and not found.is_sole:
        findings.left_out[found.path] = "it has several names, maybe of a file outside"
    else:
        was = base if base is not None and base.kind != "d" else None
        findings.candidates.append(Candidate(found.path, was, found, found.status))


def _is_hidden(path: str, blind: set[str]) -> bool:
    """Whether nobody could look at *path*, so that it may still be there."""
    return any(path == one or path.startswith(f"{one}/") or not one for one in blind)


class Contents:
    """Read files and links beneath one folder, bounded, and give them git's ids."""

    def __init__(self, top: int, *, opens_closed: bool = False) -> None:
        self._top = top
        self._opens_closed = opens_closed

    def piece(self, path: str, take: Callable[[bytes], object] | None = None) -> Piece | None:
        """Return what *path* is now, its contents passed to *take*; None if it is not there.

        Raises:
            OSError: it is neither a file with one name nor a link, too large, or cannot be read.
        """
        folder, name = parted(path)
        try:
            parent = open_beneath(self._top, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return self._piece(parent, path, name, take)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)

    def _piece(
        self, parent: int, path: str, name: str, take: Callable[[bytes], object] | None
    ) -> Piece:
        status = os.lstat(name, dir_fd=parent)
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            if take is not None:
                take(target)
            return Piece(LINK_MODE, git_id(len(target), iter([target])), len(target))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is neither file nor link")
        fd = self._open(parent, path, name)
        try:
            return _piece_of(fd, take)
        finally:
            os.close(fd)

    def _open(self, parent: int, path: str, name: str) -> int:
        try:
            return open_beneath(parent, name, FILE)
        except PermissionError:
            if not self._opens_closed:
                raise
            open_up(self._top, path)
            return open_beneath(parent, name, FILE)


def _piece_of(fd: int, take: Callable[[bytes], object] | None) -> Piece:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if status.st_size > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, "it is too large")
    chunks = _chunks(fd, status.st_size, take)
    mode = 0o100755 if status.st_mode & 0o100 else 0o100644
    return Piece(mode, git_id(status.st_size, chunks), status.st_size)


def _chunks(fd: int, size: int, take: Callable[[bytes], object] | None) -> Iterator[bytes]:
    left = size
    while left:
        chunk = os.read(fd, min(_CHUNK, left))
        if not chunk:
            raise OSError(errno.EIO, "it became shorter while it was read")
        left -= len(chunk)
        if take is not None:
            take(chunk)
        yield chunk


def git_id(size: int, chunks: Iterator[bytes]) -> str:
    """Return the id that git gives to contents of *size* bytes."""
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def same_as_copied(top: int, base: Copied) -> bool:
    """Whether the original beneath *top* is still what was copied, by its dates."""
    folder, name = parted(os.fsdecode(base.path))
    with suppress(OSError):
        parent = open_beneath(top, folder)
        try:
            return identity_of(os.lstat(name, dir_fd=parent)) == base.there
        finally:
            os.close(parent)
    return False


def is_there(top: int, path: str) -> bool:
    """Whether there is anything at *path* beneath *top*, or a link or a mount on the way to it."""
    folder, name = parted(path)
    try:
        parent = open_beneath(top, folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    finally:
        os.close(parent)
    return True
