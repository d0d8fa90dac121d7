"""Find out whether a folder can be shown to a run's user as its own, where root starts the run.

It takes the right to mount, and a file system that can map owners: overlayfs and some network file
systems cannot. So each is tried; what came of it is kept until the boot for the mounts it was tried
on.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

from capsule_runtime.core.mounts import mounts_at
from capsule_runtime.host.kept_file import keep, read_kept
from capsule_runtime.host.leftovers import boot_id
from capsule_runtime.host.namespaces import TRIAL_USER, said, standing
from capsule_runtime.host.refusal_words import CANNOT_SHIFT
from capsule_runtime.host.rights import may_mount

_TRIAL = str(Path(__file__).with_name("shift_trial.py"))
_OK = "ok"
_CANNOT = "its file system, or one in it, cannot show files under another owner"


def why_not_shifted(folder: str, state: Path | None = None) -> str:
    """Say why *folder*, or the nearest that is there, cannot be shown to another user; "" if it can.

    What came of it is kept below *state*.
    """
    if not may_mount():
        return "that takes CAP_SYS_ADMIN, which it has not"
    place = os.path.realpath(folder)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    mounts = mounts_at(Path("/proc/self/mountinfo").read_bytes(), os.fsencode(place))
    return _find(b"\n".join(mounts), place, state)


_found: dict[bytes, str] = {}


def _find(mounts: bytes, place: str, state: Path | None) -> str:
    if mounts not in _found:
        _found[mounts] = _find_kept(mounts, place, state)
    return _found[mounts]


def _find_kept(mounts: bytes, place: str, state: Path | None) -> str:
    if state is None:
        return _try(place)
    key = sha256(f"{boot_id()} {standing()} ".encode() + mounts).hexdigest()
    kept = state / "cache" / "shifts" / key
    known = {it.encode(): it for it in ("", _CANNOT)}
    if (found := read_kept(kept)) in known:
        return known[found]
    why = _try(place)
    if why in known.values():  # What else is in the way may be so for a moment only.
        keep(kept, why.encode())
    return why


def _try(place: str) -> str:
    told = said([sys.executable, "-I", "-S", _TRIAL, TRIAL_USER, place]).strip()
    if CANNOT_SHIFT in told:
        return _CANNOT
    return "" if told == _OK else told.rpartition("\n")[2] or "it says nothing"
