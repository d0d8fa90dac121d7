"""A machine that runs classic BPF as the kernel does, to judge calls that nobody makes."""

from __future__ import annotations

import struct

from capsule_runtime.core.syscalls import ARCHITECTURES, MachineName

LONGEST = 4096
"""The kernel takes no longer program."""

_INSTRUCTION = struct.Struct("<HBBI")
_CALL = struct.Struct("<iIQ6Q")
_LOAD, _AND, _RETURN, _EQUAL, _ABOVE = 0x20, 0x54, 0x06, 0x15, 0x25


def run(program: bytes, call: bytes) -> int:
    """Return what *program* answers to *call*, a `struct seccomp_data`."""
    steps: list[tuple[int, int, int, int]] = list(_INSTRUCTION.iter_unpack(program))
    assert 0 < len(steps) <= LONGEST
    value = at = 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        match code:
            case _ if code == _LOAD:
                assert operand % 4 == 0
                (value,) = struct.unpack_from("<I", call, operand)
            case _ if code == _AND:
                value &= operand
            case _ if code == _EQUAL:
                at += yes if value == operand else no
            case _ if code == _ABOVE:
                at += yes if value > operand else no
            case _ if code == _RETURN:
                return operand
            case _:
                raise AssertionError(f"step {at - 1} is no instruction we know: {code:#x}")


def answer(
    program: bytes, machine: MachineName, number: int, *arguments: int, audit: int | None = None
) -> int:
    """Return what *program* answers to call *number* with *arguments*, each of 64 bits."""
    audit = ARCHITECTURES[machine].audit if audit is None else audit
    filled = [one & 0xFFFFFFFFFFFFFFFF for one in (*arguments, *(0,) * (6 - len(arguments)))]
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return run(program, _CALL.pack(signed, audit, 0, *filled))
