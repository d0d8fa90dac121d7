"""The trajectory of mini-swe-agent: everything that it did, written after each step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from capsule_drivers.json_text import decoded, is_deep, passed_on, unread
from capsule_drivers.mini_pieces import pieces_of
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
    exit_status: object = None
    submission: object = None


class BilledResponse(Struct, frozen=True):
    id: str = ""
    usage: Spent | None = None


class BilledExtra(Struct, frozen=True):
    response: BilledResponse | None = None
    cost: float | None = None


class Billed(Struct, frozen=True):
    """What a message used, whatever else is odd about it."""

    extra: BilledExtra = BilledExtra()


_read_info = msgspec.json.Decoder(Info).decode
_read_message = msgspec.json.Decoder(Message).decode
_read_billed = msgspec.json.Decoder(Billed).decode
_ANSWER = b'"response"'
"""What stands in a message that a model call was paid for."""


class _Told:
    """What the messages told so far."""

    def __init__(self, model: str) -> None:
        self.events: list[Event] = []
        self.last: Message = Message()
        self.words = ""
        """The last that the model said."""
        self._model = model
        self._open: dict[str, str] = {}
        self._answers: set[str] = set()

    def hear(self, piece: bytes) -> None:
        """Read a message."""
        try:
            self.last = message = decoded(piece, _read_message)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            self.events += [unread(piece, exc), *self._billed(piece)]
            return
        if message.role == "tool":
            self._gave(message)
        if message.role == "assistant" and isinstance(message.content, str):
            self.words = message.content or self.words
        if message.extra.response is not None:
            self._answered(message, message.extra.response)

    def lose(self, rest: bytes) -> None:
        """Note that the file broke off before *rest*, and what followed it: unknown is not free."""
        self.events += [unread(rest, ValueError("the trajectory broke off")), Usage(self._model)]

    def close(self, content: str) -> Sequence[Event]:
        """Return all that was told, and the results of calls that gave none."""
        closed = [ToolResult(id, name, content, True) for id, name in self._open.items()]
        return [*self.events, *closed]

    def _billed(self, piece: bytes) -> Sequence[Usage]:
        if _ANSWER not in piece:
            return ()
        try:
            extra = decoded(piece, _read_billed).extra
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return [Usage(self._model, call_id=self._name(""))]
        if extra.response is None:
            return ()
        spent, answer = extra.response.usage or Spent(), self._name(extra.response.id)
        return [_usage(spent, self._model, answer, extra.cost)]

    def _gave(self, message: Message) -> None:
        extra, id = message.extra, message.tool_call_id
        code = extra.returncode
        content = extra.raw_output if extra.raw_output is not None else message.content
        failed = None if code is None else code != 0
        self._open.pop(id, None)
        self.events.append(ToolResult(id, "bash", passed_on(content), failed, code))

    def _answered(self, message: Message, told: Response | str) -> None:
        response = told if isinstance(told, Response) else Response()
        answer = self._name(response.id)
        # An answer that called no tool is kept only beside the complaint about it.
        replies = (choice.message for choice in response.choices if choice.message is not None)
        if text := "".join(reply.content or "" for reply in replies):
            self.events.append(Text(text, answer))
        for called in message.tool_calls or ():
            id, function = called.id, called.function
            self._open[id] = function.name
            self.events.append(ToolCall(id, function.name, _arguments(function), answer))
        spent = response.usage or Spent()
        self.events.append(_usage(spent, self._model, answer, message.extra.cost))

    def _name(self, id: str) -> str:
        """Return what names an answer. Each is in the file once, but servers repeat ids."""
        number = len(self._answers)
        name = id if id and id not in self._answers else f"call-{number}"
        self._answers.add(name)
        return name


def events_of(written: bytes, model: str, left: TurnFailed) -> Sequence[Event]:
    """Return what was done, and how it ended: as *left* says if the trajectory does not.

    What cannot be read is a note, and costs nothing else.
    """
    pieces, told = pieces_of(written), _Told(model)
    for piece in pieces.messages:
        told.hear(piece)
    if pieces.lost is not None:
        told.lose(pieces.lost)
    end = _end(pieces.info, told, left)
    return [*told.close("not told" if isinstance(end, TurnEnd) else "interrupted"), end]


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


def _end(info: bytes, told: _Told, left: TurnFailed) -> TurnEnd | TurnFailed:
    try:
        ending = decoded(info, _read_info)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        told.events.append(unread(info, exc))
        return left
    status, submission = ending.exit_status, ending.submission
    if not isinstance(status, str) or not status:
        return left
    if status == "Submitted":
        return TurnEnd(submission if isinstance(submission, str) and submission else told.words)
    said = told.last.extra.exception_str
    why = _SAID.get(status) or f"{status}: {said}"
    return TurnFailed(_KINDS.get(status) or kind_of_error(said), why)
