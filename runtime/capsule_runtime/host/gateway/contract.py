"""Who decides for the gateway: it carries bytes, and asks a policy about each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from capsule_runtime.core.relaying import Answer, Ending, Forward, Header, RequestHead


class Meter(Protocol):
    """What watches one forwarded call. `end` is called exactly once, whatever happens."""

    def head(self, status: int, headers: Sequence[Header]) -> None:
        """Take the head of the upstream's answer; called at most once, before any `chunk`.

        The names of *headers* are in lower case.
        """
        ...

    def chunk(self, data: bytes) -> bytes:
        """Take a piece of the answer, and return what the client is to get for it.

        When the answer is whole, an empty *data* asks for what was held back. Called from the task
        that carries the bytes, so it must be quick.
        """
        ...

    async def end(self, ending: Ending) -> None:
        """Settle. The client hears of the end of its answer only after this.

        It is shielded from cancellation and gets `Bounds.end_seconds`; what it raises ends the
        gateway.
        """
        ...


class Admitted(NamedTuple):
    """A call that is forwarded."""

    forward: Forward
    meter: Meter


class Policy(Protocol):
    """What decides on the calls of one run."""

    async def admit(self, head: RequestHead, body: bytes) -> Admitted | Answer:
        """Decide on a request that has arrived whole.

        It is cancelled if the client leaves: then nothing may stay reserved. From the moment it
        has returned, the meter will be ended.
        """
        ...
