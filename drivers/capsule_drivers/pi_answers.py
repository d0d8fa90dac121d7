"""The answers of the model, as pi tells them: each is told once, with what it used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from capsule_drivers.pi_lines import STOPPED_BY_PROVIDER, PiMessage, Stamp, decode_stamp
from capsule_drivers.pi_tools import ToolsInUse
from capsule_runtime import Event, Text, Thinking, Usage


class Answers:
    """Keep which answers were told: pi repeats whole messages, and some servers repeat ids."""

    def __init__(self, tools: ToolsInUse) -> None:
        self._tools = tools
        self.writes_for_an_hour = False
        """Whether pi asks the provider to keep what it caches for so long."""
        self._told: set[float | str] = set()
        self._names: set[str] = set()
        self._begun: Stamp | None = None
        """The answer that has begun and of which nobody said yet what it used."""

    def begin(self, answer: msgspec.Raw) -> None:
        """Take it that *answer* has begun, unless it is over and comes again.

        Raises:
            msgspec.DecodeError: it cannot be read.
        """
        if self._begun is None:
            stamp = decode_stamp(answer)
            self._begun = None if stamp.moment in self._told else stamp

    def broken_off(self, model: str) -> Sequence[Usage]:
        """Return what the answer used that has begun: nobody says."""
        begun, self._begun = self._begun, None
        return () if begun is None else [Usage(model, call_id=begun.name)]

    def count(self, message: PiMessage) -> Sequence[Usage]:
        """Return what an answer used that was not told: the line that told it is lost.

        Its words and calls would come too late.
        """
        if message.moment is None or message.moment in self._told:
            return ()
        return list(_usage_of(message, self._over(message), self.writes_for_an_hour))

    def tell(self, message: PiMessage) -> Sequence[Event]:
        """Return what *message* says and what it used, unless it comes again.

        Raises:
            msgspec.DecodeError: the answer cannot be read.
        """
        if message.moment in self._told:
            return ()
        blocks, name = message.blocks, self._over(message)
        said: list[Event] = []
        for block in blocks:
            if block.type == "text" and block.text:
                said.append(Text(block.text, name))
            elif block.type == "thinking" and block.thinking:
                said.append(Thinking(block.thinking, name))
            elif block.type == "toolCall":
                said.append(self._tools.called(block.id, block.name, block.arguments, name))
        return [*said, *_usage_of(message, name, self.writes_for_an_hour)]

    def _over(self, message: PiMessage) -> str | None:
        """Return the name of an answer that is over. Some servers repeat theirs."""
        name, moment = message.name, message.moment
        if name in self._names:
            name = message.own_name
        if name is not None:
            self._names.add(name)
        if moment is not None:
            self._told.add(moment)
        self._begun = None
        return name


def _usage_of(message: PiMessage, name: str | None, writes_for_an_hour: bool) -> Iterator[Usage]:
    """Yield what an answer used. What pi saw before one broke off is not the whole.

    Raises:
        msgspec.DecodeError: the answer cannot be read.
    """
    spent, is_whole = message.usage, message.stop_reason not in ("error", "aborted")
    is_whole = is_whole or message.error_message == STOPPED_BY_PROVIDER
    if spent is None or not (is_whole or spent.input or spent.cacheRead):
        # Nothing was counted: free if there was no answer, else nobody knows.
        if is_whole or message.blocks:
            yield Usage(message.model_name, call_id=name)
        return
    cost = spent.cost.total if spent.cost and is_whole else None
    yield Usage(
        message.model_name,
        spent.input,
        spent.output if is_whole else None,
        spent.cacheRead,
        spent.cacheWrite,
        # pi asks for an hour only when it was told so.
        None if writes_for_an_hour or spent.cacheWrite is None else 0,
        cost_usd=cost or None,  # a model without a price costs nothing only in its own books
        call_id=name,
    )
