"""What of the changes of a run is kept in its folder.

changes         what changed, and from what; written last
changes.blobs   the new contents, one behind the other
changes.patch   the same as a patch that `git apply` takes, without what lies in `.git`
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.work import Tally
from capsule_runtime.errors import HostError
from capsule_runtime.host.changes import Change

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Changes(Struct, frozen=True, array_like=True):
    """All that a run changed, and the folder that it would be applied to."""

    original: bytes
    device: int
    inode: int
    changes: tuple[Change, ...]
    left_out: tuple[tuple[bytes, str], ...]
    """The first of what was changed and is not here, and why."""
    left_out_count: int
    is_cut: bool
    """Whether there was more than is collected: then the copy is kept."""

    @property
    def tally(self) -> Tally:
        """Return how many there are outside of `.git`."""
        sides = [(one.old, one.new) for one in self.changes if not one.internal]
        return Tally(
            added=sum(old is None for old, _ in sides),
            changed=sum(old is not None and new is not None for old, new in sides),
            removed=sum(new is None for _, new in sides),
        )

    @property
    def internal(self) -> int:
        """Return how many there are inside `.git`."""
        return sum(one.internal for one in self.changes)


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the changes of a run are kept."""

    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "changes"

    @property
    def blobs(self) -> Path:
        return self.folder / "changes.blobs"

    @property
    def patch(self) -> Path:
        return self.folder / "changes.patch"

    def load(self) -> Changes | None:
        """Return what was collected; None if nothing was, or not to the end.

        Raises:
            HostError: E-HOST-041, it cannot be read.
        """
        try:
            return msgspec.msgpack.decode(self.index.read_bytes(), type=Changes)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as exc:
            raise HostError("E-HOST-041", f"{self.index} cannot be read: {exc}") from exc

    def save(self, changes: Changes) -> None:
        """Write the list, whole or not at all, once the rest is on disk.

        Raises:
            OSError: the disk refuses.
        """
        draft = self.folder / "changes.new"
        with open(os.open(draft, _NEW, 0o600), "wb") as file:
            file.write(msgspec.msgpack.encode(changes))
            file.flush()
            os.fdatasync(file.fileno())
        draft.replace(self.index)
