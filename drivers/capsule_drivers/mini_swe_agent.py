"""mini-swe-agent: a plain program. What it did is read from the trajectory that it leaves behind.

Its stdout is written for people: it is told as live lines, and nothing is decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

from capsule_drivers.exits import failure_of
from capsule_drivers.mini_trajectory import events_of
from capsule_runtime import (
    Activity,
    Decision,
    Description,
    Event,
    Exit,
    HarnessError,
    LaunchPlan,
    LaunchRequest,
    Said,
    Send,
    Usage,
)

TRAJECTORY = ".mini-swe-agent/trajectory.json"
_SETTINGS = ".mini-swe-agent/capsule.yaml"
_SIGINT = 2
_LINE_CHARACTERS = 500
_NEWS = {"Tool:": True, "Exit:": True, "System:": False, "User:": False}
"""Headings, and whether what stands below is news; of the others it is the prompt, once more."""
_STEP = "mini-swe-agent (step "
_LAST = "Saved trajectory to "
_NUMBER = re.compile("[0-9]{1,6}")
_STYLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NO_NEWS = "─`"
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")
_URLS = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
"""The variable that holds the base URL, by the model's prefix."""


class MiniSweAgentConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of mini-swe-agent."""

    step_limit: Annotated[int, Meta(ge=0)] = 0
    """How many answers of the model it may take; 0 is no limit."""
    retries: Annotated[int, Meta(ge=0)] = 2
    """How often it tries a call again, 4 s later at first."""
    model_kwargs: dict[str, object] = {}
    """Arguments for the model, as litellm takes them."""


class MiniSweAgentDriver:
    """Drive one run of `mini`, without anybody at the keyboard."""

    Config: ClassVar[type[Struct]] = MiniSweAgentConfig

    def __init__(self) -> None:
        self._model = "unknown:unknown"
        self._is_news = False
        self._steps = 0
        """How many answers of the model it said that it has."""

    def describe(self) -> Description:
        return Description(
            harness="mini-swe-agent",
            command=("mini",),
            tested_versions=("2.4.6",),
            install="pip install mini-swe-agent",
            keys=_KEYS,
            interrupt_signal=_SIGINT,
            usage="final",
            tells_at_end=True,
        )

    def launch(self, request: LaunchRequest) -> LaunchPlan:
        config, model = request.config, _model_of(request)
        assert isinstance(config, MiniSweAgentConfig)
        self._model = model.replace("/", ":", 1)
        files = (
            *("-c", "mini.yaml", "-c", f"{request.home}/{_SETTINGS}"),
            *("-o", f"{request.home}/{TRAJECTORY}"),
        )
        return LaunchPlan(
            argv=(*request.command, "-y", "--exit-immediately", *files, *request.args),
            env={
                "MSWEA_CONFIGURED": "true",
                "MSWEA_SILENT_STARTUP": "1",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(config.retries + 1),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "NO_COLOR": "1",
            },
            files={
                _SETTINGS: msgspec.json.encode(_settings(request, config, model)),
                # The last run's must not be taken for this one's.
                TRAJECTORY: b"",
            },
            collect=(TRAJECTORY,),
        )

    def receive(self, lines: bytes) -> Sequence[Said]:
        said: list[Said] = []
        for line in lines.split(b"\n"):
            text = _STYLE.sub("", line.decode("utf-8", "replace")).strip()
            if text in _NEWS:
                self._is_news = _NEWS[text]
                continue
            if text.startswith(_STEP):
                self._is_news = True
                number = text.removeprefix(_STEP).partition(",")[0]
                self._steps = max(self._steps, int(number) if _NUMBER.fullmatch(number) else 0)
            self._is_news = self._is_news and not text.startswith(_LAST)
            if self._is_news and text.strip(_NO_NEWS):
                said.append(Activity(text[:_LINE_CHARACTERS]))
        return said

    def interrupt(self) -> Send | None:
        return None  # the signal does it

    def steer(self, id: str, text: str) -> Send | None:
        return None

    def answer(self, id: str, decision: Decision) -> Send | None:
        return None

    def ended(self, exit: Exit) -> Sequence[Event]:
        left = failure_of(exit)
        written = exit.files.get(TRAJECTORY)
        *events, end = events_of(written, self._model, left) if written else [left]
        # It is killed in the middle of a step, of which the trajectory does not know yet.
        if self._steps > sum(isinstance(event, Usage) for event in events):
            events.append(Usage(self._model))
        return [*events, end]


def _model_of(request: LaunchRequest) -> str:
    """Return the model as litellm names it.

    Raises:
        HarnessError: E-HAR-010, nobody says which.
    """
    name = request.model or request.env.get("MSWEA_MODEL_NAME")
    if not name:
        raise HarnessError(
            "E-HAR-010",
            "no model is named, and mini-swe-agent has none of its own",
            'Write model = "openai/gpt-5" under [harness], or give --model.',
        )
    return name.replace(":", "/", 1) if "/" not in name else name


def _settings(request: LaunchRequest, config: MiniSweAgentConfig, model: str) -> dict[str, object]:
    """Return what is merged over its own `mini.yaml`. JSON is YAML as well."""
    url = request.env.get(_URLS.get(model.partition("/")[0], ""))
    agent: dict[str, object] = {
        "step_limit": config.step_limit,
        "cost_limit": 0,  # dollars are counted by the runtime
    }
    if request.system_prompt:
        # It is a template: what looks like one is to be left alone, the end of that too.
        words = request.system_prompt.replace("{%", "{%{% endraw %}{% raw %}")
        agent["system_template"] = "{% raw %}" + words + "{% endraw %}"
    arguments = {"max_retries": 0, **({"api_base": url} if url else {}), **config.model_kwargs}
    return {
        "run": {"task": request.message.text},
        "agent": agent,
        "model": {"model_name": model, "model_kwargs": arguments},
    }
