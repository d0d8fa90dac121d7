"""What the log knows of the model calls that passed the gateway, or did not."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from capsule_runtime.events import Usage

CallStatus = Literal["ok", "error", "cut", "no-usage", "unsent", "played"]
"""How a call went; `unsent` never reached its provider, `played` came from a recording."""


class CallStarted(Struct, frozen=True, tag_field="fact", tag="call-started", omit_defaults=True):
    """A call is about to be sent; so much is held for it. On record before it is sent.

    *model* is the one that is asked for; *call* names this call within the run.
    """

    seq: int
    at: str
    run: str
    call: str
    provider: str
    model: str
    api: str
    microusd: int = 0
    tokens: int = 0
    cap: int | None = None
    """The output cap that the gateway put in, in tokens; None if it put in none."""
    counted: int | None = None
    """How long the provider's counter said the input is, if it was asked."""


class CallEnded(Struct, frozen=True, tag_field="fact", tag="call-ended", omit_defaults=True):
    """A call is over, and charged with so much.

    *is_estimate*: nobody told what it cost, and what was held for it was charged. *is_unsettled*:
    it was cut off, and what was held for it counts as a figure of its own.
    """

    seq: int
    at: str
    run: str
    call: str
    status: CallStatus
    http_status: int | None = None
    usage: Usage | None = None
    model: str | None = None
    """The one that answered, in the provider's words."""
    microusd: int = 0
    tokens: int = 0
    is_estimate: bool = False
    is_unsettled: bool = False
    ms: int = 0
    first_ms: int | None = None
    """Until the answer began."""


class CallRefused(Struct, frozen=True, tag_field="fact", tag="call-refused", omit_defaults=True):
    """A call was not sent, because of *cause*; the harness was told *message*."""

    seq: int
    at: str
    run: str
    provider: str
    cause: str
    message: str
    model: str = ""


CallFact = CallStarted | CallEnded | CallRefused
"""What is known of calls."""
