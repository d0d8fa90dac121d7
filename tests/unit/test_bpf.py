"""The assembler: what it makes is what the kernel would run, and what it cannot make is said."""

from __future__ import annotations

import struct

import pytest

from capsule_runtime.core.bpf import Jump, Load, Mark, Mask, Return, Step, argument, assemble
from support.bpf_machine import run

CALL = struct.pack("<iIQ6Q", 7, 0, 0, 0xAB_0000_0011, 0, 0, 0, 0, 0)


def test_a_jump_leads_to_its_mark() -> None:
    steps: list[Step] = [
        Load(0),
        Jump("equal", 7, yes="seven"),
        Return(1),
        Mark("seven"),
        Return(2),
    ]

    assert run(assemble(steps), CALL) == 2


@pytest.mark.parametrize(("limit", "ending"), [(6, 2), (7, 1), (8, 1)])
def test_above_is_above(limit: int, ending: int) -> None:
    steps: list[Step] = [
        Load(0),
        Jump("above", limit, yes="more"),
        Return(1),
        Mark("more"),
        Return(2),
    ]

    assert run(assemble(steps), CALL) == ending


def test_an_argument_is_its_low_half_and_a_mask_keeps_some_bits() -> None:
    steps: list[Step] = [Load(argument(0)), Mask(0x1), Jump("equal", 1, no="no"), Return(1)]

    assert run(assemble([*steps, Mark("no"), Return(2)]), CALL) == 1


def test_a_mark_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no place is called 'nowhere'"):
        assemble([Jump("equal", 1, yes="nowhere"), Return(0)])


def test_a_mark_that_is_there_twice_is_named() -> None:
    with pytest.raises(ValueError, match="two places are called 'here'"):
        assemble([Mark("here"), Return(0), Mark("here"), Return(1)])


def test_no_jump_leads_back() -> None:
    with pytest.raises(ValueError, match="cannot pass over -2"):
        assemble([Mark("back"), Load(0), Jump("equal", 1, yes="back"), Return(0)])


@pytest.mark.parametrize("between", [255, 256])
def test_a_jump_that_is_too_far_is_not_cut(between: int) -> None:
    steps: list[Step] = [
        Jump("equal", 0, yes="far"),
        *[Return(0)] * between,
        Mark("far"),
        Return(1),
    ]

    if between <= 255:
        assert run(assemble(steps), CALL) == 1
    else:
        with pytest.raises(ValueError, match="256 instructions"):
            assemble(steps)
