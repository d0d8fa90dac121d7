"""What Claude Code's model calls used, each once."""

from __future__ import annotations

from collections.abc import Sequence

from capsule_drivers.stream_json import (
    Answer,
    Details,
    Hour,
    MessageDelta,
    ModelUsage,
    Result,
    Tokens,
)
from capsule_drivers.token_counts import count_of
from capsule_runtime import Event, Usage

_MOST_DOLLARS = 1e9
_NO_HOUR = Hour()
_NO_DETAILS = Details()


class Account:
    """Turn the beginnings and ends of answers, and the sums of turns, into usage.

    Sub-agents stream between one another: each has an answer of its own, by its *parent*.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        """The session's: that of an answer of which nobody heard the beginning."""
        self._answers: dict[str | None, Answer] = {}
        self._open: dict[str | None, None] = {}
        self._spent: dict[str, ModelUsage] = {}

    def begin(self, parent: str | None, answer: Answer) -> list[Event]:
        """Note that *answer* begins; report one before it of which the end was never heard."""
        before = self._answers.get(parent)
        if before is not None and before.id == answer.id and answer.id is not None:
            return []  # the same line again
        said = self._cut_off(parent)
        self._answers[parent] = answer
        self._open[parent] = None
        return said

    def count(
        self, parent: str | None, id: str | None, line: str | None, event: MessageDelta
    ) -> Usage:
        """Report the answer *id* that *event* ends; one that was cut off says 1 for its output.

        *line* is the name of the line: it stands for an answer of which nobody heard the beginning.
        """
        began = self._answers.get(parent)
        if began is None or (id != began.id if id is not None else parent not in self._open):
            began = Answer(model=self.model)
        else:
            self._open.pop(parent, None)
        is_whole = event.delta.stop_reason is not None
        return _usage(began, began.id or id or line, event.usage, is_whole=is_whole)

    def unread(self, *, is_end: bool) -> Usage:
        """Report a call of which a line could not be read: unknown is not free."""
        parent = next(reversed(self._open), None)
        answer = self._answers[parent] if is_end and parent in self._open else Answer()
        return Usage(named(answer.model or self.model), call_id=answer.id)

    def close(self) -> list[Event]:
        """Report every answer of which the end was never heard."""
        return [said for parent in list(self._open) for said in self._cut_off(parent)]

    def add_up(self, result: Result) -> Sequence[Event]:
        """Report what each model used in this process, by the harness's own account."""
        said = list[Event]()
        for model, used in (result.since or {}).items():
            self._spent[model] = total = _sum(self._spent.get(model), used)
            said.append(
                Usage(
                    named(model),
                    count_of(total.input_tokens),
                    count_of(total.output_tokens),
                    count_of(total.cache_read_input_tokens),
                    count_of(total.cache_creation_input_tokens),
                    count_of(total.cache_creation_ephemeral_1h_input_tokens),
                    cost_usd=_dollars(total.cost_usd),
                    scope="total",
                )
            )
        return said

    def _cut_off(self, parent: str | None) -> list[Event]:
        if parent not in self._open:
            return []
        del self._open[parent]
        began = self._answers[parent]
        return [_usage(began, began.id, None, is_whole=False)]


def named(model: str | None) -> str:
    """Return *model* as usage and sessions name it."""
    return f"anthropic:{model or 'unknown'}"


def _usage(began: Answer, call: str | None, ended: Tokens | None, *, is_whole: bool) -> Usage:
    """Return the usage of one answer; what its end does not tell, its beginning does.

    A *call* without a name may be told of again, so its numbers may not count.
    """
    if call is None:
        return Usage(named(began.model))
    first, last = began.usage or Tokens(), ended or Tokens()
    hour = last.cache_creation or first.cache_creation or _NO_HOUR
    details = last.output_tokens_details or _NO_DETAILS
    return Usage(
        named(began.model),
        _either(last.input_tokens, first.input_tokens),
        count_of(last.output_tokens) if is_whole else None,
        _either(last.cache_read_input_tokens, first.cache_read_input_tokens),
        _either(last.cache_creation_input_tokens, first.cache_creation_input_tokens),
        count_of(hour.ephemeral_1h_input_tokens),
        count_of(details.thinking_tokens) if is_whole else None,
        call_id=call,
    )


def _sum(one: ModelUsage | None, other: ModelUsage) -> ModelUsage:
    if one is None:
        return other
    return ModelUsage(
        _plus(one.input_tokens, other.input_tokens),
        _plus(one.output_tokens, other.output_tokens),
        _plus(one.cache_read_input_tokens, other.cache_read_input_tokens),
        _plus(one.cache_creation_input_tokens, other.cache_creation_input_tokens),
        _plus(
            one.cache_creation_ephemeral_1h_input_tokens,
            other.cache_creation_ephemeral_1h_input_tokens,
        ),
        _dollars_plus(one.cost_usd, other.cost_usd),
    )


def _plus(one: object, other: object) -> int | None:
    before, more = count_of(one), count_of(other)
    return None if before is None or more is None else before + more


def _dollars_plus(one: object, other: object) -> float | None:
    before, more = _dollars(one), _dollars(other)
    return None if before is None or more is None else before + more


def _either(one: object, other: object) -> int | None:
    return count_of(other) if one is None else count_of(one)


def _dollars(told: object) -> float | None:
    """Return the amount that *told* is, or None for what is none."""
    if not isinstance(told, int | float) or isinstance(told, bool):
        return None
    return float(told) if 0 <= told < _MOST_DOLLARS else None
