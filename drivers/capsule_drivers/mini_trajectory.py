"""The trajectory of mini-swe-agent: everything that it did, written after each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from capsule_drivers.json_text import is_deep, passed_on
from capsule_drivers.reading import kind_of_error
from capsule_runtime import (
    Event,
    FailureKind,
    Text,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

Whole = int | None

_KINDS = {
    "LimitsExceeded": FailureKind.MAX_TURNS,
    "AuthenticationError": FailureKind.AUTH,
    "PermissionDeniedError": FailureKind.AUTH,
    "RateLimitError": FailureKind.RATE_LIMIT,
    "ContextWindowExceededError": FailureKind.CONTEXT_LENGTH,
    "ContentPolicyViolationError": FailureKind.DECLINED,
}
"""What a name of an ending means; of others, the message says."""
_SAID = {
    "LimitsExceeded": "it took as many steps as it may",
    "RepeatedFormatError": "the model answered without calling a tool, time after time",
    "EOFError": "it was interrupted",
    "KeyboardInterrupt": "it was interrupted",
}


class Cached(Struct, frozen=True, gc=False):
    cached_tokens: Whole = None


class Reasoned(Struct, frozen=True, gc=False):
    reasoning_tokens: Whole = None


class Spent(Struct, frozen=True, gc=False):
    """What a call used, as litellm tells: cached input is inside the prompt."""

    prompt_tokens: Whole = None
    completion_tokens: Whole = None
    prompt_tokens_details: Cached | None = None
    completion_tokens_details: Reasoned | None = None
    cache_creation_input_tokens: Whole = None
    cache_read_input_tokens: Whole = None


class Reply(Struct, frozen=True):
    content: str | None = None


class Choice(Struct, frozen=True):
    message: Reply | None = None


class Response(Struct, frozen=True):
    """An answer of the model."""

    id: str = ""
    usage: Spent | None = None
    choices: list[Choice] = []


class Function(Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class Called(Struct, frozen=True):
    id: str = ""
    function: Function = Function()


class Extra(Struct, frozen=True):
    response: Response | str | None = None
    cost: float | None = None
    returncode: Whole = None
    raw_output: str | None = None
    exception_str: str = ""


class Message(Struct, frozen=True):
    role: str = ""
    content: object = None
    tool_calls: list[Called] | None = None
    tool_call_id: str = ""
    extra: Extra = Extra()


class Info(Struct, frozen=True):
    exit_status: str | None = None
    submission: str | None = None


class Trajectory(Struct, frozen=True):
    """The whole file, as far as it is told."""

    info: Info = Info()
    messages: list[Message] = []


read_trajectory = msgspec.json.Decoder(Trajectory).decode


def events_of(trajectory: Trajectory, model: str, left: TurnFailed) -> Sequence[Event]:
    """Return what was done, and how it ended: as *left* says if the trajectory does not."""
    events: list[Event] = []
    open_calls: dict[str, str] = {}
    for number, message in enumerate(trajectory.messages):
        for event in _events(message, f"call-{number}", model):
            if isinstance(event, ToolCall):
                open_calls[event.id] = event.name
            elif isinstance(event, ToolResult):
                open_calls.pop(event.id, None)
            events.append(event)
    end = _end(trajectory, left)
    content = "not told" if isinstance(end, TurnEnd) else "interrupted"
    closed = [ToolResult(id, name, content, True) for id, name in open_calls.items()]
    return [*events, *closed, end]


def _events(message: Message, call: str, model: str) -> Iterator[Event]:
    extra = message.extra
    if message.role == "tool":
        code = extra.returncode
        content = extra.raw_output if extra.raw_output is not None else message.content
        failed = None if code is None else code != 0
        yield ToolResult(message.tool_call_id, "bash", passed_on(content), failed, code)
    if extra.response is None:
        return
    response = extra.response if isinstance(extra.response, Response) else Response()
    answer = response.id or call
    # An answer that called no tool is kept only beside the complaint about it.
    replies = (choice.message for choice in response.choices if choice.message is not None)
    if text := "".join(reply.content or "" for reply in replies):
        yield Text(text, answer)
    for called in message.tool_calls or ():
        yield ToolCall(called.id, called.function.name, _arguments(called.function), answer)
    yield _usage(response.usage or Spent(), model, answer, extra.cost)


def _arguments(function: Function) -> object:
    try:
        value: object = msgspec.json.decode(function.arguments)
    except (msgspec.DecodeError, RecursionError):
        return function.arguments
    return function.arguments if is_deep(value) else value


def _usage(spent: Spent, model: str, call: str, cost: float | None) -> Usage:
    details = spent.prompt_tokens_details
    read = spent.cache_read_input_tokens or (details.cached_tokens if details else None)
    written, prompt = spent.cache_creation_input_tokens, spent.prompt_tokens
    beside = None if prompt is None else max(0, prompt - (read or 0) - (written or 0))
    reasoned = spent.completion_tokens_details
    return Usage(
        model,
        beside,
        spent.completion_tokens,
        read,
        written,
        reasoning_tokens=reasoned.reasoning_tokens if reasoned else None,
        cost_usd=cost or None,  # a model without a price costs nothing only in its own books
        call_id=call,
    )


def _end(trajectory: Trajectory, left: TurnFailed) -> TurnEnd | TurnFailed:
    status = trajectory.info.exit_status
    if not status:
        return left
    if status == "Submitted":
        return TurnEnd(trajectory.info.submission or _last_words(trajectory))
    told = trajectory.messages[-1].extra.exception_str if trajectory.messages else ""
    why = _SAID.get(status) or f"{status}: {told}"
    return TurnFailed(_KINDS.get(status) or kind_of_error(told), why)


def _last_words(trajectory: Trajectory) -> str:
    for message in reversed(trajectory.messages):
        if message.role == "assistant" and isinstance(message.content, str) and message.content:
            return message.content
    return ""
