"""One number for all that a capsule is: whatever changes in its folder changes it.

Everything counts: each name, in order, with its type, its executable and set-id bits, its size and
its contents. A link counts as what is written in it and is never followed. Nothing is left out.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capsule_runtime.core.grants import is_beneath
from capsule_runtime.errors import TrustError

MOST_ENTRIES = 50_000
MOST_BYTES = 1024 * 1024 * 1024
_DEEPEST = 64
_CHUNK = 1024 * 1024
_KEPT_BITS = 0o7111
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Digest:
    """What a capsule's folder held when it was looked at."""

    text: str
    """`sha256:` and 64 hexadecimal digits."""
    entries: int
    size: int
    """Bytes in all files together."""
    outward: tuple[str, ...]
    """Links that lead out of the folder, `name -> target`: what they name may change unseen."""


def digest_of(folder: Path) -> Digest:
    """Return the digest of the capsule in *folder*.

    Raises:
        TrustError: E-TRU-003, it holds what cannot be counted, cannot be read, or is too large.
    """
    try:
        top = os.open(folder, _FOLDER)
    except OSError as exc:
        raise _uncounted(str(folder), exc.strerror) from exc
    try:
        return _Count(str(folder.resolve())).of(top)
    finally:
        os.close(top)


class _Count:
    """Count one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._hash = hashlib.sha256(b"capsule-1\n")
        self._entries = 0
        self._size = 0
        self._outward: list[str] = []

    def of(self, top: int) -> Digest:
        for kind, mode, name, content in self._walk(top, "", 0):
            head = f"{kind}{mode & _KEPT_BITS:04o}".encode()
            for part in (head, os.fsencode(name), content):
                self._hash.update(len(part).to_bytes(8, "big") + part)
        digest = f"sha256:{self._hash.hexdigest()}"
        return Digest(digest, self._entries, self._size, tuple(self._outward))

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int, str, bytes]]:
        """Yield kind, mode, name and content of everything in *folder* and below, in order."""
        for name in self._names(folder, prefix, depth):
            path = prefix + name
            try:
                mode = os.lstat(name, dir_fd=folder).st_mode
                if stat.S_ISLNK(mode):
                    yield "l", 0, path, self._link(folder, name, path)
                elif stat.S_ISREG(mode):
                    yield "f", mode, path, self._file(folder, name, path)
                elif stat.S_ISDIR(mode):
                    yield "d", mode, path, b""
                    inner = os.open(name, _FOLDER, dir_fd=folder)
                    try:
                        yield from self._walk(inner, f"{path}/", depth + 1)
                    finally:
                        os.close(inner)
                else:
                    raise _uncounted(path, "it is neither file nor folder nor link")
            except OSError as exc:
                raise _uncounted(path, exc.strerror) from exc

    def _names(self, folder: int, prefix: str, depth: int) -> list[str]:
        if depth > _DEEPEST:
            raise _uncounted(prefix, f"it lies more than {_DEEPEST} folders deep")
        names: list[str] = []
        with os.scandir(folder) as found:
            for entry in found:
                self._entries += 1
                if self._entries > MOST_ENTRIES:
                    raise _uncounted(prefix or ".", f"there are more than {MOST_ENTRIES} entries")
                names.append(entry.name)
        return sorted(names, key=os.fsencode)

    def _file(self, folder: int, name: str, path: str) -> bytes:
        """Return the digest of one file, read piece by piece."""
        content = hashlib.sha256()
        with open(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _uncounted(path, "it changed while it was read")
            size = 0
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if self._size + size > MOST_BYTES:
                    raise _uncounted(path, f"the folder holds more than {MOST_BYTES} bytes")
                content.update(chunk)
        self._size += size
        return size.to_bytes(8, "big") + content.digest()

    def _link(self, folder: int, name: str, path: str) -> bytes:
        target = os.readlink(name, dir_fd=folder)
        named = os.path.realpath(os.path.join(self._folder, os.path.dirname(path), target))
        if not is_beneath(named, self._folder):
            self._outward.append(f"{path} -> {target}")
        return os.fsencode(target)


def _uncounted(path: str, why: str | None) -> TrustError:
    return TrustError(
        "E-TRU-003",
        f"the capsule cannot be checked as a whole: {path}: {why}",
        "A capsule that asks for something holds files, folders and links, and not too many.",
    )
