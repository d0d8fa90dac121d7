"""Keep the shipped prices on disk in our own form, which loads twenty times faster than theirs.

What lies there is not trusted: a file of somebody else's, one that others may write to, one that is
too large or does not decode is as good as none, and the prices are taken from their package again.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.prices import Provider
from capsule_runtime.errors import StoreError
from capsule_runtime.host.private_files import make_private_directory

_MOST_BYTES = 16 * 1024 * 1024


class _Kept(Struct, frozen=True):
    """The prices of *version*: a package's own, and the day on which they hold."""

    version: str
    providers: tuple[Provider, ...]


_decoder = msgspec.msgpack.Decoder(_Kept)


def read_prices(path: Path, version: str) -> tuple[Provider, ...] | None:
    """Return the prices of *version* that are kept at *path*; None if there are none to trust."""
    # NONBLOCK: opening a pipe that somebody left there must not wait for its writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError, msgspec.DecodeError, RecursionError):
        with open(os.open(path, flags), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            kept = _decoder.decode(file.read(_MOST_BYTES + 1))
        return kept.providers if kept.version == version else None
    return None


def keep_prices(path: Path, version: str, providers: tuple[Provider, ...]) -> None:
    """Keep *providers* at *path*, whole or not at all. A disk that refuses changes nothing."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with suppress(OSError, StoreError):
        make_private_directory(path.parent)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(msgspec.msgpack.encode(_Kept(version, providers)))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def _is_ours(found: os.stat_result) -> bool:
    is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return stat.S_ISREG(found.st_mode) and is_private and found.st_size <= _MOST_BYTES
