"""A run that spends: when it asks itself to stop, in whose words, and what is on record of it."""

from __future__ import annotations

import msgspec
import pytest

from capsule_runtime import (
    Event,
    FailureKind,
    Outcome,
    Reason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.actions import Bury, Interrupt, TopUp, WindDown, WriteResult
from capsule_runtime.core.ceilings import Ceilings, DayCeilings
from capsule_runtime.core.day_share import Needs, Share
from capsule_runtime.core.facts import Ended, Noted, SpendClosed, StopAsked
from capsule_runtime.core.ledger import Ledger, Settled
from capsule_runtime.core.log import Record, decode_entries
from support.script import Script

CALL = Usage("m", 60, 40)
DONE = TurnEnd("done")
REFUSED = "the tokens ceiling of 100 is reached: 100 observed, with model call 1"


def script(**ceilings: int) -> Script:
    return Script(ledger=Ledger(Ceilings(**ceilings, on_unmetered="allow")))


def ending(script: Script) -> tuple[Outcome | None, Reason | None, str]:
    return script.run.outcome, script.run.reason, script.run.message


@pytest.mark.parametrize(
    ("ceiling", "events", "reason", "words"),
    [
        ("tokens", [CALL], Reason.TOKENS, REFUSED),
        (
            "turns",
            [Text("a", "1"), Text("b", "2")],
            Reason.TURNS,
            "the turns ceiling of 1 is reached: 2 observed",
        ),
        (
            "turns",
            [Thinking("a", "1"), Thinking("b", "2")],
            Reason.TURNS,
            "the turns ceiling of 1 is reached: 2 observed",
        ),
        (
            "tool_calls",
            [ToolCall("1", "x"), ToolResult("1"), ToolCall("2", "x")],
            Reason.TOOL_CALLS,
            "the tool_calls ceiling of 1 is reached: 2 observed",
        ),
    ],
)
def test_a_ceiling_that_is_crossed_asks_the_run_to_stop(
    ceiling: str, events: list[Event], reason: Reason, words: str
) -> None:
    run = script(**{ceiling: 100 if ceiling == "tokens" else 1})

    run.say(*events)
    run.end(TurnFailed(FailureKind.OTHER, "interrupted"))

    (asked,) = [fact for fact in run.facts if isinstance(fact, StopAsked)]
    assert (asked.reason, asked.message) == (reason, words)
    assert run.asked == [Interrupt()]
    assert ending(run) == (Outcome.REFUSED, reason, words)
    assert run.shown[-1] == ("failed", words, None)


def test_a_crossing_before_the_turns_end_in_one_breath_is_a_refusal() -> None:
    run = script(tokens=100)

    run.say(CALL, DONE)
    run.end()

    assert ending(run) == (Outcome.REFUSED, Reason.TOKENS, REFUSED)
    assert run.asked == [Interrupt(), WriteResult("done"), WindDown()]
    assert ("text", "done", True) not in run.shown


def test_a_turns_end_before_the_crossing_completes() -> None:
    run = script(tokens=100)

    run.say(DONE, CALL)
    run.end()

    assert run.run.outcome is Outcome.COMPLETED
    assert run.shown[-1] == ("completed", "session ended", "done")


def test_whoever_asked_first_is_the_reason() -> None:
    first, second = script(tokens=100), script(tokens=100)

    first.stop(Reason.WALL, "late")
    first.say(CALL)
    second.say(CALL)
    second.stop(Reason.WALL, "late")

    assert (first.run.reason, second.run.reason) == (Reason.WALL, Reason.TOKENS)


def test_a_refused_run_that_does_not_leave_is_killed() -> None:
    run = script(tokens=100)
    run.say(CALL)

    run.grace_over()
    run.end()

    assert run.asked == [Interrupt(), Bury()]
    assert ending(run) == (Outcome.REFUSED, Reason.TOKENS, REFUSED)


def test_a_crossing_in_the_last_words_is_a_refusal_that_asks_nobody() -> None:
    run = script(tokens=100)

    run.end(CALL, DONE)

    assert ending(run) == (Outcome.REFUSED, Reason.TOKENS, REFUSED)
    assert run.asked == [WriteResult("done")]
    assert sum(isinstance(fact, StopAsked) for fact in run.facts) == 1


def test_a_harness_that_closed_its_output_can_still_be_refused() -> None:
    run = script(tokens=100)
    run.grace_over()

    run.say(CALL)
    run.end()

    assert ending(run) == (Outcome.REFUSED, Reason.TOKENS, REFUSED)


def test_a_refusal_is_recorded_once() -> None:
    run = script(tokens=100, turns=1)

    run.say(CALL, CALL, Text("a", "1"), Text("b", "2"))

    assert sum(isinstance(fact, StopAsked) for fact in run.facts) == 1


@pytest.mark.parametrize("tokens", [-1, 2**40 + 1, 2**70])
def test_what_no_call_can_have_used_is_a_note(tokens: int) -> None:
    """A driver in Python may say anything, and the log must stay readable."""
    run = script(tokens=100)

    run.say(Usage("m", 30), Usage("m", tokens), Usage("m", 30))
    run.end(DONE)

    assert run.run.outcome is Outcome.COMPLETED
    assert run.run.ledger.usage.tokens == 60
    assert sum(isinstance(fact, Noted) for fact in run.facts) == 1
    assert decode_entries(msgspec.json.Encoder().encode_lines(run.entries)) == run.entries


# The account of the record.


def test_the_account_is_closed_right_before_the_end() -> None:
    run = script(tokens=1000)
    run.say(CALL, Text("a"), ToolCall("1", "x"))

    run.end(DONE)

    closed, ended = run.facts[-2:]
    assert isinstance(closed, SpendClosed)
    assert isinstance(ended, Ended)
    assert closed.settled == Settled(steps=1, turns=1, tool_calls=1, tokens=100)


def test_a_run_that_never_started_closes_its_account_too() -> None:
    run = Script(launched=False)

    run.fail(Reason.LAUNCH_FAILED, "no such program")

    assert isinstance(run.facts[-2], SpendClosed)


def test_the_account_of_a_log_that_was_cut_off_is_taken_up_again() -> None:
    before = script(tokens=1000)
    before.say(CALL, Usage("m", 5, 5, call_id="a"), Text("a"))
    record = Record()
    for entry in before.entries:
        record.apply_entry(entry)

    after = Script(record.progress, launched=False, ledger=Ledger(usage=record.usage))
    after.fail(Reason.LOST, "gone")

    (closed,) = [fact for fact in after.facts if isinstance(fact, SpendClosed)]
    assert closed.settled == Settled(steps=2, turns=1, tool_calls=0, tokens=110)


# The day.

DAY = DayCeilings(tokens=1000)


def share(tokens: int, taken: int = 1000) -> Share:
    return Share("2026-01-02", DAY, tokens=tokens, taken_tokens=taken)


def sharing(tokens: int) -> Script:
    run = Script(ledger=Ledger())
    run.run.ledger.share = share(tokens)
    return run


def test_a_run_asks_for_more_before_it_must_stop() -> None:
    run = sharing(450)

    run.say(CALL)
    assert run.asked == []
    run.say(CALL)

    assert run.asked == [TopUp(Needs(0, 200, 0, 100))]


def test_a_run_goes_on_with_more_and_asks_again_when_that_is_used() -> None:
    run = sharing(350)
    run.say(CALL)

    run.share(share(500))
    run.say(CALL)
    assert run.asked == [TopUp(Needs(0, 100, 0, 100))]
    run.say(CALL)

    assert run.asked[1:] == [TopUp(Needs(0, 300, 0, 100))]
    assert run.run.reason is None


def test_a_run_that_gets_no_more_is_stopped_while_it_holds_the_call_under_way() -> None:
    run = sharing(350)
    run.say(CALL)
    run.share(share(350))
    assert run.asked == [TopUp(Needs(0, 100, 0, 100))]

    run.say(CALL)
    run.end()

    words = (
        "the tokens ceiling of 1000 for the day 2026-01-02 (UTC) has no room for a call beside the"
        " one that may be under way: 1000 used or reserved by all runs, 150 of it left to this run,"
        " and a call of it took 100"
    )
    assert run.asked[1:] == [Interrupt()]
    assert ending(run) == (Outcome.REFUSED, Reason.TOKENS, words)


def test_a_run_that_waits_for_more_is_refused_when_it_hears_that_there_is_none() -> None:
    run = sharing(350)
    run.say(CALL)
    run.say(CALL)

    run.share(share(350))

    assert run.asked == [TopUp(Needs(0, 100, 0, 100)), Interrupt()]


def test_what_is_used_while_it_waits_is_asked_for_anew() -> None:
    run = sharing(350)
    run.say(CALL)
    run.say(CALL)

    run.share(share(450))

    assert run.asked == [TopUp(Needs(0, 100, 0, 100)), TopUp(Needs(0, 200, 0, 100))]


def test_a_run_that_goes_on_past_midnight_asks_the_new_day() -> None:
    run = Script(ledger=Ledger())
    yesterday = Share("2026-01-01", DAY, tokens=350, taken_tokens=1000)
    run.run.ledger.share = yesterday
    run.say(CALL)

    run.share(yesterday)
    run.say(CALL)
    assert run.asked == [TopUp(Needs(0, 100, 0, 100))] * 2
    run.share(Share("2026-01-02", DAY, tokens=600, taken_tokens=600))

    assert run.run.reason is None


def test_an_answer_to_what_was_asked_comes_too_late_for_a_run_that_is_done() -> None:
    run = sharing(150)
    run.say(CALL)
    run.say(DONE)

    run.share(share(150))
    run.end()

    assert run.run.outcome is Outcome.COMPLETED


def test_nothing_more_is_asked_for_in_the_last_words() -> None:
    run = sharing(150)

    run.end(CALL, CALL, DONE)

    assert not any(isinstance(action, TopUp) for action in run.asked)
    assert run.run.outcome is Outcome.COMPLETED
