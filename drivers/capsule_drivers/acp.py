"""Any agent that speaks the Agent Client Protocol on its stdin and stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from capsule_drivers.acp_dialogue import Dialogue, Plan
from capsule_drivers.acp_usage import usage_of_turn
from capsule_drivers.acp_wire import blocks_of, words_of
from capsule_drivers.exits import failure_of
from capsule_runtime import (
    Decision,
    Description,
    Event,
    Exit,
    HarnessError,
    LaunchPlan,
    LaunchRequest,
    Said,
    Send,
)

Permissions = Literal["ask", "bypass"]


class AcpConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of an ACP agent."""

    permissions: Permissions = "bypass"
    """`bypass`: the driver says yes to each question; `ask`: the run's policy answers it."""
    mode: str | None = None
    """The session mode that is set before the task is handed over."""


class AcpDriver:
    """Drive an agent that the manifest names by its command."""

    Config: ClassVar[type[Struct]] = AcpConfig

    def __init__(self) -> None:
        self._dialogue = Dialogue(usage_of_turn)

    def describe(self) -> Description:
        return Description(
            harness="acp",
            streams_text=True,
            usage="final",
            resumes=True,
            steers=True,
            asks_permission=True,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        if not request.command:
            raise HarnessError(
                "E-HAR-003",
                "the manifest names no command, and the acp driver has none of its own",
                'Write command = ["my-agent", "--acp"] under [harness].',
            )
        config = request.config
        assert isinstance(config, AcpConfig)
        self._dialogue = Dialogue(usage_of_turn, allows_all=config.permissions == "bypass")
        plan = Plan(
            request.workdir,
            blocks_of(words_of(request.message, request.system_prompt)),
            request.session,
            config.mode,
            request.model,
            sets_model=True,
        )
        return LaunchPlan(
            argv=(*request.command, *request.args),
            env={"NO_COLOR": "1"},
            stdin=self._dialogue.begin(plan),
            keep_stdin=True,
        )

    def receive(self, lines: bytes) -> Sequence[Said]:
        return self._dialogue.receive(lines)

    def interrupt(self) -> Send | None:
        return self._dialogue.interrupt()

    def steer(self, id: str, text: str) -> Send | None:
        return self._dialogue.steer(id, text)

    def answer(self, id: str, decision: Decision) -> Send | None:
        return self._dialogue.answer(id, decision)

    def ended(self, exit: Exit) -> Sequence[Event]:
        return [*self._dialogue.close(), failure_of(exit)]
