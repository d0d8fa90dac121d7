"""What becomes of a run's attempts to reach something: a closed set of reasons, each for one end."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from capsule_runtime.core.destinations import Destination

Door = Literal["proxy", "upstream", "gateway"]
"""The ways out of a run: to what was granted, and to its model."""


class Why(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    TOO_SLOW = "too-slow"
    VERSION = "version"
    METHOD = "method"
    LENGTH = "length"
    HOST = "host"
    PORT = "port"
    PLAIN = "plain"
    LITERAL = "literal"
    UNRESOLVED = "unresolved"
    ADDRESS = "address"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    NOT_TLS = "not-tls"
    SNI = "sni"
    SPENT = "spent"


STATUS: dict[Why, str] = {
    Why.MALFORMED: "400 Bad Request",
    Why.TOO_LARGE: "431 Request Header Fields Too Large",
    Why.TOO_SLOW: "408 Request Timeout",
    Why.VERSION: "505 HTTP Version Not Supported",
    Why.METHOD: "405 Method Not Allowed",
    Why.LENGTH: "411 Length Required",
    Why.HOST: "403 Forbidden",
    Why.PORT: "403 Forbidden",
    Why.PLAIN: "403 Forbidden",
    Why.LITERAL: "403 Forbidden",
    Why.UNRESOLVED: "502 Bad Gateway",
    Why.ADDRESS: "403 Forbidden",
    Why.UNREACHABLE: "502 Bad Gateway",
    Why.TIMEOUT: "504 Gateway Timeout",
    Why.NOT_TLS: "403 Forbidden",
    Why.SNI: "403 Forbidden",
    Why.SPENT: "403 Forbidden",
}


class Ending(StrEnum):
    """How a connection ended that was let through."""

    CLOSED = "closed"
    RESET = "reset"
    IDLE = "idle"
    TIME = "time"
    BYTES = "bytes"
    CANCELLED = "cancelled"
    """With the run."""


class Refusal(Struct, frozen=True):
    """No, and why. *message* names values of the request only where they are well-formed."""

    why: Why
    message: str


class Verdict(Struct, frozen=True):
    """What became of one attempt to reach something."""

    reason: Why | Ending
    target: Destination | None
    """None where the request named none."""
    address: str | None
    """The one that was dialled."""
    message: str = ""
    sent: int = 0
    """Bytes from the run to the place."""
    received: int = 0
    ms: int = 0

    @property
    def is_allowed(self) -> bool:
        """Tell whether it was let through."""
        return isinstance(self.reason, Ending)
