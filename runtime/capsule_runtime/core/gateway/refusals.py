"""What the gateway answers instead of a provider: in that API's own words, and not to be retried.

Clients retry 408, 409, 429 and 500 and above, by default, and what says `x-should-retry: true`;
none of these is used for what would be refused again. The one exception is a limit of calls a
minute, which is over soon: it is 429, with the seconds to wait.

Harnesses do more than their clients, as was seen of them: one takes 400 in Messages for a beta that
is not known, unless it is a `billing_error`, and tries five times more with ever fewer betas; 404 it
tries once more; of a `billing_error` with 400, and of 403, it tells the message and ends. Another
one connects anew five times on 413. What is about money is asked for once.
"""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api

Cause = Literal[
    "ceiling",
    "unbounded",
    "unpriced",
    "model-not-allowed",
    "malformed",
    "too-large",
    "rate-limited",
    "no-route",
    "wrong-method",
    "no-key",
    "not-recorded",
]


class Refused(Struct, frozen=True):
    """An answer: HTTP *status*, *headers* and *body*, which is JSON."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_STATUS: dict[Cause, int] = {
    "ceiling": 400,
    "unbounded": 400,
    "unpriced": 400,
    "model-not-allowed": 404,
    "malformed": 400,
    "too-large": 400,
    "rate-limited": 429,
    "no-route": 404,
    "wrong-method": 405,
    "no-key": 401,
    "not-recorded": 400,
}
_STATUS_OF_MESSAGES: dict[Cause, int] = {**_STATUS, "model-not-allowed": 403, "too-large": 413}
_MESSAGES_TYPE: dict[Cause, str] = {
    "ceiling": "billing_error",
    "unbounded": "billing_error",
    "unpriced": "billing_error",
    "model-not-allowed": "permission_error",
    "malformed": "invalid_request_error",
    "too-large": "request_too_large",
    "rate-limited": "rate_limit_error",
    "no-route": "not_found_error",
    "wrong-method": "invalid_request_error",
    "no-key": "authentication_error",
    "not-recorded": "billing_error",
}
_OPEN_CODE: dict[Cause, str | None] = {
    "ceiling": "billing_hard_limit_reached",
    "unbounded": "unsupported_parameter",
    "unpriced": "model_not_found",
    "model-not-allowed": "model_not_found",
    "malformed": None,
    "too-large": "request_too_large",
    "rate-limited": "rate_limit_exceeded",
    "no-route": None,
    "wrong-method": None,
    "no-key": "invalid_api_key",
    "not-recorded": None,
}
_GENERATE_STATUS: dict[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
}
_LONGEST = 1_000


def refused(api: Api, cause: Cause, message: str, retry_after: int | None = None) -> Refused:
    """Return the answer of *api* to a call that is refused. *retry_after* is in seconds."""
    status = (_STATUS_OF_MESSAGES if api is Api.MESSAGES else _STATUS)[cause]
    plain = message.encode("utf-8", "replace").decode()[:_LONGEST]
    headers = [("content-type", "application/json"), ("x-should-retry", "false")]
    if cause == "rate-limited":
        headers[1:] = [("retry-after", str(retry_after or 1))]
    return Refused(status, tuple(headers), msgspec.json.encode(_body(api, cause, status, plain)))


def _body(api: Api, cause: Cause, status: int, message: str) -> object:
    match api:
        case Api.MESSAGES:
            error = {"type": _MESSAGES_TYPE[cause], "message": message}
            return {"type": "error", "error": error}
        case Api.CHAT | Api.RESPONSES:
            kind = "requests" if cause == "rate-limited" else "invalid_request_error"
            code = _OPEN_CODE[cause]
            return {"error": {"message": message, "type": kind, "param": None, "code": code}}
        case Api.GENERATE:
            word = "FAILED_PRECONDITION" if cause == "ceiling" else _GENERATE_STATUS[status]
            return {"error": {"code": status, "message": message, "status": word}}
        case _:
            assert_never(api)
