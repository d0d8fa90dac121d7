"""What the caller trusted: one small file for each capsule folder, in the state directory.

A file of its own for each folder: two that are written at once do not know of each other.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.grants import Item
from capsule_runtime.errors import HostError, TrustError
from capsule_runtime.host.private_files import make_private_directory

_MOST_BYTES = 4 * 1024 * 1024


class Trust(Struct, frozen=True, forbid_unknown_fields=True):
    """That the capsule in *folder* gets what it asked for, as long as its digest stays."""

    folder: str
    digest: str
    asks: tuple[Item, ...]
    """With paths as they led then."""
    at: str


_decoder = msgspec.json.Decoder(Trust)


def record_trust(state: Path, trust: Trust) -> None:
    """Keep *trust*, in place of an earlier one of the same folder; durable on return.

    Raises:
        StoreError: the state directory cannot be made.
        HostError: the disk refuses.
    """
    make_private_directory(state)
    make_private_directory(state / "trust")
    path = _path_for(state, trust.folder)
    fresh = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(fresh, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(msgspec.json.encode(trust) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as exc:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise HostError("E-HOST-023", f"the trust cannot be recorded: {path}: {exc}") from exc


def load_trust(state: Path, folder: Path) -> Trust | None:
    """Return what was trusted in *folder*, or None.

    Raises:
        TrustError: E-TRU-004, the record cannot be relied on.
    """
    with suppress(FileNotFoundError):
        trust = _read(_path_for(state, str(folder)))
        if trust.folder == str(folder):
            return trust
    return None


def load_trusts(state: Path) -> list[Trust]:
    """Return all that was trusted, by folder.

    Raises:
        TrustError: E-TRU-004, a record cannot be relied on.
    """
    found: list[Trust] = []
    for path in (state / "trust").glob("*.json"):
        with suppress(FileNotFoundError):  # forgotten meanwhile
            found.append(_read(path))
    return sorted(found, key=lambda trust: trust.folder)


def forget_trust(state: Path, folder: Path) -> bool:
    """Trust what is in *folder* no longer; tell whether it was.

    Raises:
        HostError: the disk refuses.
    """
    path = _path_for(state, str(folder))
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise HostError("E-HOST-023", f"the trust cannot be forgotten: {path}: {exc}") from exc
    return True


def _path_for(state: Path, folder: str) -> Path:
    return state / "trust" / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}.json"


def _read(path: Path) -> Trust:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022:
                raise ValueError("others may write it")
            if found.st_uid != os.geteuid():
                raise ValueError(f"it belongs to user {found.st_uid}")
            return _decoder.decode(file.read(_MOST_BYTES))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as exc:  # what msgspec raises is a ValueError
        raise TrustError(
            "E-TRU-004",
            f"the record of a trust cannot be relied on: {path}: {exc}",
            f"Remove it, and trust the capsule again: rm {path}",
        ) from exc
