"""Fixtures for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The same examples on every machine: a red build can be run again.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile("same")

# What the caller grants elsewhere must not change what a test sees.
for name in ("CAPSULE_CONFIG", "CAPSULE_GRANT", "CAPSULE_CONTAINMENT"):
    os.environ.pop(name, None)
os.environ["XDG_CONFIG_HOME"] = os.devnull


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each asynchronous test on both event loops."""
    backend: str = request.param
    return backend
