"""What the warden is asked to start, and how a burier's child reads it."""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping

from msgspec import Struct

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.seal import Seal, Shift


class Spawn(Struct, frozen=True):
    """What to start: *run* names it to the warden, `argv[0]` is an absolute path."""

    run: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    walls: WallPlan | None = None

    def marshalled(self) -> bytes:
        """Return it as the child of a burier reads it: what to run, and the seal around that."""
        env = {os.fsencode(name): os.fsencode(value) for name, value in self.env.items()}
        argv = [os.fsencode(argument) for argument in self.argv]
        walls = None if self.walls is None else _walls(self.walls)
        seal = self.walls.seal if self.walls else None
        scope = self.walls.scope if self.walls else None
        ports = tuple(seal.doors.ports.values()) if seal else ()
        launch = (argv, env, os.fsencode(self.cwd), walls, ports)
        if seal is None:
            shift = _shift(scope.shift) if scope else None
            return marshal.dumps((launch, ((), (), shift) if shift else None, []))
        composer = [os.fsencode(word) for word in seal.argv]
        return marshal.dumps((launch, _sealing(seal), composer))


Rules = tuple[tuple[bytes, str], ...] | None
Walls = tuple[tuple[tuple[str, int], ...], Rules, int | None, tuple[bytes, bytes] | None]
Numbered = tuple[tuple[int, bytes], ...]
Paths = tuple[bytes, ...]
Sealing = tuple[Numbered, Numbered, tuple[int, Paths, Paths] | None]


def _walls(plan: WallPlan) -> Walls:
    rules = None
    if plan.rules is not None:
        rules = tuple((os.fsencode(path), kind) for path, kind in plan.rules)
    programs = plan.scope.program if plan.scope else None
    if plan.seal is not None and plan.seal.filters:
        programs = (b"", plan.seal.filters)
    return plan.limits.rlimits, rules, plan.user, programs


def _sealing(seal: Seal) -> Sealing:
    places = tuple((number, os.fsencode(path)) for number, path in seal.places)
    return places, seal.data, _shift(seal.shift)


def _shift(shift: Shift | None) -> tuple[int, Paths, Paths] | None:
    if shift is None:
        return None
    written, read = (tuple(map(os.fsencode, it)) for it in (shift.folders, shift.readable))
    return shift.user, written, read
