"""Whether a run can have a root, a network and processes of its own here: values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Variant = Literal["userns", "rootns", ""]
"""Who composes the root: a user in a namespace of its own, or root itself; "" nobody."""


class Namespaces(Struct, frozen=True, forbid_unknown_fields=True):
    """What was found of bubblewrap, and what it can do here."""

    variant: Variant = ""
    bwrap: str = ""
    """Its path."""
    version: str = ""
    digest: str = ""
    """The SHA-256 of its file."""
    idler: str = ""
    """A program that repeats what it reads, and so waits: what runs inside beside the harness."""
    shifts_owners: bool = False
    """Whether a folder can be shown to a run as its own, and what it makes there as its owner's."""
    passed_over: str = ""
    """Why it is not one that would have been taken before it."""
    why: str = ""
    """Why there is no variant."""
    fix: str = ""


SETTINGS = {
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "Let bubblewrap make user namespaces: an AppArmor profile for it, or"
        " `sysctl kernel.apparmor_restrict_unprivileged_userns=0`.",
    ),
    "kernel/unprivileged_userns_clone": (
        "0",
        "Let users make namespaces: `sysctl kernel.unprivileged_userns_clone=1`.",
    ),
    "user/max_user_namespaces": (
        "0",
        "Let there be user namespaces: `sysctl user.max_user_namespaces=10000`.",
    ),
}
"""Of /proc/sys: which value forbids namespaces, and what helps."""
_MASKED = (
    "Parts of /proc are covered, as in a container: start it with"
    " `--security-opt systempaths=unconfined`, or put up with the scoped tier."
)
_CONTAINER = (
    "Start the container with `--cap-add SYS_ADMIN --security-opt seccomp=unconfined"
    " --security-opt apparmor=unconfined`, or put up with the scoped tier."
)


def fix_for(why: str, settings: Mapping[str, str], *, is_root: bool) -> str:
    """Return what helps where bubblewrap said *why*; *settings* are those of `SETTINGS`."""
    if "mount proc" in why or "/proc" in why:
        return _MASKED
    if not is_root:
        for name, (forbidding, fix) in SETTINGS.items():
            if settings.get(name) == forbidding:
                return fix
    return _CONTAINER
