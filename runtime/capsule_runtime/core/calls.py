"""What one model call used, or many: the numbers, and what no call can have used."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from capsule_runtime.events import Usage

MOST_TOKENS = 2**40
"""Of one call. A driver in Python may say anything."""
LONGEST_NAME = 256
"""Of a model or a call, to be kept."""


class Counts(Struct, frozen=True, omit_defaults=True, gc=False):
    """Numbers of tokens. None was not reported.

    Cached input stands beside `input_tokens`; the hour's writes are part of `cache_write_tokens`,
    reasoning is part of `output_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Return all that the model read: fresh, from the cache and into the cache."""
        # Numbers that contradict each other hide nothing: the hour's writes are writes.
        written = [it for it in (self.cache_write_tokens, self.cache_write_1h_tokens) if it]
        writes = max(written) if written else self.cache_write_tokens
        return sum_of_known(self.input_tokens, self.cache_read_tokens, writes)

    @property
    def tokens(self) -> int | None:
        """Return all that the model read and wrote: what a ceiling on tokens counts."""
        return sum_of_known(self.prompt_tokens, self.output_tokens)

    @property
    def hides_hour(self) -> bool:
        """Whether the cache was written to, and how much of it for an hour is unknown."""
        return bool(self.cache_write_tokens) and self.cache_write_1h_tokens is None


class CallUsage(Counts, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """What one model call used. The model is `provider:id`.

    With scope `total`: what a cumulative report had beyond the calls heard of. That is one call or
    many, so it has no price tier and is no last step.
    """

    model: str
    call_id: str | None = None
    scope: Literal["call", "total"] = "call"


class UsageTotal(Counts, frozen=True, omit_defaults=True, kw_only=True):
    """What all calls used so far. *steps* counts them; *last_step* is the newest single call."""

    steps: int
    model: str | None = None
    calls: tuple[CallUsage, ...] = ()
    last_step: CallUsage | None = None


def sum_of_known(*parts: int | None) -> int | None:
    """Return the sum of *parts*; None adds nothing, and only Nones are none."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def call_of(report: Usage) -> CallUsage:
    """Return what *report* says, as far as a call can have used that."""
    return CallUsage(
        _possible(report.input_tokens),
        _possible(report.output_tokens),
        _possible(report.cache_read_tokens),
        _possible(report.cache_write_tokens),
        _possible(report.cache_write_1h_tokens),
        _possible(report.reasoning_tokens),
        model=report.model[:LONGEST_NAME],
        call_id=_kept_id(report),
        scope=report.scope,
    )


def _kept_id(report: Usage) -> str | None:
    id = report.call_id or ""
    return id if report.scope == "call" and 0 < len(id) <= LONGEST_NAME else None


def is_possible(report: Usage) -> bool:
    """Whether a call can have used what *report* says. What a harness sends is checked before."""
    for count in (
        report.input_tokens,
        report.output_tokens,
        report.cache_read_tokens,
        report.cache_write_tokens,
        report.cache_write_1h_tokens,
        report.reasoning_tokens,
    ):
        if count is not None and not 0 <= count <= MOST_TOKENS:
            return False
    return True


def _possible(count: int | None) -> int | None:
    """Return *count*, or None for one that no call can have used."""
    return count if count is not None and 0 <= count <= MOST_TOKENS else None
