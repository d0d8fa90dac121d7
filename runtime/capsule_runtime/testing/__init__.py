"""What tests of a program that embeds the runtime may use. Public, like the package itself.

`in_memory` is a state directory for one test, `FakeClock` a clock that stands still, `FakeNetwork` a
network of the test's own, and `recorded_capsule` an agent that plays what was recorded or written
down: events, silence, an exit.
"""

from __future__ import annotations

from capsule_runtime.testing.clock import FakeClock
from capsule_runtime.testing.network import FakeNetwork
from capsule_runtime.testing.recorded import Silence, Step, UntilInterrupted, recorded_capsule
from capsule_runtime.testing.states import in_memory

__all__ = [
    "FakeClock",
    "FakeNetwork",
    "Silence",
    "Step",
    "UntilInterrupted",
    "in_memory",
    "recorded_capsule",
]
