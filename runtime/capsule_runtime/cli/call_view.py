"""The model calls of a run that passed the gateway, for people and programs to read."""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.call_facts import CallRefused
from capsule_runtime.core.call_fold import Call, CallFold
from capsule_runtime.core.gateway.reservations import Amount
from capsule_runtime.core.log import Record
from capsule_runtime.core.money import show_usd
from capsule_runtime.events import Usage

_CALLS_SHOWN = 50
_REFUSALS_SHOWN = 10
_TIME = slice(len("2026-01-31T"), len("2026-01-31T00:00:00"))


class ShownCall(Struct, frozen=True):
    """One call. What it was charged with is micro-dollars; of an open one, what is held."""

    at: str
    call: str
    provider: str
    model: str
    answered_by: str | None
    """The model that answered, in the provider's words."""
    status: str
    http_status: int | None
    usage: Usage | None
    microusd: int
    is_estimate: bool
    is_unsettled: bool
    cap: int | None
    """The output cap that the gateway put in."""
    ms: int | None
    first_ms: int | None


class Calls(Struct, frozen=True):
    """All of them: at most 10 000 one by one."""

    count: int
    refused: int
    charged: Amount
    """All that counts against a ceiling."""
    estimated: Amount
    """Of that, what nobody told, and was charged as it had been held."""
    unsettled: Amount
    """Of that, what was held for calls that were cut off."""
    claimed_tokens: int | None
    """What the harness itself says that it used."""
    calls: tuple[ShownCall, ...]
    refusals: tuple[CallRefused, ...]


def calls_of(record: Record) -> Calls | None:
    """Return the calls of a run; None if there were none."""
    fold: CallFold = record.calls
    if not (fold.count or fold.refused):
        return None
    return Calls(
        fold.count,
        fold.refused,
        fold.taken,
        fold.estimated,
        fold.unsettled,
        record.claimed.tokens if record.claimed else None,
        tuple(map(_shown, fold.calls)),
        tuple(fold.refusals),
    )


def _shown(call: Call) -> ShownCall:
    started, ended = call.started, call.ended
    return ShownCall(
        started.at,
        started.call,
        started.provider,
        started.model,
        ended.model if ended else None,
        ended.status if ended else "open",
        ended.http_status if ended else None,
        ended.usage if ended else None,
        ended.microusd if ended else started.microusd,
        ended.is_estimate if ended else False,
        call.is_unsettled,
        started.cap,
        ended.ms if ended else None,
        ended.first_ms if ended else None,
    )


def told_calls(calls: Calls) -> list[str]:
    """Return what a person wants to know first, then call by call."""
    lines = [_in_sum(calls), *map(_line, calls.calls[-_CALLS_SHOWN:])]
    if (more := len(calls.calls) - _CALLS_SHOWN) > 0:
        lines.insert(1, f"{more} before these")
    for refused in calls.refusals[:_REFUSALS_SHOWN]:
        model = f" of {refused.model}" if refused.model else ""
        lines.append(f"{refused.at[_TIME]} refused{model}, {refused.cause}: {refused.message}")
    if (more := calls.refused - _REFUSALS_SHOWN) > 0:
        lines.append(f"and {more} more refused")
    return lines


def _in_sum(calls: Calls) -> str:
    parts = [f"{calls.count} sent, {calls.refused} refused: {show_usd(calls.charged.microusd)}"]
    if calls.estimated:
        parts.append(f"{show_usd(calls.estimated.microusd)} of it estimated")
    if calls.unsettled:
        parts.append(f"{show_usd(calls.unsettled.microusd)} of it unsettled")
    if calls.claimed_tokens is not None:
        parts.append(f"the harness tells of {calls.claimed_tokens} tokens")
    return ", ".join(parts)


def _line(call: ShownCall) -> str:
    status = call.status if call.http_status in (None, 200) else f"{call.status} {call.http_status}"
    parts = [f"{call.at[_TIME]} {call.model} {status}"]
    if call.usage is not None:
        parts.append(_tokens(call.usage))
    mark = " unsettled" if call.is_unsettled else " estimated" if call.is_estimate else ""
    parts.append(f"{show_usd(call.microusd)}{mark}")
    if call.cap is not None:
        parts.append(f"capped at {call.cap} tokens")
    if call.ms is not None:
        first = f", {call.first_ms} ms to its first byte" if call.first_ms is not None else ""
        parts.append(f"{call.ms} ms{first}")
    return ": ".join((parts[0], ", ".join(parts[1:])))


def _tokens(usage: Usage) -> str:
    kinds = (
        ("in", usage.input_tokens),
        ("read", usage.cache_read_tokens),
        ("written", usage.cache_write_tokens),
        ("out", usage.output_tokens),
    )
    return " ".join(f"{count} {kind}" for kind, count in kinds if count) or "no tokens"
