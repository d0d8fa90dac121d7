"""What `capsule doctor` says of each wall, from what was tried without it and behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from capsule_runtime.core.containment import Mechanism, Missing
from capsule_runtime.core.grants import Tier
from capsule_runtime.core.machine import Machine

Verdict = Literal["held", "not held", "not here"]
DONE = "done"
_LANDLOCK_FIX = "Boot a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in its list lsm=."
_SCOPE_FIX = "Landlock keeps signals from Linux 6.12 on."
_CGROUP_FIX = "Run as root, or as a user in a cgroup that is delegated: systemd-run --user --scope -p Delegate=yes"
_WALLS = {
    "read-outside": ("fs", "read a file outside", _LANDLOCK_FIX),
    "write-outside": ("fs", "create a file outside", _LANDLOCK_FIX),
    "signal-parent": ("proc", "signal what watches it", _SCOPE_FIX),
    "regain-capability": ("priv", "pass by rights as root can", ""),
    "setuid-program": ("priv", "become another user by a setuid program", ""),
    "raise-limit": ("resources.files", "raise a limit, or open more files", ""),
    "inherit-descriptor": ("fs", "read from an inherited descriptor", ""),
    "exceed-processes": ("resources.processes", "start too many processes", _CGROUP_FIX),
    "exceed-memory": ("resources.memory", "take too much memory", _CGROUP_FIX),
}
"""By the name of a trial: its axis, what is tried, and what helps where there is no wall."""


class Trial(Struct, frozen=True):
    """One wall, and what came of trying it."""

    name: str
    axis: str
    tries: str
    verdict: Verdict
    why: str
    fix: str


class TierFound(Struct, frozen=True):
    """Whether runs can be contained in one tier here."""

    tier: Tier
    is_had: bool
    how: str
    """With what."""
    why: str
    """Why not."""
    fix: str
    """What helps."""


class Diagnosis(Struct, frozen=True):
    """What walls there are on this machine. Nothing of it is remembered."""

    boot: str
    tier: Tier
    """Which one a run gets that names none."""
    tiers: tuple[TierFound, ...]
    """All of them, the strongest first."""
    mechanism: Mechanism
    trials: tuple[Trial, ...]
    missing: tuple[Missing, ...]


def judge(told: Mapping[str, tuple[str, str]], machine: Machine) -> tuple[Trial, ...]:
    """Return the verdict on each wall; *told* is how each trial ended without it and behind it."""
    return tuple(_judge_one(name, *told[name], machine) for name in _WALLS)


def _judge_one(name: str, without: str, behind: str, machine: Machine) -> Trial:
    axis, tries, fix = _WALLS[name]
    if behind.startswith("no wall"):
        instead = _instead(name, machine)
        return Trial(name, axis, tries, "not here", _reason(behind) + instead, fix)
    if without != DONE:
        return Trial(name, axis, tries, "not here", f"cannot be tried: {_reason(without)}", "")
    if behind == DONE:
        return Trial(name, axis, tries, "not held", "it could be done behind the wall", fix)
    return Trial(name, axis, tries, "held", _reason(behind), "")


def _instead(name: str, machine: Machine) -> str:
    if name not in ("exceed-memory", "exceed-processes"):
        return ""
    why = f": {machine.cgroups.why}" if machine.cgroups.why else ""
    return f"{why}; instead, the tree is looked at up to four times a second"


def _reason(told: str) -> str:
    return told.partition(": ")[2]
