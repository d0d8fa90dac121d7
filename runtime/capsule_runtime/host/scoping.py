"""Find out whether a run can be scoped here: by trying what that takes."""

from __future__ import annotations

import os
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.scoped_walls import Scoping, why_not_scoped
from capsule_runtime.core.seccomp import build_filter, build_notify_filter
from capsule_runtime.host.filtering import find_filtering
from capsule_runtime.host.kept_file import keep, read_kept
from capsule_runtime.host.leftovers import boot_id
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.metadata import Identity
from capsule_runtime.host.namespaces import TRIAL_USER, standing
from capsule_runtime.host.rights import lacking_rights

_FIX = "Start it as a plain user, or leave root the rights that it has in a container by default."


class Scopes(Struct, frozen=True):
    """What was found."""

    why: str = ""
    """Why no run can be scoped; "" where it can."""
    fix: str = ""
    mediates: bool = False
    stays_readable: bool = False

    def scoping(self) -> Scoping:
        """Return what a scope is made with."""
        machine = os.uname().machine
        return Scoping(
            build_notify_filter(machine, stays_readable=self.stays_readable),
            build_filter("strict", machine),
            self.mediates,
        )


@cache
def find_scopes(state: Path | None = None) -> Scopes:
    """Return what was found, as far as this process may use it. Kept below *state* until the boot."""
    kept = None
    if state is not None:
        key = f"{boot_id()} {standing()} {find_machine().landlock_abi} {sys.version}"
        kept = state / "cache" / "scopes" / sha256(key.encode()).hexdigest()
        if (data := read_kept(kept)) is not None:
            try:
                return msgspec.json.decode(data, type=Scopes)
            except msgspec.MsgspecError:
                pass  # Written by another version of ours: it is found out anew.
    found = _find()
    if kept is not None and not found.why:
        keep(kept, msgspec.json.encode(found))
    return found


def _find() -> Scopes:
    is_root = os.geteuid() == 0
    if why := why_not_scoped(find_machine(), has_own_user=is_root):
        return Scopes(why, "Boot a newer kernel, with `landlock` in its list lsm=.")
    if is_root and (lacking := lacking_rights()):
        return Scopes(f"root cannot have a run be another user, without {', '.join(lacking)}", _FIX)
    user = int(TRIAL_USER)
    filtering = find_filtering(Identity(user, user) if is_root else None)
    if filtering.filters:
        return Scopes(f"system calls cannot be filtered: {filtering.filters}")
    if why := filtering.notices or filtering.mediation:
        return Scopes(f"nobody can connect for a run: {why}")
    return Scopes(mediates=True, stays_readable=filtering.stays_readable)
