"""Drivers that no distribution has, installed for a test through the same door as any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, cast

from msgspec import Struct

from capsule_drivers.jsonl import JsonlConfig, JsonlDriver
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    LaunchPlan,
    LaunchRequest,
    Note,
    Remember,
    Said,
    Send,
    TextDelta,
)

Fault = Literal[
    "launch",
    "launch-file-outside",
    "collect-file-outside",
    "describe",
    "receive",
    "receive-nothing",
    "receive-nonsense",
    "receive-half-characters",
    "answer",
    "interrupt",
    "ended",
    "ended-nonsense",
    "ended-without-terminal",
    "remember-too-much",
]


class FaultyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the driver fails."""

    fault: Fault


class FaultyDriver(JsonlDriver):
    """The native driver, written by somebody who makes one mistake."""

    Config: ClassVar[type[Struct]] = FaultyConfig

    def __init__(self) -> None:
        super().__init__()
        self._fault: Fault | None = None

    def describe(self) -> Description:
        self._fail_in("describe")
        return super().describe()

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        assert isinstance(request.config, FaultyConfig)
        plan = super().launch(_with_native_config(request))
        self._fault = request.config.fault
        self._fail_in("launch")
        match self._fault:
            case "launch-file-outside":
                return replace(plan, files={"../outside": b"x"})
            case "collect-file-outside":
                return replace(plan, collect=("../outside",))
            case _:
                return plan

    def receive(self, lines: bytes) -> Sequence[Said]:
        self._fail_in("receive")
        match self._fault:
            case "receive-nothing":
                return cast("Sequence[Said]", None)
            case "receive-nonsense":
                return cast("Sequence[Said]", [Note("so far so good"), "not an event"])
            case "receive-half-characters":
                # What `json.loads` makes of a character that a harness cut in two.
                return [TextDelta("half \ud83d"), *super().receive(lines)]
            case "remember-too-much":
                return [Remember(b"x" * 100_000), *super().receive(lines)]
            case _:
                return super().receive(lines)

    def answer(self, id: str, decision: Decision) -> Send | None:
        self._fail_in("answer")
        return super().answer(id, decision)

    def interrupt(self) -> Send | None:
        self._fail_in("interrupt")
        return super().interrupt()

    def ended(self, exit: Exit) -> Sequence[Event]:
        self._fail_in("ended")
        match self._fault:
            case "ended-nonsense":
                return cast("Sequence[Event]", [42])
            case "ended-without-terminal":
                return [Note("that was that")]
            case _:
                return super().ended(exit)

    def _fail_in(self, verb: Fault) -> None:
        if self._fault == verb:
            raise LookupError(f"a mistake in {verb}")


class TailLosingDriver(JsonlDriver):
    """The native driver for harnesses that leave before a small pipe has drained."""

    def describe(self) -> Description:
        return replace(super().describe(), loses_tail=True)


class LateMeteringDriver(JsonlDriver):
    """The native driver for harnesses that tell what they used only at the end."""

    def describe(self) -> Description:
        return replace(super().describe(), usage="final")


class UnmeteredDriver(JsonlDriver):
    """The native driver for harnesses that never tell what they used."""

    def describe(self) -> Description:
        return replace(super().describe(), usage="none")


class DeafDriver(JsonlDriver):
    """The native driver for harnesses that take no words while they work."""

    def describe(self) -> Description:
        return replace(super().describe(), steers=False)

    def steer(self, id: str, text: str) -> Send | None:
        return None


class GreeterDriver(JsonlDriver):
    """The driver of a program that is installed on its own, and speaks the native protocol."""

    def describe(self) -> Description:
        return replace(
            super().describe(),
            harness="The Greeter",
            command=("greeter",),
            version_args=("--version",),
            tested_versions=("1.2.3",),
            install="apt-get install greeter",
        )


class BrokenDriver(JsonlDriver):
    """A driver that cannot say what it drives."""

    def describe(self) -> Description:
        raise LookupError("a mistake in describe")


class RememberingDriver(JsonlDriver):
    """The native driver; it remembers every line it got, and hands them to the next launch."""

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        plan = super().launch(request)
        memory = request.memory or b"nothing"
        return replace(plan, env={**plan.env, "MEMORY": memory.decode()})

    def receive(self, lines: bytes) -> Sequence[Said]:
        return [Remember(b"%d bytes" % len(lines)), *super().receive(lines)]


def install_drivers(folder: Path) -> str:
    """Make a distribution that registers these drivers, and return what must go on `sys.path`."""
    info = folder / "capsule_test_drivers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: capsule-test-drivers\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[capsule_runtime.drivers]\n"
        "faulty = support.drivers:FaultyDriver\n"
        "tail-losing = support.drivers:TailLosingDriver\n"
        "late-metering = support.drivers:LateMeteringDriver\n"
        "unmetered = support.drivers:UnmeteredDriver\n"
        "deaf = support.drivers:DeafDriver\n"
        "greeter = support.drivers:GreeterDriver\n"
        "broken = support.drivers:BrokenDriver\n"
        "remembering = support.drivers:RememberingDriver\n"
    )
    return str(folder)


def _with_native_config(request: LaunchRequest) -> LaunchRequest:
    return replace(request, config=JsonlConfig())
