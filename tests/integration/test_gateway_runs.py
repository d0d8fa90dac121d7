"""Runs that call models through their gateway: what passes, what it costs, and where the key is not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from support.asker import KEY_VARIABLE, MODEL, body, called, mock
from support.asking import ADVISORY, Asking
from support.canary import REAL_KEY
from support.command import PROGRAM

TOOLS = [{"name": "sh", "input_schema": {"type": "object"}}]
"""Without tools the mock takes a call for one beside the conversation."""


def slow(scenario: str = "MOCK:slow") -> str:
    """Return the body of a call that is answered for a while."""
    return body(scenario, stream=True, tools=TOOLS)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with mock(tmp_path) as (url, log):
        yield Asking(tmp_path, url, log)


def need(tier: str) -> None:
    why = {"sealed": find_namespaces().why, "scoped": find_scopes().why}.get(tier, "")
    if why:
        pytest.skip(why)


@pytest.mark.parametrize("tier", ["sealed", "scoped", "advisory"])
def test_a_call_is_counted_to_the_token_and_its_key_is_nowhere(asking: Asking, tier: str) -> None:
    need(tier)

    ended = asking.run(body(), "--containment", tier, count=3)

    assert (ended.status, ended.statuses) == (0, [200, 200, 200])
    assert {line["key"] for line in called(asking.log)} == {REAL_KEY}
    calls = [call.ended for call in ended.record.calls.calls]
    told = [json.loads(text)["usage"] for _, text in ended.answers]
    assert [c.usage.input_tokens for c in calls if c and c.usage] == [
        one["input_tokens"] for one in told
    ]
    assert ended.record.settled is not None
    assert ended.record.settled.cost is not None
    assert not ended.record.settled.cost.incomplete
    assert ended.record.settled.charged == ended.record.calls.taken
    state = asking.folder / "state"
    found = [path for path in state.rglob("*") if path.is_file() and holds(path, REAL_KEY)]
    assert found == []


def holds(path: Path, words: str) -> bool:
    return words.encode() in path.read_bytes()


def test_the_harness_has_a_marker_that_opens_its_own_gateway_alone(asking: Asking) -> None:
    words = asking.words(slow(), *ADVISORY, count=1)
    with asking.command.started(*words) as going:
        until_called(asking)
        [pid] = children_of(asking)
        env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        values = dict(item.split(b"=", 1) for item in env if b"=" in item)
        has_key = is_in_memory(pid, REAL_KEY)
        url = values[b"ANTHROPIC_BASE_URL"].decode()
        marker = values[b"ANTHROPIC_API_KEY"].decode()
        refused = post(url, "stolen")
        allowed = post(url, marker)
        going.popen.send_signal(signal.SIGINT)
        going.done()

    assert marker.startswith("capsule-")
    assert REAL_KEY.encode() not in b"".join(env)
    assert not has_key
    assert (refused, allowed) == (401, 200)


def is_in_memory(pid: int, words: str) -> bool:
    """Tell whether *words* are in what the process may read and write, wherever that is."""
    maps = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for place, rights, *_ in maps:
            if not rights.startswith("rw"):
                continue
            first, last = (int(end, 16) for end in place.split("-"))
            memory.seek(first)
            if words.encode() in memory.read(last - first):
                return True
    return False


def children_of(asking: Asking) -> list[int]:
    found = list[int]()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"asker.py" in words and str(asking.folder).encode() in words and b"-B" in words:
            found.append(int(entry.name))
    return found


def post(url: str, key: str) -> int:
    request = urllib.request.Request(
        f"{url}/v1/messages",
        body().encode(),
        {"x-api-key": key, "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_of_fifty_calls_at_once_only_those_are_sent_that_fit(asking: Asking) -> None:
    # Each may take $0.00195: seven fit.
    ended = asking.run(slow(), *ADVISORY, "--max-usd", "0.014", count=50, at_once=50)

    assert (ended.record.outcome, ended.record.reason) == ("refused", "usd")
    sent = len(called(asking.log))
    assert sent == len(ended.record.calls.calls) == 7
    assert ended.most_taken <= 14_000
    assert ended.record.settled is not None
    assert ended.record.settled.counted.microusd <= 14_000


def test_calls_one_after_another_stay_below_the_ceiling(asking: Asking) -> None:
    ended = asking.run(body(), *ADVISORY, "--max-usd", "0.01", count=100)

    assert ended.status == 3
    assert ended.statuses[0] == 200
    assert 400 in ended.statuses
    assert len(called(asking.log)) == ended.statuses.count(200)
    assert ended.most_taken <= 10_000
    assert "billing_error" in ended.answers[-1][1]


def test_a_ceiling_of_tokens_is_held_before_the_call(asking: Asking) -> None:
    ended = asking.run(body(), *ADVISORY, "--max-tokens", "9000", count=20)

    assert (ended.record.outcome, ended.record.reason) == ("refused", "tokens")
    assert ended.record.calls.taken.tokens <= 9000
    assert ended.statuses.count(200) > 1


def test_a_call_without_a_cap_gets_one_and_a_lower_one_where_there_is_less(asking: Asking) -> None:
    ended = asking.run(body(cap=None), *ADVISORY, "--max-usd", "0.02")

    [call] = ended.record.calls.calls
    assert ended.status == 0
    assert call.started.cap is not None
    assert 4096 <= call.started.cap < 16_384


def test_what_has_no_bound_is_refused_by_name_and_the_run_goes_on(asking: Asking) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]

    bounded = asking.run(body(tools=tools), *ADVISORY, "--max-usd", "1")
    free = asking.run(body(tools=tools), *ADVISORY)

    assert (bounded.status, bounded.statuses) == (0, [400])
    assert "web_search_20250305" in bounded.answers[0][1]
    assert [it.cause for it in bounded.record.calls.refusals] == ["unbounded"]
    assert (free.status, free.statuses) == (0, [200])


def test_a_model_without_a_price_is_refused_under_a_ceiling(asking: Asking) -> None:
    ended = asking.run(body(model="claude-unheard-of"), *ADVISORY, "--max-usd", "1")

    assert (ended.record.outcome, ended.record.reason) == ("refused", "usd")
    assert called(asking.log) == []


def test_limits_besides_money(asking: Asking) -> None:
    asking.configure('requests_per_minute = 2\nmodels = ["claude-3-*"]')

    paced = asking.run(body(), *ADVISORY, count=3)
    other = asking.run(body(model="claude-opus-4-1"), *ADVISORY)

    assert paced.statuses == [200, 200, 429]
    assert other.statuses == [403]
    assert other.record.calls.refusals[0].cause == "model-not-allowed"


def test_one_at_a_time_is_one_at_a_time(asking: Asking) -> None:
    asking.configure("concurrent_calls = 1")

    ended = asking.run(slow("MOCK:brief"), *ADVISORY, count=3, at_once=3)

    assert ended.statuses == [200, 200, 200]
    order = [fact["fact"] for fact in ended.facts if fact.get("fact", "").startswith("call-")]
    assert order == ["call-started", "call-ended"] * 3


def test_another_model_is_called_under_the_name_of_one(asking: Asking) -> None:
    asking.configure(f'aliases = {{ "{MODEL}" = "claude-3-5-haiku-20241022" }}')

    ended = asking.run(body(), *ADVISORY)

    assert [line["model"] for line in called(asking.log)] == ["claude-3-5-haiku-20241022"]
    assert ended.record.calls.calls[0].started.model == "claude-3-5-haiku-20241022"


def test_a_provider_that_is_not_there_costs_nothing(asking: Asking) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        asking.url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        asking.configure()
        ended = asking.run(body(), *ADVISORY, "--max-usd", "0.01", count=20)

    assert set(ended.statuses) == {502}
    assert {call.ended.status for call in ended.record.calls.calls if call.ended} == {"unsent"}
    assert ended.record.calls.taken.microusd == 0


def test_what_a_killed_supervisor_had_under_way_counts_and_is_shown(asking: Asking) -> None:
    words = asking.words(slow(), *ADVISORY, "--max-usd", "1")
    with asking.command.started(*words) as going:
        until_called(asking)
        going.popen.kill()
        going.popen.wait()

    shown = json.loads(asking.command("show", "@last", "--json").out)
    spent = json.loads(asking.command("spend", "--json").out)

    assert shown["outcome"] == "lost"
    [call] = shown["calls"]["calls"]
    assert call["is_unsettled"] is True
    assert shown["calls"]["unsettled"]["microusd"] == call["microusd"] > 0
    assert spent["total"]["unsettled_microusd"] == call["microusd"]
    assert "UNSETTLED" in asking.command("spend").out
    lines = asking.command("logs", "@last", "--facts", "--json").out.splitlines()
    [closed] = [line for line in map(json.loads, lines) if line.get("fact") == "spend-closed"]
    assert closed["settled"]["charged"]["microusd"] == call["microusd"]


def until_called(asking: Asking) -> None:
    """Wait until the mock was asked."""
    while not called(asking.log):
        assert asking.folder.exists()


def test_supervisors_of_one_day_do_not_pass_its_ceiling(asking: Asking) -> None:
    asking.command.env |= {"CAPSULE_DAY_USD": "0.05"}
    words = [asking.words(body(), *ADVISORY, count=60, at_once=4) for _ in range(3)]

    with_each = [
        subprocess.Popen(
            [PROGRAM, *each],
            env=asking.command.env,
            cwd=asking.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in words
    ]
    ended = [each.wait() for each in with_each]

    spent = json.loads(asking.command("spend", "--json").out)["total"]
    assert set(ended) == {3}
    assert 10_000 < spent["cost"]["most_microusd"] <= 50_000
    assert spent["unsettled_microusd"] == spent["estimated_microusd"] == 0


def test_what_cannot_be_is_said_before_anything_starts(asking: Asking) -> None:
    words = asking.words(body(), *ADVISORY)
    given = asking.command(*words, "--env", "ANTHROPIC_API_KEY=x")
    del asking.command.env[KEY_VARIABLE]
    without = asking.command(*words)

    assert (given.status, without.status) == (2, 2)
    assert "E-PRO-002" in given.err
    assert "E-PRO-003" in without.err
    assert os.listdir(asking.folder / "state" / "runs") == []
