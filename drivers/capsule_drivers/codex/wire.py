"""The lines of Codex's app-server, as far as we heed them. All fields may be absent.

It is JSON-RPC without the member that says so; `codex app-server generate-json-schema` writes out
the whole protocol of a version.
"""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import Struct

from capsule_drivers.codex.calls import Counts, kind_of_status, kind_of_words
from capsule_drivers.codex.items import Item
from capsule_runtime import FailureKind

_KINDS = {
    "unauthorized": FailureKind.AUTH,
    "usageLimitExceeded": FailureKind.QUOTA,
    "sessionBudgetExceeded": FailureKind.QUOTA,
    "rateLimitExceeded": FailureKind.RATE_LIMIT,
    "contextWindowExceeded": FailureKind.CONTEXT_LENGTH,
    "cyberPolicy": FailureKind.DECLINED,
    "bioPolicy": FailureKind.DECLINED,
    "misalignmentPolicyViolation": FailureKind.DECLINED,
    "inferenceHookDenied": FailureKind.DECLINED,
    "tooManyDenials": FailureKind.PERMISSION,
    "sandboxError": FailureKind.HARNESS_ERROR,
    "threadRollbackFailed": FailureKind.HARNESS_ERROR,
}


class Failure(Struct, frozen=True, gc=False):
    """Why a turn, or one try of a model call, failed."""

    message: str = ""
    codexErrorInfo: object = None
    additionalDetails: str | None = None

    @property
    def kind(self) -> FailureKind:
        """Return the kind of failure, by what tells most: a word, the message, a status."""
        info = self.codexErrorInfo
        if isinstance(info, str) and info in _KINDS:
            return _KINDS[info]
        kind = kind_of_words(self.message)
        return kind_of_status(_status_in(info)) if kind is FailureKind.OTHER else kind


def _status_in(info: object) -> int | None:
    """Return the HTTP status in an error's info, such as {"x": {"httpStatusCode": 401}}."""
    if not isinstance(info, dict):
        return None
    for told in cast("dict[str, object]", info).values():
        if isinstance(told, dict):
            status = cast("dict[str, object]", told).get("httpStatusCode")
            return status if isinstance(status, int) else None
    return None


def _text_of(item: object) -> str:
    if not isinstance(item, dict):
        return ""
    told = cast("dict[str, object]", item)
    text = told.get("text") if told.get("type") == "agentMessage" else ""
    return text if isinstance(text, str) else ""


class TurnState(Struct, frozen=True, gc=False):
    """A turn: what we ask for is one."""

    id: str = ""
    status: str = ""
    error: Failure | None = None
    items: object = None
    """The last words may be among them; what else is must not cost the line."""

    @property
    def words(self) -> str:
        """Return what the agent said last, as far as this tells."""
        items = self.items
        if not isinstance(items, list):
            return ""
        texts = [_text_of(item) for item in cast("list[object]", items)]
        return next((text for text in reversed(texts) if text), "")


class Thread(Struct, frozen=True, gc=False):
    """A conversation, which outlives the process."""

    id: str = ""
    model: str | None = None


class TokenUsage(Struct, frozen=True, gc=False):
    """What a thread used in all, and by its last model call."""

    total: Counts = Counts()
    last: Counts = Counts()


class Params(Struct, frozen=True, gc=False):
    """What any notification that we heed says."""

    threadId: str = ""
    turnId: str = ""
    delta: str = ""
    itemId: str = ""
    item: Item = Item()
    turn: TurnState = TurnState()
    thread: Thread = Thread()
    tokenUsage: TokenUsage = TokenUsage()
    error: Failure = Failure()
    willRetry: bool = False
    message: str = ""
    summary: str = ""
    summaryIndex: int = 0
    toModel: str = ""


class Notification(Struct, frozen=True, gc=False):
    """A line that waits for no answer."""

    params: Params


class Asked(Struct, frozen=True, gc=False):
    """What the app-server wants to be allowed."""

    itemId: str = ""
    command: str | None = None
    cwd: str | None = None
    reason: str | None = None
    grantRoot: str | None = None
    permissions: object = None
    availableDecisions: tuple[object, ...] | None = None


class Request(Struct, frozen=True, gc=False):
    """A line of the app-server's that waits for an answer of ours."""

    id: int | str
    method: str
    params: Asked = Asked()


class Result(Struct, frozen=True, gc=False):
    """What any answer that we heed says."""

    thread: Thread | None = None
    turn: TurnState | None = None
    userAgent: str | None = None
    model: str | None = None


class Problem(Struct, frozen=True, gc=False):
    """Why a request of ours was refused."""

    message: str = ""


class Response(Struct, frozen=True, gc=False):
    """The answer to a request of ours."""

    id: int | str | None = None
    result: Result = Result()
    error: Problem | None = None


class Head(Struct, frozen=True, gc=False):
    """What tells a request from a notification that we do not heed."""

    method: str = ""
    id: int | str | None = None


notifications: msgspec.json.Decoder[Notification] = msgspec.json.Decoder(Notification)
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
responses: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
heads: msgspec.json.Decoder[Head] = msgspec.json.Decoder(Head)
lines = msgspec.json.Encoder()


def request_of(line: bytes) -> Request | None:
    """Return the request on *line*; None if it asks in a way that we do not know."""
    try:
        return _requests.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
