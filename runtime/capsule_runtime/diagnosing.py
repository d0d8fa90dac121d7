"""Find out what holds on this machine by trying it, each wall in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from capsule_runtime.core.containment import Mechanism, Missing
from capsule_runtime.core.diagnosis import Diagnosis, TierFound, judge
from capsule_runtime.core.grants import Tier
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.sandbox_plan import missing_walls, no_landlock
from capsule_runtime.core.scoped_walls import SCOPED
from capsule_runtime.core.sealed_walls import SEALED
from capsule_runtime.core.wall_limits import ResourceLimits, plan_limits
from capsule_runtime.errors import HostError
from capsule_runtime.host.leftovers import boot_id, new_cage_name
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import Scopes, find_scopes
from capsule_runtime.host.shifting import why_not_shifted
from capsule_runtime.host.state import default_state

_SECONDS = 60
_TRIALS = str(Path(__file__).parent / "host" / "trials.py")
_SMALL = ResourceLimits(memory=64 * 1024**2, processes=8, files=64, disk=2**30, wall=60)


def examine(machine: Machine | None = None) -> Diagnosis:
    """Try every wall and return what came of it; *machine* is what there is to build walls of.

    Raises:
        HostError: the trials cannot be made.
    """
    machine, found = machine or find_machine(), find_namespaces()
    told, works = _try_all(machine), _how_it_works()
    tiers = (_sealed(found, works), _scoped(find_scopes(), works), _ADVISORY)
    tier: Tier = next(one.tier for one in tiers if one.is_had)
    return Diagnosis(
        boot=boot_id(),
        tier=tier,
        tiers=tiers,
        mechanism=Mechanism(
            machine.landlock_abi,
            machine.landlock_errata,
            machine.cgroups.kind,
            found.bwrap,
            found.version,
            found.digest,
            found.variant,
        ),
        trials=judge(told, machine),
        missing=_missing(machine, tier),
    )


_ADVISORY = TierFound("advisory", True, "limits and a burier: no boundary", "", "")


def _how_it_works() -> str:
    """Say how a run of root's gets at the work directory; "" where root starts none."""
    if os.geteuid() != 0:
        return ""
    if why := why_not_shifted(str(default_state())):
        return f"; a work directory is copied, since root cannot show it to a run's user: {why}"
    return "; a work directory is shown to a run's user where its file system can, else copied"


def _sealed(found: Namespaces, works: str) -> TierFound:
    how = f"{found.bwrap} {found.version}, {found.variant}{works}" if found.variant else ""
    if found.passed_over:
        how += f" ({found.passed_over})"
    return TierFound(SEALED, bool(found.variant), how, found.why, found.fix)


def _scoped(found: Scopes, works: str) -> TierFound:
    how = "" if found.why else f"Landlock, filters of system calls and a broker{works}"
    return TierFound(SCOPED, not found.why, how, found.why, found.fix)


def _missing(machine: Machine, tier: Tier) -> tuple[Missing, ...]:
    limits = plan_limits(_SMALL, machine).missing
    if tier == "advisory":
        return (*missing_walls(machine), *limits)
    return (*(() if machine.landlock_abi else (no_landlock(machine),)), *limits)


def _try_all(machine: Machine) -> dict[str, tuple[str, str]]:
    groups = json.dumps(_cages(machine))
    with tempfile.TemporaryDirectory(prefix="capsule-doctor-") as folder:
        command = [sys.executable, "-I", "-S", _TRIALS, folder, groups]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_SECONDS, check=True, cwd=Path("/")
            )
        except (OSError, subprocess.SubprocessError) as exc:
            said = getattr(exc, "stderr", None) or b""
            raise HostError(
                "E-HOST-032", f"the walls cannot be tried: {exc}: {said.decode()[-500:]}"
            ) from exc
    return msgspec.json.decode(done.stdout, type=dict[str, tuple[str, str]])


def _cages(machine: Machine) -> dict[str, object]:
    """Return small cgroups for the trials that need one."""
    cgroups = machine.cgroups
    wanted = {"exceed-memory": cgroups.memory, "exceed-processes": cgroups.processes}
    groups = plan_limits(_SMALL, machine).groups
    return {
        name: (new_cage_name(), [one for one in groups if one[0] == place])
        for name, place in wanted.items()
        if place
    }
