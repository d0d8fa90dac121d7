"""A real harness that reports usage meets its ceilings, and those of the day."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capsule_runtime import Outcome, Reason, SpendError, Text, ToolCall, ToolResult, UsageError
from capsule_runtime.core.ceilings import Ceilings, DayCeilings
from capsule_runtime.core.facts import AttemptStarted, Ended, SpendClosed, StopAsked
from capsule_runtime.core.ledger import Spend
from capsule_runtime.core.money import Cost
from capsule_runtime.core.outcome import exit_code
from capsule_runtime.core.prices import DollarsPerMillion
from capsule_runtime.pricing import PriceBook
from capsule_runtime.runs import open_runs
from capsule_runtime.supervisor import open_supervisor
from support.drivers import install_drivers
from support.logs import Log
from support.owners import owner
from support.spending import MODEL, spender, usage
from support.supervised import ended, request_for

DONE = json.dumps({"type": "turn-end", "result": "done"})


def text(answer: str) -> str:
    return json.dumps({"type": "text", "text": "so", "answer": answer})


def call(id: str) -> str:
    return json.dumps({"type": "tool-call", "id": id, "name": "look"})


def result(id: str) -> str:
    return json.dumps({"type": "tool-result", "id": id, "content": "seen"})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def run_to_end(state: Path, capsule: Path, **wishes: Any) -> Log:
    async with open_supervisor(state) as supervisor:
        return await ended(await supervisor.start(request_for(capsule, **wishes)))


def settled_rows(state: Path) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(state / "capsule.db")
    try:
        return database.execute("select microusd, tokens, state from reservations").fetchall()
    finally:
        database.close()


# Each ceiling, from the first crossing to the exit code.


@pytest.mark.parametrize(
    ("lines", "ceilings", "reason", "words"),
    [
        (
            [usage(40_000), usage(41_000)],
            Ceilings(microusd=20_000),
            Reason.USD,
            "the usd ceiling of $0.02 is reached: $0.02025 observed, with model call 2",
        ),
        (
            [usage(60), usage(40)],
            Ceilings(tokens=100),
            Reason.TOKENS,
            "the tokens ceiling of 100 is reached: 100 observed, with model call 2",
        ),
        (
            [text("a"), text("b"), text("c")],
            Ceilings(turns=2),
            Reason.TURNS,
            "the turns ceiling of 2 is reached: 3 observed",
        ),
        (
            [call("1"), result("1"), call("2")],
            Ceilings(tool_calls=1),
            Reason.TOOL_CALLS,
            "the tool_calls ceiling of 1 is reached: 2 observed",
        ),
    ],
    ids=["usd", "tokens", "turns", "tool_calls"],
)
async def test_a_harness_is_stopped_at_each_ceiling(
    tmp_path: Path,
    state: Path,
    lines: list[str],
    ceilings: Ceilings,
    reason: Reason,
    words: str,
) -> None:
    capsule = spender(tmp_path / "capsule", "says", *lines)

    log = await run_to_end(state, capsule, ceilings=ceilings)

    (asked,) = log.of(StopAsked)
    assert (asked.reason, asked.message) == (reason, words)
    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, reason)
    assert exit_code(Outcome.REFUSED, reason) == 3
    assert (log.final.state, log.final.message, log.final.response) == ("failed", words, None)
    assert [type(entry) for entry in log.entries[-3:-1]] == [SpendClosed, Ended]


async def test_the_capsules_ceiling_holds_where_it_is_the_lower_one(
    tmp_path: Path, state: Path
) -> None:
    capsule = spender(tmp_path / "capsule", "says", usage(60), spend="tokens = 50\nturns = 9")

    log = await run_to_end(state, capsule, ceilings=Ceilings(tokens=1000, turns=3))

    (started,) = log.of(AttemptStarted)
    assert started.ceilings == Ceilings(tokens=50, turns=3)
    assert (started.ledger, started.spend) == ("driver", Spend.AFTER_CALL)
    assert log.final.message.startswith("the tokens ceiling of 50 is reached")


async def test_a_crossing_before_the_turns_end_is_a_refusal_and_after_it_is_none(
    tmp_path: Path, state: Path
) -> None:
    before = spender(tmp_path / "before", "ends", usage(60) + "\n" + DONE)
    after = spender(tmp_path / "after", "ends", DONE + "\n" + usage(60))

    refused = await run_to_end(state, before, ceilings=Ceilings(tokens=50))
    completed = await run_to_end(state, after, ceilings=Ceilings(tokens=50))

    assert refused.record.outcome is Outcome.REFUSED
    assert completed.record.outcome is Outcome.COMPLETED


async def test_a_call_that_is_reported_twice_counts_once(tmp_path: Path, state: Path) -> None:
    again = usage(60, call_id="a")
    capsule = spender(tmp_path / "capsule", "ends", again, again, usage(30, call_id="b"), DONE)

    log = await run_to_end(state, capsule, ceilings=Ceilings(tokens=100))

    assert log.record.outcome is Outcome.COMPLETED
    assert (log.record.tokens, len(log.record.usage.calls)) == (90, 2)


async def test_every_part_of_a_call_has_its_price(tmp_path: Path, state: Path) -> None:
    parts = {
        "output_tokens": 1000,
        "cache_read_tokens": 1_000_000,
        "cache_write_tokens": 100_000,
        "cache_write_1h_tokens": 40_000,
    }
    model = "anthropic:claude-sonnet-4-5"
    capsule = spender(tmp_path / "capsule", "ends", usage(10_000, model=model, **parts), DONE)

    log = await run_to_end(state, capsule, ceilings=Ceilings(microusd=10_000_000))

    settled = log.record.settled
    assert settled is not None
    # The prompt is longer than 200 000 tokens: the higher tier holds for all of it.
    expected = 10_000 * 6 + 1000 * 22.5 + 1_000_000 * 0.6 + 60_000 * 7.5 + 40_000 * 12
    assert settled.cost == Cost(int(expected), int(expected))
    assert (settled.prices or "").startswith("genai-prices ")


async def test_a_model_without_a_price_ends_a_run_under_a_ceiling_in_dollars(
    tmp_path: Path, state: Path
) -> None:
    capsule = spender(tmp_path / "capsule", "says", usage(60, model="acme:new"))

    log = await run_to_end(state, capsule, ceilings=Ceilings(microusd=5_000_000))

    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, Reason.USD)
    assert log.final.message == (
        "the usd ceiling of $5.00 cannot be held: nobody knows the price of 'acme:new'"
    )


async def test_a_price_of_the_callers_own_is_counted(tmp_path: Path, state: Path) -> None:
    prices = PriceBook(state, {"acme:new": DollarsPerMillion("2", "4")})
    capsule = spender(tmp_path / "capsule", "says", usage(60, model="acme:new"), model="acme:new")
    request = request_for(capsule, ceilings=Ceilings(microusd=100))

    async with open_supervisor(state, prices=prices) as supervisor:
        log = await ended(await supervisor.start(request))

    assert log.final.message == (
        "the usd ceiling of $0.0001 is reached: $0.00012 observed, with model call 1"
    )


async def test_negative_counts_are_a_note_and_hurt_no_neighbour(
    tmp_path: Path, state: Path
) -> None:
    lines = "\n".join([usage(30), usage(-1000), usage(20), DONE])
    capsule = spender(tmp_path / "capsule", "ends", lines)

    log = await run_to_end(state, capsule, ceilings=Ceilings(turns=5))

    assert log.record.outcome is Outcome.COMPLETED
    assert log.record.tokens == 50
    assert len(log.notes) == 1


async def test_what_is_said_under_ceilings_is_all_on_record(tmp_path: Path, state: Path) -> None:
    lines = [line for n in map(str, range(50)) for line in (text(n), call(n), result(n), usage(1))]
    capsule = spender(tmp_path / "capsule", "ends", *lines, DONE)

    log = await run_to_end(state, capsule, ceilings=Ceilings(10**9, 10**9, 10**6, 10**6))

    assert log.record.outcome is Outcome.COMPLETED
    assert (log.record.turns, log.record.tool_calls, log.record.tokens) == (50, 50, 50)
    kinds = [type(event) for event in log.events]
    assert (kinds.count(Text), kinds.count(ToolCall), kinds.count(ToolResult)) == (50, 50, 0)


async def test_a_refusal_that_is_on_record_outlives_its_supervisor(
    tmp_path: Path, state: Path
) -> None:
    spend = "tokens = 50\n[limits]\ngrace = '1h'"
    capsule = spender(tmp_path / "capsule", "stays", usage(60), spend=spend)
    with owner(state, capsule) as process:
        process.hear('"stop-asked"')
        process.kill()
    async with open_runs(state) as runs:
        await runs.recover()
        record = runs.record(process.run)

    assert (record.outcome, record.reason) == (Outcome.REFUSED, Reason.TOKENS)
    assert record.final is not None
    assert record.final.message.startswith("the tokens ceiling of 50 is reached: 60 observed")
    assert record.settled is not None
    assert record.settled.tokens == 60


# Refused before anything is created.


@pytest.mark.parametrize(
    ("ceilings", "model", "code", "status"),
    [
        (Ceilings(microusd=0), None, "E-SPE-001", 3),
        (Ceilings(tokens=0), None, "E-SPE-001", 3),
        (Ceilings(turns=0), None, "E-SPE-001", 3),
        (Ceilings(tool_calls=0), None, "E-SPE-001", 3),
        (Ceilings(microusd=5), "acme:new", "E-USE-041", 2),
    ],
)
async def test_nothing_is_created_of_a_run_that_may_not_begin(
    tmp_path: Path, state: Path, ceilings: Ceilings, model: str | None, code: str, status: int
) -> None:
    capsule = spender(tmp_path / "capsule", "ends", DONE, model=model)
    async with open_supervisor(state) as supervisor, open_runs(state) as runs:
        with pytest.raises((SpendError, UsageError)) as refused:
            await supervisor.start(request_for(capsule, ceilings=ceilings))

        assert (refused.value.code, refused.value.exit_status) == (code, status)
        assert runs.recent() == []
        assert list((state / "runs").iterdir()) == []


@pytest.mark.parametrize("driver", ["late-metering", "unmetered"])
@pytest.mark.parametrize("ceilings", [Ceilings(microusd=5), Ceilings(tokens=5)])
async def test_a_driver_that_tells_too_late_holds_no_ceiling_unless_that_is_allowed(
    tmp_path: Path,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: str,
    ceilings: Ceilings,
) -> None:
    monkeypatch.setattr("sys.path", [install_drivers(tmp_path / "distribution"), *sys.path])
    lenient = 'on_unmetered = "allow"'
    capsule = spender(tmp_path / "capsule", "ends", DONE, spend=lenient, driver=driver)
    allowed = msgspec.structs.replace(ceilings, on_unmetered="allow")
    async with open_supervisor(state) as supervisor:
        with pytest.raises(UsageError, match="cannot be held: usage is") as refused:
            await supervisor.start(request_for(capsule, ceilings=ceilings))
        log = await ended(await supervisor.start(request_for(capsule, ceilings=allowed)))

    assert refused.value.code == "E-USE-040"
    assert log.record.outcome is Outcome.COMPLETED


# The day.


async def test_a_day_that_is_used_up_lets_no_run_begin(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "ends", usage(100), DONE)
    async with open_supervisor(state, day=DayCeilings(tokens=100)) as supervisor:
        first = await ended(await supervisor.start(request_for(capsule)))
        with pytest.raises(SpendError, match=r"for the day .* is reached: 100 used") as refused:
            await supervisor.start(request_for(capsule))
        async with open_runs(state) as runs:
            found = [row.id for row in runs.recent()]

    assert (refused.value.code, refused.value.exit_status) == ("E-SPE-002", 3)
    assert first.record.created is not None
    assert found == [first.record.created.run]
    assert settled_rows(state) == [(0, 100, "settled")]


async def test_a_run_is_topped_up_while_there_is_room(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "works", "9", "100")
    async with open_supervisor(state, day=DayCeilings(tokens=1200)) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert log.record.outcome is Outcome.COMPLETED
    assert settled_rows(state) == [(0, 900, "settled")]


async def test_a_run_that_finds_no_more_room_is_refused(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "works", "99", "100")
    async with open_supervisor(state, day=DayCeilings(tokens=1000)) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, Reason.TOKENS)
    assert log.final.message.startswith("the tokens ceiling of 1000 for the day ")
    ((_, tokens, _),) = settled_rows(state)
    assert 900 <= tokens <= 1000


async def test_what_passes_the_day_in_the_same_breath_as_the_end_is_refused(
    tmp_path: Path, state: Path
) -> None:
    capsule = spender(tmp_path / "capsule", "ends", *[usage(100)] * 20, DONE)
    async with open_supervisor(state, day=DayCeilings(tokens=1000)) as supervisor:
        log = await ended(await supervisor.start(request_for(capsule)))

    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, Reason.TOKENS)
    assert log.final.message.startswith("the tokens ceiling of 1000 for the day ")


async def test_usage_that_cannot_be_read_ends_a_run_under_a_ceiling(
    tmp_path: Path, state: Path
) -> None:
    unread = json.dumps({"type": "usage", "model": MODEL, "input_tokens": 10.5})
    capsule = spender(tmp_path / "capsule", "ends", unread, DONE)

    log = await run_to_end(state, capsule, ceilings=Ceilings(tokens=1000))

    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, Reason.TOKENS)
    assert "cannot be held" in log.final.message


async def test_a_call_that_never_told_its_numbers_ends_in_a_refusal(
    tmp_path: Path, state: Path
) -> None:
    silent = json.dumps({"type": "usage", "model": MODEL, "call_id": "a"})
    capsule = spender(tmp_path / "capsule", "ends", silent, DONE)

    log = await run_to_end(state, capsule, ceilings=Ceilings(microusd=10_000))

    assert (log.record.outcome, log.record.reason) == (Outcome.REFUSED, Reason.USD)


async def test_what_a_run_did_not_use_is_given_back(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "ends", usage(1, model=MODEL), DONE)
    async with open_supervisor(state, day=DayCeilings(microusd=1_000_000)) as supervisor:
        for _ in range(20):
            await ended(await supervisor.start(request_for(capsule)))

    assert settled_rows(state) == [(1, 1, "settled")] * 20


async def test_what_was_used_beyond_a_slice_counts(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "ends", usage(5000), DONE)
    async with open_supervisor(state, day=DayCeilings(tokens=1000)) as supervisor:
        await ended(await supervisor.start(request_for(capsule)))
        with pytest.raises(SpendError, match=r"1000 for the day .* 5000 used"):
            await supervisor.start(request_for(capsule))

    assert settled_rows(state) == [(0, 5000, "settled")]


async def test_a_refused_context_reserves_nothing(tmp_path: Path, state: Path) -> None:
    capsule = spender(tmp_path / "capsule", "says", usage(1))
    async with open_supervisor(state, day=DayCeilings(tokens=1000)) as supervisor:
        run = await supervisor.start(request_for(capsule, context="talk"))
        with pytest.raises(UsageError, match="is busy"):
            await supervisor.start(request_for(capsule, context="talk"))
        held = len(settled_rows(state))
        await run.stop(Reason.KILLED)

    assert held == 1


@pytest.mark.parametrize(
    ("heard", "microusd", "tokens"),
    [('"created"', 0, 0), ('"launched"', 0, 0), ('"tool-call"', 10_000, 40_000)],
)
async def test_recovery_settles_what_a_dead_owners_log_says(
    tmp_path: Path,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    heard: str,
    microusd: int,
    tokens: int,
) -> None:
    monkeypatch.setenv("TEST_DAY_TOKENS", "8000")
    monkeypatch.setenv("TEST_DAY_MICROUSD", "8000000")
    lines = [usage(40_000, call_id="a"), call("1")]
    if tokens == 0:
        lines = []
    capsule = spender(tmp_path / "capsule", "stays", *lines)
    with owner(state, capsule) as process:
        process.hear(heard)
        process.kill()
    before = settled_rows(state)
    async with open_runs(state) as runs:
        await runs.recover()
        record = runs.record(process.run)

    assert [row[2] for row in before] == ["held"]
    assert settled_rows(state) == [(microusd, tokens, "settled")]
    assert record.settled is not None
    assert record.settled.tokens == (tokens or None)
    assert record.settled.cost == (Cost(microusd, microusd) if microusd else None)
