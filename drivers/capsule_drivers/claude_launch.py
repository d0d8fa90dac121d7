"""How Claude Code is started, and what is written to it: words and answers, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, assert_never

import msgspec
from msgspec import Meta, Struct

from capsule_runtime import DataPart, LaunchPlan, LaunchRequest, Message, Send, TextPart

_PROMPT_FILE = ".claude/capsule-system-prompt.md"
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
_STREAMS = (
    *("-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--include-partial-messages", "--replay-user-messages"),
)

_json = msgspec.json.Encoder()


class ClaudeCodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[harness.config]` of Claude Code."""

    permissions: Literal["bypass", "ask"] = "bypass"
    """Whether it asks before it uses a tool that its own rules do not allow."""
    retries: Annotated[int, Meta(ge=0)] = 2
    """How often it tries a call of the model again."""
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    max_budget_usd: Annotated[float, Meta(gt=0)] | None = None
    """By its own list prices."""


def plan(request: LaunchRequest) -> LaunchPlan:
    """Plan the start of Claude Code; all words go by stdin or file."""
    config = request.config
    assert isinstance(config, ClaudeCodeConfig)
    files = dict[str, bytes]()
    if request.system_prompt:
        files[_PROMPT_FILE] = request.system_prompt.encode()
    return LaunchPlan(
        argv=(*request.command, *_STREAMS, *_switches(request, config), *request.args),
        env={**_QUIET, "IS_SANDBOX": "1", "CLAUDE_CODE_MAX_RETRIES": str(config.retries)},
        files=files,
        # Without an id: it drops words whose id its session has seen, such as a task tried again.
        stdin=user_line(None, _content(request.message)),
        keep_stdin=True,
    )


def _switches(request: LaunchRequest, config: ClaudeCodeConfig) -> Iterator[str]:
    if config.permissions == "bypass":
        yield "--dangerously-skip-permissions"
    else:
        yield from ("--permission-prompt-tool", "stdio", "--permission-mode", "default")
    if request.model:
        yield from ("--model", request.model.removeprefix("anthropic:"))
    if request.system_prompt:
        yield from ("--append-system-prompt-file", f"{request.home}/{_PROMPT_FILE}")
    if request.session:
        yield from ("--resume", request.session)
    if config.max_turns is not None:
        yield from ("--max-turns", str(config.max_turns))
    if config.max_budget_usd is not None:
        yield from ("--max-budget-usd", str(config.max_budget_usd))


def _content(message: Message) -> list[dict[str, str]]:
    """Return the parts of the task as blocks of words."""
    blocks = list[dict[str, str]]()
    for part in message.parts:
        match part:
            case TextPart(text, name):
                words = text
            case DataPart(data, name):
                words = _json.encode(data).decode()
            case _:
                assert_never(part)
        blocks.append({"type": "text", "text": f"{name}:\n\n{words}" if name else words})
    return blocks


def user_line(id: str | None, content: list[dict[str, str]]) -> bytes:
    """Return words for the harness; it says *id* again when it takes them."""
    message = {"role": "user", "content": content}
    named = {} if id is None else {"uuid": id}
    return _json.encode({"type": "user", **named, "message": message}) + b"\n"


def control(response: Mapping[str, object]) -> dict[str, object]:
    """Return the answer *response* to something the harness asked."""
    return {"type": "control_response", "response": response}


def line_of(value: object) -> Send:
    """Return *value* as a line for the harness."""
    return Send(_json.encode(value) + b"\n")
