"""Model calls that are recorded once and played for nothing: no provider, no key, no cost."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.asker import KEY_VARIABLE, body, called, mock
from support.asking import ADVISORY, Asking
from support.canary import REAL_KEY


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with mock(tmp_path) as (url, log):
        yield Asking(tmp_path, url, log)


def cut_off(asking: Asking) -> None:
    """Take the provider and the key away."""
    asking.url = "http://127.0.0.1:9"
    asking.configure()
    del asking.command.env[KEY_VARIABLE]


def recorded(asking: Asking, asked: str, *, count: int = 1) -> Path:
    cassette = asking.folder / "cassette.jsonl"
    ended = asking.run(asked, *ADVISORY, "--record", str(cassette), count=count)
    assert ended.status == 0
    return cassette


@pytest.mark.parametrize("streams", [False, True])
def test_what_was_recorded_is_played_without_a_provider(asking: Asking, streams: bool) -> None:
    asked = body(stream=streams)
    cassette = recorded(asking, asked, count=2)
    sent = len(called(asking.log))
    cut_off(asking)

    ended = asking.run(
        asked, *ADVISORY, "--playback", str(cassette), "--max-usd", "0.0001", count=2
    )

    assert (ended.status, ended.statuses) == (0, [200, 200])
    assert ended.answers[0] != ended.answers[1]
    assert len(called(asking.log)) == sent == 2
    assert [call.ended.status for call in ended.record.calls.calls if call.ended] == ["played"] * 2
    assert ended.record.calls.taken.microusd == 0
    assert ended.record.calls.taken.tokens > 0


def test_nothing_at_all_is_asked_of_a_provider_while_a_cassette_plays(asking: Asking) -> None:
    cassette = recorded(asking, body())
    before = asking.log.read_text()

    ended = asking.run(
        body(), *ADVISORY, "--playback", str(cassette), path="/v1/messages/count_tokens"
    )

    assert ended.statuses == [400]
    assert asking.log.read_text() == before
    assert ended.record.calls.refusals[0].cause == "not-recorded"


def test_a_cassette_is_its_callers_alone_and_has_no_key(asking: Asking) -> None:
    cassette = recorded(asking, body())

    text = cassette.read_text()
    assert stat.S_IMODE(cassette.stat().st_mode) == 0o600
    assert REAL_KEY not in text
    assert [json.loads(line)["line"] for line in text.splitlines()] == ["cassette", "call"]


def test_what_changes_from_run_to_run_asks_for_the_same(asking: Asking) -> None:
    cassette = recorded(asking, body("MOCK:plain on 2026-01-31", metadata={"user_id": "a"}))
    cut_off(asking)

    ended = asking.run(
        body("MOCK:plain on 2026-02-01", metadata={"user_id": "b"}),
        *ADVISORY,
        "--playback",
        str(cassette),
    )

    assert ended.statuses == [200]


def test_what_was_not_recorded_is_refused_or_gets_the_next_answer(asking: Asking) -> None:
    cassette = recorded(asking, body())
    cut_off(asking)
    other = (*ADVISORY, "--playback", str(cassette))

    strict = asking.run(body("something else"), *other)
    lenient = asking.run(body("something else"), *other, "--playback-miss", "lenient", count=2)

    assert strict.statuses == [400]
    assert "no such call is in the cassette" in strict.answers[0][1]
    assert strict.record.calls.refusals[0].cause == "not-recorded"
    assert lenient.statuses == [200, 400]


def test_a_call_that_was_cut_off_is_not_recorded(asking: Asking) -> None:
    cassette = asking.folder / "cassette.jsonl"
    asking.url = "http://127.0.0.1:9"
    asking.configure()

    asking.run(body(), *ADVISORY, "--record", str(cassette))

    assert len(cassette.read_text().splitlines()) == 1


def test_what_cannot_be_recorded_or_played_is_said_before_anything_starts(asking: Asking) -> None:
    cassette = recorded(asking, body())
    torn = asking.folder / "torn.jsonl"
    torn.write_bytes(cassette.read_bytes()[:-10])
    strange = asking.folder / "strange.jsonl"
    strange.write_text('{"line":"cassette","version":99}\n')

    def told(*words: str) -> str:
        done = asking.command(*asking.words(body(), *ADVISORY, *words))
        assert done.status == 2
        return done.err

    assert "E-USE-054" in told("--record", str(cassette))
    assert "line 2: it was cut off" in told("--playback", str(torn))
    assert "E-USE-055" in told("--playback", str(strange))
    assert "E-USE-055" in told("--playback", str(asking.folder / "none"))
    assert "exclude each other" in told("--record", "a", "--playback", "b")


def test_a_run_without_a_gateway_records_nothing(asking: Asking) -> None:
    done = asking.command.run("read task", "--record", str(asking.folder / "a"))

    assert done.status == 2
    assert "E-USE-056" in done.err
