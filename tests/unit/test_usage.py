"""What model calls used, as one total: absent is not zero, and no order matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Usage
from capsule_runtime.core.calls import CallUsage, Counts, UsageTotal
from capsule_runtime.core.usage import MOST_CALLS, UsageFold

MODEL = "acme:large"

count = st.none() | st.integers(0, 9)
models = st.sampled_from([MODEL, "acme:small"])


def reports(scope: Literal["call", "total"] = "call") -> st.SearchStrategy[Usage]:
    """Draw usage events that name no call."""
    return st.builds(
        Usage,
        model=models,
        input_tokens=count,
        output_tokens=count,
        cache_read_tokens=count,
        cache_write_tokens=count,
        cache_write_1h_tokens=count,
        reasoning_tokens=count,
        scope=st.just(scope),
    )


named_reports = st.builds(msgspec.structs.replace, reports(), call_id=st.sampled_from("abc"))


def folded(*heard: Usage) -> UsageFold:
    fold = UsageFold()
    for report in heard:
        fold.apply(report)
    return fold


def counts(counts: Counts | Usage) -> tuple[int | None, ...]:
    return (
        counts.input_tokens,
        counts.output_tokens,
        counts.cache_read_tokens,
        counts.cache_write_tokens,
        counts.cache_write_1h_tokens,
        counts.reasoning_tokens,
    )


def as_report(model: str, counts: Counts) -> Usage:
    return Usage(
        model,
        counts.input_tokens,
        counts.output_tokens,
        counts.cache_read_tokens,
        counts.cache_write_tokens,
        counts.cache_write_1h_tokens,
        counts.reasoning_tokens,
        scope="total",
    )


def total(*heard: Usage) -> tuple[int | None, ...]:
    return counts(folded(*heard).total)


def writes(write: int | None, hour: int | None) -> Usage:
    return Usage(MODEL, cache_write_tokens=write, cache_write_1h_tokens=hour)


# The algebra, step by step: written down a second time.


@dataclass(frozen=True)
class Step:
    """A running total that knows nothing but itself and the next call."""

    input: int | None = None
    output: int | None = None
    read: int | None = None
    write: int | None = None
    hour: int | None = None
    reasoning: int | None = None

    def then(self, call: Usage) -> Step:
        hides = (self.write or 0) > 0 and self.hour is None
        call_hides = (call.cache_write_tokens or 0) > 0 and call.cache_write_1h_tokens is None
        return Step(
            plus(self.input, call.input_tokens),
            plus(self.output, call.output_tokens),
            plus(self.read, call.cache_read_tokens),
            plus(self.write, call.cache_write_tokens),
            None if hides or call_hides else plus(self.hour, call.cache_write_1h_tokens),
            plus(self.reasoning, call.reasoning_tokens),
        )


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


@given(st.lists(reports()))
def test_the_total_is_what_adding_call_after_call_gives(heard: list[Usage]) -> None:
    step = Step()
    for report in heard:
        step = step.then(report)

    assert total(*heard) == (
        step.input,
        step.output,
        step.read,
        step.write,
        step.hour,
        step.reasoning,
    )


@given(st.lists(reports()).flatmap(lambda heard: st.tuples(st.just(heard), st.permutations(heard))))
def test_the_order_of_calls_does_not_matter(orders: tuple[list[Usage], list[Usage]]) -> None:
    one, other = orders

    assert total(*one) == total(*other)


@given(st.lists(reports()))
def test_a_number_is_absent_only_if_nobody_reported_it(heard: list[Usage]) -> None:
    inputs = [r.input_tokens for r in heard if r.input_tokens is not None]

    assert folded(*heard).total.input_tokens == (sum(inputs) if inputs else None)


@given(st.lists(reports()))
def test_the_hours_part_is_unknown_for_good_once_a_call_hides_it(heard: list[Usage]) -> None:
    hours = [r.cache_write_1h_tokens for r in heard if r.cache_write_1h_tokens is not None]
    hidden = any(r.cache_write_tokens and r.cache_write_1h_tokens is None for r in heard)

    expected = None if hidden or not hours else sum(hours)
    assert folded(*heard).total.cache_write_1h_tokens == expected


@pytest.mark.parametrize(
    ("before", "then", "both"),
    [
        (None, (5, None), (5, None)),
        ((5, None), (5, 3), (10, None)),
        ((5, 3), (5, None), (10, None)),
        ((0, None), (5, 3), (5, 3)),
        ((5, 3), (None, None), (5, 3)),
        ((None, None), (None, 2), (None, 2)),
        ((5, 0), (5, 0), (10, 0)),
    ],
)
def test_writes_for_an_hour(
    before: tuple[int | None, int | None] | None,
    then: tuple[int | None, int | None],
    both: tuple[int | None, int | None],
) -> None:
    heard = [writes(*pair) for pair in (before, then) if pair is not None]

    result = folded(*heard).total

    assert (result.cache_write_tokens, result.cache_write_1h_tokens) == both


def test_absent_is_not_zero() -> None:
    assert folded(Usage(MODEL)).total.input_tokens is None
    assert folded(Usage(MODEL, 0)).total.input_tokens == 0
    assert folded(Usage(MODEL), Usage(MODEL, 0)).total.input_tokens == 0


def test_a_number_below_zero_is_none_at_all() -> None:
    assert folded(Usage(MODEL, -5, 3)).total == folded(Usage(MODEL, None, 3)).total


# Steps and calls.


@given(st.lists(reports()))
def test_every_call_is_a_step_also_one_without_numbers(heard: list[Usage]) -> None:
    result = folded(*heard).total

    assert result.steps == len(result.calls) == len(heard)
    assert [counts(call) for call in result.calls] == [counts(report) for report in heard]


def test_the_last_step_is_the_newest_call_with_its_numbers_as_they_came() -> None:
    result = folded(Usage(MODEL, 10, 1), Usage("acme:small", 20)).total

    assert result.last_step == CallUsage(20, model="acme:small")
    assert result.model == "acme:small"


def test_nothing_heard_is_nothing_known() -> None:
    assert folded().total == UsageTotal(steps=0)
    assert folded().total.tokens is None


def test_what_nobody_reported_is_left_out_of_json() -> None:
    json = msgspec.json.encode(folded(Usage(MODEL, 10)).total)

    assert json == (
        b'{"input_tokens":10,"steps":1,"model":"acme:large",'
        b'"calls":[{"input_tokens":10,"model":"acme:large"}],'
        b'"last_step":{"input_tokens":10,"model":"acme:large"}}'
    )


@given(st.lists(reports()))
def test_a_total_comes_back_from_json_as_it_was(heard: list[Usage]) -> None:
    result = folded(*heard).total

    assert msgspec.json.decode(msgspec.json.encode(result), type=UsageTotal) == result


def test_tokens_are_all_that_was_read_and_written_each_once() -> None:
    report = Usage(MODEL, 1000, 100, 20_000, 300, 200, 50)

    assert folded(report).total.tokens == 21_400
    assert folded(report).tokens == 21_400
    assert folded(report).total.prompt_tokens == 21_300


# A call that is heard of twice.


@given(st.lists(named_reports))
def test_a_call_counts_once_as_it_was_last_reported(heard: list[Usage]) -> None:
    last = {report.call_id: report for report in heard}

    result = folded(*heard).total

    assert counts(result) == total(*last.values())
    assert [call.call_id for call in result.calls] == list(dict.fromkeys(r.call_id for r in heard))


@given(st.lists(named_reports))
def test_hearing_everything_again_in_its_order_changes_nothing(heard: list[Usage]) -> None:
    last = {report.call_id: report for report in heard}
    fold = folded(*heard)
    before = fold.total

    places = [fold.apply(report) for report in last.values()]

    assert fold.total == before
    assert places == [None] * len(last)


def test_a_report_tells_which_call_it_changed() -> None:
    fold = UsageFold()

    assert fold.apply(Usage(MODEL, 1, call_id="a")) == 0
    assert fold.apply(Usage(MODEL, 2, call_id="b")) == 1
    assert fold.apply(Usage(MODEL, 3, call_id="a")) == 0
    assert fold.apply(Usage(MODEL, 3, call_id="a")) is None
    assert fold.apply(Usage(MODEL, 3)) == 2


def test_a_corrected_call_may_have_another_model() -> None:
    fold = folded(Usage(MODEL, 10, call_id="a"), Usage("acme:small", 7, call_id="a"))

    fold.apply(Usage("acme:small", 9, scope="total"))

    assert [(call.model, call.input_tokens) for call in fold.calls] == [
        ("acme:small", 7),
        ("acme:small", 2),
    ]


def test_a_correction_can_clear_up_what_was_hidden() -> None:
    hidden = Usage(MODEL, cache_write_tokens=5, call_id="a")
    told = Usage(MODEL, cache_write_tokens=5, cache_write_1h_tokens=2, call_id="a")

    assert folded(hidden).total.cache_write_1h_tokens is None
    assert folded(hidden, told).total.cache_write_1h_tokens == 2


def test_an_empty_call_id_names_no_call() -> None:
    assert folded(Usage(MODEL, 1, call_id=""), Usage(MODEL, 1, call_id="")).total.steps == 2


def test_a_call_id_is_good_for_one_attempt() -> None:
    fold = folded(Usage(MODEL, 1, call_id="1"))

    fold.next_attempt()
    fold.apply(Usage(MODEL, 1, call_id="1"))

    assert (fold.total.steps, fold.total.input_tokens) == (2, 2)


# More calls than can be kept apart.


def test_past_a_bound_calls_of_a_model_are_added_up_and_none_is_lost() -> None:
    flood = [Usage(MODEL, 3, 2, call_id=f"c{n}") for n in range(MOST_CALLS + 50)]

    fold = folded(*flood, Usage("acme:late", 7), Usage("acme:later", 8, 1), flood[0])

    assert len(fold.calls) == MOST_CALLS + 2
    assert fold.calls[MOST_CALLS] == CallUsage(150, 100, model=MODEL, scope="total")
    assert fold.calls[MOST_CALLS + 1] == CallUsage(15, 1, model="", scope="total")
    assert fold.tokens == 5 * (MOST_CALLS + 50) + 16


def test_names_that_are_too_long_are_not_kept() -> None:
    long = "x" * 10_000

    fold = folded(Usage(long, 1, call_id=long), Usage(long, 1, call_id=long))

    assert [(len(call.model), call.call_id) for call in fold.calls] == [(256, None)] * 2


# Cumulative reports.


@given(st.lists(st.integers(0, 9)))
def test_of_cumulative_reports_only_growth_counts(sums: list[int]) -> None:
    result = folded(*(Usage(MODEL, tokens, scope="total") for tokens in sums)).total

    assert (result.input_tokens or 0) == max(sums, default=0)
    assert result.steps == sum(now > max(sums[:i], default=0) for i, now in enumerate(sums))


@given(st.lists(reports("total")))
def test_cumulative_reports_that_are_repeated_change_nothing(heard: list[Usage]) -> None:
    fold = folded(*heard)
    before = fold.total

    again = [fold.apply(report) for report in heard]

    assert fold.total == before
    assert again == [None] * len(heard)


@given(st.lists(reports("total")))
def test_no_total_ever_shrinks(heard: list[Usage]) -> None:
    fold, most = UsageFold(), 0

    for report in heard:
        fold.apply(report)
        assert (fold.tokens or 0) >= most
        most = fold.tokens or 0


@given(st.lists(reports()))
def test_a_cumulative_report_of_the_calls_heard_of_adds_nothing(heard: list[Usage]) -> None:
    fold = folded(*heard)
    for model in {report.model for report in heard}:
        mine = folded(*(report for report in heard if report.model == model)).total
        assert fold.apply(as_report(model, mine)) is None

    assert fold.total == folded(*heard).total


def test_calls_that_were_not_heard_of_appear_as_growth() -> None:
    heard = [Usage(MODEL, 100, 10), Usage(MODEL, 250, 30, 7, scope="total")]

    result = folded(*heard).total

    assert result.calls[1] == CallUsage(150, 20, 7, model=MODEL, scope="total")
    assert (result.input_tokens, result.output_tokens, result.cache_read_tokens) == (250, 30, 7)


def test_a_call_after_a_cumulative_report_is_new() -> None:
    heard = [Usage(MODEL, 100, scope="total"), Usage(MODEL, 30), Usage(MODEL, 130, scope="total")]

    assert folded(*heard).total.input_tokens == 130


def test_growth_is_no_last_step() -> None:
    result = folded(Usage(MODEL, 100), Usage(MODEL, 900, scope="total")).total

    assert result.last_step == CallUsage(100, model=MODEL)
    assert folded(Usage(MODEL, 900, scope="total")).total.last_step is None


def test_a_cumulative_report_is_of_one_model() -> None:
    heard = [Usage(MODEL, 100, scope="total"), Usage("acme:small", 40, scope="total")]

    assert folded(*heard).total.input_tokens == 140


def test_cumulative_reports_begin_anew_with_an_attempt() -> None:
    fold = folded(Usage(MODEL, 100, scope="total"))

    fold.next_attempt()
    fold.apply(Usage(MODEL, 60, scope="total"))

    assert fold.total.input_tokens == 160


def test_zeros_after_an_interrupt_are_no_news() -> None:
    heard = [Usage(MODEL, 100, 10), Usage(MODEL, 0, 0, 0, 0, scope="total")]

    assert folded(*heard).total == folded(heard[0]).total


def test_growth_beyond_a_hidden_number_is_hidden_too() -> None:
    heard = [writes(5, None), Usage(MODEL, 0, 0, 0, 9, 6, scope="total")]

    result = folded(*heard).total

    assert result.calls[1].cache_write_tokens == 4
    assert result.calls[1].cache_write_1h_tokens is None
    assert result.cache_write_1h_tokens is None
