"""What this machine can do about system calls is found by trying, and said with the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from msgspec import json

from capsule_runtime.core import bpf
from capsule_runtime.core.filtering import Filtering
from capsule_runtime.core.seccomp import ALLOW, KILL
from capsule_runtime.host.filtering import find_filtering
from support.filtered import argv_behind_program

SECCOMP = {"x86_64": 317, "aarch64": 277}
WITH_LISTENER = 1 << 3
ASK = """
import msgspec, sys
from capsule_runtime.host.filtering import find_filtering
sys.stdout.buffer.write(msgspec.json.encode(find_filtering()))
"""

pytestmark = pytest.mark.skipif(
    bool(find_filtering().filters), reason=find_filtering().filters or "there are filters"
)


def kernel_without(bits: int, error: int) -> bytes:
    """Return a filter that refuses to put up filters with one of the flags *bits*; 0: all."""
    judged: list[bpf.Step] = [bpf.Return(0x00050000 | error)]
    if bits:
        judged = [
            bpf.Load(bpf.argument(1)),
            bpf.Mask(bits),
            bpf.Jump("equal", 0, no="refused"),
            bpf.Return(ALLOW),
            bpf.Mark("refused"),
            *judged,
        ]
    steps: list[bpf.Step] = [
        bpf.Load(bpf.NUMBER),
        bpf.Jump("equal", SECCOMP[os.uname().machine], no="other"),
        *judged,
        bpf.Mark("other"),
        bpf.Return(ALLOW),
    ]
    return bpf.assemble(steps)


def found_behind(program: bytes) -> Filtering:
    command = argv_behind_program(program, [sys.executable, "-c", ASK])
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return json.decode(done.stdout, type=Filtering)


def test_here_all_of_it_works() -> None:
    found = find_filtering()

    assert (found.filters, found.notices, found.mediation) == ("", "", "")


def test_a_kernel_that_takes_no_filter() -> None:
    found = found_behind(kernel_without(0, errno.EPERM))

    assert "not permitted" in found.filters
    assert "not permitted" in found.notices
    assert "not permitted" in found.mediation


def test_a_kernel_where_somebody_else_is_told_already() -> None:
    """As it is for a run inside a run: a process has one broker."""
    found = found_behind(kernel_without(WITH_LISTENER, errno.EBUSY))

    assert found.filters == ""
    assert "busy" in found.notices
    assert "busy" in found.mediation


def test_a_kernel_that_reaches_no_file_beneath_a_folder() -> None:
    """As it is behind old filters of others, which do not know the call that does it."""
    openat2: list[bpf.Step] = [
        bpf.Load(bpf.NUMBER),
        bpf.Jump("equal", 437, no="other"),
        bpf.Return(0x00050000 | errno.EPERM),
        bpf.Mark("other"),
        bpf.Return(ALLOW),
    ]

    found = found_behind(bpf.assemble(openat2))

    assert (found.filters, found.notices) == ("", "")
    assert "not permitted" in found.mediation


def test_a_kernel_that_ends_whoever_asks() -> None:
    steps: list[bpf.Step] = [
        bpf.Load(bpf.NUMBER),
        bpf.Jump("equal", SECCOMP[os.uname().machine], no="other"),
        bpf.Return(KILL),
        bpf.Mark("other"),
        bpf.Return(ALLOW),
    ]

    found = found_behind(bpf.assemble(steps))

    assert "cannot be tried" in found.filters
    assert found.mediation == found.filters
