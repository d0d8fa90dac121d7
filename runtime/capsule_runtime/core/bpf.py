"""A small assembler for the programs that the kernel runs over each system call (classic BPF).

Steps are written in the order they run; jumps name the mark they lead to and go forward only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Literal, assert_never

from msgspec import Struct

NUMBER, ARCHITECTURE = 0, 4
"""Where the kernel puts a call's number and the architecture it was made for."""

_FIRST_ARGUMENT, _ARGUMENT_BYTES = 16, 8
_INSTRUCTION = struct.Struct("<HBBI")
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_TESTS = {"equal": 0x15, "above": 0x25}
_FARTHEST = 255


class Load(Struct, frozen=True):
    """Look at the 32 bits at *offset* of what the kernel says of the call."""

    offset: int


class Mask(Struct, frozen=True):
    """Keep only *bits* of what is looked at."""

    bits: int


class Jump(Struct, frozen=True):
    """Go to the mark *yes* or *no*, as what is looked at compares with *value*; "": the next step."""

    test: Literal["equal", "above"]
    value: int
    yes: str = ""
    no: str = ""


class Mark(Struct, frozen=True):
    """The place that jumps call *name*."""

    name: str


class Return(Struct, frozen=True):
    """End with *action*, as the kernel writes it."""

    action: int


Step = Load | Mask | Jump | Mark | Return


def argument(index: int) -> int:
    """Return where the low 32 bits of argument *index* are, on a little-endian machine."""
    return _FIRST_ARGUMENT + index * _ARGUMENT_BYTES


def assemble(steps: Sequence[Step]) -> bytes:
    """Return *steps* as the kernel takes them.

    Raises:
        ValueError: a jump leads to no mark, backwards, or farther than a jump can.
    """
    places = _places(steps)
    return b"".join(_INSTRUCTION.pack(*one) for one in _instructions(steps, places))


def _places(steps: Sequence[Step]) -> dict[str, int]:
    """Return the number of the instruction that follows each mark."""
    places: dict[str, int] = {}
    count = 0
    for step in steps:
        if isinstance(step, Mark):
            if places.setdefault(step.name, count) != count:
                raise ValueError(f"two places are called {step.name!r}")
        else:
            count += 1
    return places


def _instructions(
    steps: Sequence[Step], places: dict[str, int]
) -> Iterator[tuple[int, int, int, int]]:
    following = 0
    for step in steps:
        following += not isinstance(step, Mark)
        match step:
            case Load(offset):
                yield _LOAD, 0, 0, offset
            case Mask(bits):
                yield _AND, 0, 0, bits
            case Jump(test, value, yes, no):
                over = [_distance(name, places, following) for name in (yes, no)]
                yield _TESTS[test], over[0], over[1], value
            case Return(action):
                yield _RETURN, 0, 0, action
            case Mark():
                pass
            case _:
                assert_never(step)


def _distance(name: str, places: dict[str, int], following: int) -> int:
    """Return how many instructions a jump to the mark *name* passes over."""
    if not name:
        return 0
    if name not in places:
        raise ValueError(f"no place is called {name!r}")
    distance = places[name] - following
    if not 0 <= distance <= _FARTHEST:
        raise ValueError(f"a jump cannot pass over {distance} instructions to {name!r}")
    return distance
