"""What the mock answers: a scenario named in the task, as steps that every dialect can say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["user", "assistant", "tool", "other"]
Stop = Literal["stop", "tool", "refusal", "length"]
Json = Mapping[str, Any]

RESULT: tuple[Role, str] = ("tool", "")
"""What a tool gave, in a conversation."""

SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell")
"""What harnesses call their shell tool."""


@dataclass(frozen=True, slots=True)
class Say:
    """Words of the answer, and how many seconds pass after them."""

    text: str
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Think:
    """A thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds of silence."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is dropped in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP status, and no answer."""

    status: int


Step = Say | Think | Call | Wait | Cut | Fail


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an answer, whatever its dialect."""

    model: str
    messages: Sequence[tuple[Role, str]]
    tools: Mapping[str, Json]
    """The JSON Schema of the arguments of each tool that is offered."""
    streams: bool
    body: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered."""

    scenario: str
    steps: tuple[Step, ...]
    stop: Stop = "stop"
    is_side: bool = False
    """Whether the request was none of the task's own: a title, a route, a summary."""


@dataclass(frozen=True, slots=True)
class Served:
    """The usage of the *number*-th answer to one key. No two are equal, nor is a sum of them."""

    number: int

    @property
    def prompt(self) -> int:
        return 1000 + self.number

    @property
    def cache_read(self) -> int:
        return 200 + self.number

    @property
    def cache_write(self) -> int:
        return 100 + self.number

    @property
    def output(self) -> int:
        return 50 + self.number

    @property
    def reasoning(self) -> int:
        return 20 + self.number


_THOUGHT = Think("The user wants something. Let me think.")
_NAMED = re.compile(r"MOCK:(\w+)")
_MARK = "STEER"
_STEPS_OF_A_LOOP = 5


def answer_to(asked: Asked) -> Answer:
    """Decide what is answered to *asked*: the scenario is the last `MOCK:name` of its user."""
    scenario, since = _scenario(asked.messages)
    if scenario.startswith("http"):
        return Answer(scenario, (Fail(int(scenario[4:])),))
    if not asked.tools:
        return Answer(scenario, (Say(_aside(asked)),), is_side=True)
    results = sum(role == "tool" for role, _ in asked.messages[since:])
    steered = [text for role, text in asked.messages if role in ("user", "tool") and _MARK in text]
    if scenario in ("loop", "steer"):
        if steered:
            return Answer(scenario, (Say("I saw: " + steered[-1][-80:]),))
        if results < _STEPS_OF_A_LOOP:
            step = (Say(f"Step {results + 1}."), _shell(asked, f"sleep 1; echo step {results + 1}"))
            return Answer(scenario, step, "tool")
    if results == 0 and (called := _first(asked, scenario)):
        return Answer(scenario, called, "tool")
    if scenario == "multi" and results == 2:
        return Answer(scenario, (_shell(asked, "echo three"),), "tool")
    return _last(scenario)


def _scenario(messages: Sequence[tuple[Role, str]]) -> tuple[str, int]:
    """Return the scenario's name, and the index of the message that names it."""
    for index in range(len(messages) - 1, -1, -1):
        role, text = messages[index]
        if role == "user" and (found := _NAMED.findall(text)):
            return found[-1], index
    return "plain", 0


def _first(asked: Asked, scenario: str) -> tuple[Step, ...]:
    """Return the first answer of a scenario that calls tools."""
    match scenario:
        case "tool" | "permission":
            return (
                _THOUGHT,
                Say("I will run a command."),
                _shell(asked, "echo hi; echo oops >&2; date > ran.txt"),
            )
        case "multi":
            return (
                Say("Two at once."),
                _shell(asked, "echo one"),
                _shell(asked, "echo two; exit 3"),
            )
        case "toolhang":
            return (Say("A long command."), _shell(asked, "timeout 300 tail -f /dev/null"))
        case "touch":
            return (_shell(asked, "date > touched.txt"),)
        case "submit":
            done = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"
            return (Say("Submitting."), _shell(asked, done))
        case "bigtool":
            return (_shell(asked, r"head -c 300000 /dev/zero | tr '\0' x"),)
        case _:
            return ()


def _last(scenario: str) -> Answer:
    """Return the answer of a scenario that calls no tool, or no more."""
    match scenario:
        case "slow" | "brief":
            words = tuple(Say(f"w{i} ", 0.05) for i in range(200 if scenario == "slow" else 60))
            return Answer(scenario, (_THOUGHT, *words))
        case "hang":
            return Answer(scenario, (Say("Partial answer "), Wait(600.0), Say("end")))
        case "cut":
            return Answer(scenario, (Say("Partial answer "), Cut()))
        case "bigtext":
            return Answer(scenario, (Say("".join(f"w{i} " for i in range(34_000))),))
        case "refusal":
            return Answer(scenario, (Say("I cannot help with that."),), "refusal")
        case "maxtok":
            return Answer(scenario, (_THOUGHT, Say("This answer is truncat")), "length")
        case _:
            words = (Say("Hello "), Say("from the mock. Turn done."))
            return Answer(scenario, (_THOUGHT, *words))


def _aside(asked: Asked) -> str:
    """Return what a request without tools gets: JSON where it asks for such."""
    text = str(asked.body)
    if "complexity_score" in text:
        return '{"complexity_reasoning": "simple", "complexity_score": 10}'
    if "model_choice" in text:
        return '{"reasoning": "simple", "model_choice": "flash"}'
    return '{"title": "Mock title"}' if "json_schema" in text else "Mock title"


def _shell(asked: Asked, command: str) -> Call:
    """Return a call of the shell tool on offer, with arguments that fit its schema."""
    name = next((shell for shell in SHELLS if shell in asked.tools), next(iter(asked.tools)))
    schema = asked.tools[name]
    known: Json = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    for key in ("command", "cmd"):
        if key in known:
            is_list = "array" in str(known[key].get("type")).lower()
            arguments[key] = ["bash", "-lc", command] if is_list else command
    for key in schema.get("required") or ():
        kind = str(known.get(key, {}).get("type", "string")).lower()
        stands_for: Json = {"boolean": False, "number": 1, "integer": 1, "array": []}
        arguments.setdefault(key, stands_for.get(kind, "mock"))
    return Call(name, arguments)
