"""What the numbers of an ACP agent stand for, and how much of a turn they leave unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from msgspec import structs

from capsule_drivers.acp_wire import PromptUsage, Result
from capsule_runtime import Usage

_MOST_TOKENS = 2**40


@dataclass(slots=True)
class Told:
    """What a turn told so far, for whoever counts what it used."""

    model: str = "unknown:unknown"
    session: str = ""
    is_loaded: bool = False
    """Whether the session had turns before this conversation."""
    turn: int = 0
    rounds: int = 0
    """How many answers of the model there were of which no numbers were told."""
    calls: int = 0
    """How many reports there were."""
    last: PromptUsage | None = None
    """The numbers of the turn before."""
    cost: float | None = None
    """The agent's own, in dollars, over its whole session."""

    def call_id(self) -> str:
        """Return the name of the next report."""
        self.calls += 1
        return f"{self.session}/{self.turn}/{self.calls - 1}"

    def next_turn(self) -> None:
        """Begin another turn."""
        self.turn += 1
        self.rounds = self.calls = 0


def usage_of_turn(
    result: Result | None, told: Told, cost_usd: float | None = None
) -> Sequence[Usage]:
    """Return what the answer to a prompt leaves to be told: a report for each model answer.

    An agent may mean its last call or the whole turn, and does not say which. So its numbers stand
    for one answer, and those before it are unknown. None are looked at if each call was told.
    *cost_usd* is what the whole turn cost, by the agent's own account.
    """
    used = result.usage if result is not None else None
    if used is None or told.calls:
        return [Usage(told.model, call_id=told.call_id()) for _ in range(told.rounds)]
    is_again = used == told.last and not told.rounds  # two prompts that were answered together
    told.last = used
    if is_again:
        return ()
    before = [Usage(told.model, call_id=told.call_id()) for _ in range(told.rounds - 1)]
    last = counted(used, told.model, told.call_id())
    return [*before, last] if cost_usd is None else _with_dollars(before, last, cost_usd)


def _with_dollars(before: Sequence[Usage], last: Usage, cost_usd: float) -> Sequence[Usage]:
    """Return the reports of a turn that cost *cost_usd* in all: one of them bears it.

    A *last* call that the agent has not counted is not in there: what it cost, nobody told.
    """
    is_counted = last.input_tokens is not None or last.output_tokens is not None
    if is_counted or not before:
        return [
            *(structs.replace(it, cost_usd=0.0) for it in before),
            structs.replace(last, cost_usd=cost_usd),
        ]
    first, *others = before
    return [
        structs.replace(first, cost_usd=cost_usd),
        *(structs.replace(it, cost_usd=0.0) for it in others),
        last,
    ]


def counted(used: PromptUsage, model: str, call_id: str) -> Usage:
    """Return *used* as one report. An agent whose numbers are all zero has counted nothing."""
    fresh, written_out = known(used.input_tokens), known(used.output_tokens)
    if not fresh and not written_out:
        return Usage(model, call_id=call_id)
    read, written = known(used.cached_read_tokens), known(used.cached_write_tokens)
    thought = known(used.thought_tokens)
    beside = _beside(used, (read or 0, written or 0, thought or 0))
    if fresh is not None:
        inside = (0 if beside[0] else read or 0) + (0 if beside[1] else written or 0)
        fresh = max(fresh - inside, 0)
    if written_out is not None and beside[2]:
        written_out += thought or 0
    return Usage(
        model,
        input_tokens=fresh,
        output_tokens=written_out,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        call_id=call_id,
    )


def known(count: int | None) -> int | None:
    """Return *count* if it can be one."""
    return count if count is not None and 0 <= count <= _MOST_TOKENS else None


def _beside(used: PromptUsage, parts: tuple[int, int, int]) -> tuple[bool, ...]:
    """Return which of *parts* (cache read, cache written, thoughts) stand beside input and output.

    The agents differ, and their total tells: it has each token once. Without one that adds up, the
    cache is beside, and thoughts are not.
    """
    if used.total_tokens is not None:
        rest = used.total_tokens - (used.input_tokens or 0) - (used.output_tokens or 0)
        for chosen in product((True, False), repeat=len(parts)):
            if (
                sum(part for part, is_beside in zip(parts, chosen, strict=True) if is_beside)
                == rest
            ):
                return chosen
    return (True, True, False)
