"""What the escape tests share. Each thing is tried behind the wall, and without it as well."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.namespaces import find_namespaces
from support.cell import Cell, open_cell


@pytest.fixture
async def cell() -> AsyncGenerator[Cell]:
    async with open_cell() as cell:
        yield cell


@pytest.fixture
def landlock() -> int:
    """Return the ABI of Landlock; without one there is nothing to test."""
    machine = find_machine()
    if not machine.landlock_abi:
        pytest.skip(machine.landlock_why)
    return machine.landlock_abi


@pytest.fixture
def scoped(landlock: int) -> None:
    if landlock < 6:
        pytest.skip(f"Landlock ABI {landlock}: signals are scoped from 6 on")


@pytest.fixture
def cgroups() -> str:
    """Return the kind of cgroups there is; without one there is nothing to test."""
    found = find_machine().cgroups
    if not (found.memory and found.processes):
        pytest.skip(f"no cgroups: {found.why}")
    return found.kind


@pytest.fixture
def namespaces() -> str:
    """Return who can make a root of its own for a run; without one there is nothing to test."""
    found = find_namespaces()
    if not found.variant:
        pytest.skip(found.why)
    return found.variant
