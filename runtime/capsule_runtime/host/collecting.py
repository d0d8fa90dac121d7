"""Keep what a run changed in its copy: the new contents, a patch for people, and a list of both.

changes         what changed, and from what; written last
changes.blobs   the new contents, one behind the other
changes.patch   the same as a patch that `git apply` takes, without what lies in `.git`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from capsule_runtime.core.git_patch import (
    LINK_MODE,
    binary_literal,
    is_text,
    patch_head,
    text_hunks,
)
from capsule_runtime.core.line_diff import Patience
from capsule_runtime.core.work import show_path
from capsule_runtime.host.changes import (
    MOST_BYTES,
    MOST_FILE_BYTES,
    Candidate,
    Change,
    Contents,
    Piece,
    find_candidates,
    is_internal,
    same_as_copied,
)
from capsule_runtime.host.copy_index import CopyIndex
from capsule_runtime.host.filling import Stopped
from capsule_runtime.host.kept_changes import Changes, Kept
from capsule_runtime.host.tree_walk import open_folder, why_not

MOST_LEFT_OUT = 1000
_TEXT_BYTES = 1024 * 1024
_CHUNK = 1024 * 1024
_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def collect(copy: Path, index: CopyIndex, kept: Kept, stopped: Callable[[], bool]) -> Changes:
    """Keep what changed in *copy*, in which nothing lives any more, since it was made by *index*.

    Raises:
        Stopped: *stopped* said so.
        OSError: the copy is gone, or the disk refuses.
    """
    tops: list[int] = []
    try:
        tops.append(open_folder(copy))
        tops.append(_original(index))
        with (
            open(os.open(kept.blobs, _NEW, 0o600), "w+b") as blobs,
            open(os.open(kept.patch, _NEW, 0o600), "wb") as patch,
        ):
            changes = _Collecting(tops[0], tops[1], blobs, patch, stopped).collect(index)
            for file in (blobs, patch):
                file.flush()
                os.fdatasync(file.fileno())
        kept.save(changes)
        return changes
    finally:
        for fd in tops:
            if fd >= 0:
                os.close(fd)


def _original(index: CopyIndex) -> int:
    """Open the folder that was copied; -1 if it is gone, or another one by now."""
    try:
        fd = open_folder(os.path.realpath(os.fsdecode(index.original)))
    except OSError:
        return -1
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) == (index.device, index.inode):
        return fd
    os.close(fd)
    return -1


class _Short:
    """Keep contents as long as they are short enough to be shown line by line."""

    def __init__(self, then: Callable[[bytes], object] | None = None) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._then = then

    def take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= _TEXT_BYTES:
            self._chunks.append(chunk)
        if self._then is not None:
            self._then(chunk)

    @property
    def whole(self) -> bytes:
        """Return the contents, which are known to be short."""
        return b"".join(self._chunks)

    @property
    def text(self) -> bytes | None:
        """Return the contents if they are short, and text."""
        whole = b"".join(self._chunks) if self._size <= _TEXT_BYTES else None
        return whole if whole is not None and is_text(whole) else None


class _Collecting:
    def __init__(
        self,
        copy: int,
        original: int,
        blobs: BinaryIO,
        patch: BinaryIO,
        stopped: Callable[[], bool],
    ) -> None:
        self._copy = copy
        self._here = Contents(copy, opens_closed=True)
        self._original = original
        self._blobs = blobs
        self._patch = patch
        self._stopped = stopped
        self._patience = Patience()
        self._offset = 0
        self._left_out: dict[str, str] = {}
        self._is_cut = False

    def collect(self, index: CopyIndex) -> Changes:
        findings = find_candidates(self._copy, index, self._stopped)
        self._left_out = findings.left_out
        changes: list[Change] = []
        for candidate in findings.candidates:
            if self._stopped():
                raise Stopped
            try:
                change = self._take(candidate)
            except OSError as exc:
                self._left_out[candidate.path] = why_not(exc)
                continue
            if change is not None:
                changes.append(change)
        left_out = [(os.fsencode(path), why) for path, why in self._left_out.items()]
        return Changes(
            index.original,
            index.device,
            index.inode,
            tuple(changes),
            tuple(sorted(left_out)[:MOST_LEFT_OUT]),
            len(left_out),
            findings.is_cut or self._is_cut,
        )

    def _take(self, candidate: Candidate) -> Change | None:
        """Keep what *candidate* is now; None if it is the same after all."""
        before = _Short()
        old, moved_on = self._before(candidate, before.take)
        after = _Short(self._blobs.write)
        new, offset = None, self._offset
        if candidate.found is not None:
            new = self._after(candidate, after)
            if new is None or new == old:
                self._take_back(offset)
                return None
        elif old is None:
            return None  # gone from both
        path = os.fsencode(candidate.path)
        target = after.whole if new is not None and new.mode == LINK_MODE else b""
        change = Change(path, old, new, offset, is_internal(candidate.path), moved_on, target)
        if not change.internal:
            self._write_patch(change, before, after)
        return change

    def _before(
        self, candidate: Candidate, take: Callable[[bytes], object]
    ) -> tuple[Piece | None, bool]:
        """Return what the original is, and whether that is no longer what was copied."""
        if candidate.base is None:
            return None, False
        if self._original < 0:
            return None, True
        moved_on = not same_as_copied(self._original, candidate.base)
        return Contents(self._original).piece(candidate.path, take), moved_on

    def _after(self, candidate: Candidate, after: _Short) -> Piece | None:
        size = candidate.status.st_size if candidate.status else 0
        if size > MOST_FILE_BYTES or self._offset + size > MOST_BYTES:
            self._left_out[candidate.path] = "it is too large to be collected"
            self._is_cut = True
            return None
        try:
            piece = self._here.piece(candidate.path, after.take)
        except OSError:
            self._take_back(self._offset)
            raise
        self._offset += piece.size if piece else 0
        return piece

    def _take_back(self, offset: int) -> None:
        self._blobs.seek(offset)
        self._blobs.truncate()
        self._offset = offset

    def _write_patch(self, change: Change, before: _Short, after: _Short) -> None:
        if change.moved_on:
            shown = show_path(change.path).splitlines()[0]
            self._patch.write(f"The original of {shown} has changed meanwhile.\n".encode())
        old, new = change.old, change.new
        if old and new and (old.mode == LINK_MODE) != (new.mode == LINK_MODE):
            self._write_one(change, old, None, before, after)
            old = None
        self._write_one(change, old, new, before, after)

    def _write_one(
        self, change: Change, old: Piece | None, new: Piece | None, before: _Short, after: _Short
    ) -> None:
        if old is None and new is None:
            return
        head = patch_head(change.path, old.side if old else None, new.side if new else None)
        self._patch.write(head)
        if old and new and old.id == new.id:
            return
        olds, news = before.text if old else b"", after.text if new else b""
        if olds is not None and news is not None:
            was, now = olds if old else None, news if new else None
            self._patch.writelines(text_hunks(change.path, was, now, self._patience))
        else:
            chunks = self._chunks(change.offset, new.size) if new else iter(())
            self._patch.writelines(binary_literal(new.size if new else 0, chunks))

    def _chunks(self, offset: int, size: int) -> Iterator[bytes]:
        self._blobs.flush()
        while size:
            chunk = os.pread(self._blobs.fileno(), min(_CHUNK, size), offset)
            offset, size = offset + len(chunk), size - len(chunk)
            yield chunk
