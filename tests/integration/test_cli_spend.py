"""`capsule run` under ceilings, and what runs cost wherever the command tells of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.command import ADVISORY, HELLO, Command, saying
from support.spending import usage

SONNET = "anthropic:claude-sonnet-4-5"
ONE_CALL = saying(
    f"""
{usage(30_000, model=SONNET, output_tokens=2000)}
{{"type":"turn-end","result":"done"}}
"""
)
"""Costs $0.12 by the shipped prices."""
PARTLY_PRICED = saying(
    f"""
{usage(30_000, model=SONNET, output_tokens=2000)}
{usage(7, model="acme:new")}
{{"type":"turn-end","result":"done"}}
"""
)
UNPRICED = saying(
    f"""
{usage(7, model="acme:new")}
{{"type":"turn-end","result":"done"}}
"""
)
TURNS = """
read task
echo '{"type":"text","text":"one","answer":"1"}'
echo '{"type":"text","text":"two","answer":"2"}'
while read line; do case $line in *interrupt*) exit 0;; esac; done
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


# Ceilings.


def test_a_run_that_reaches_a_ceiling_exits_3_and_says_which(command: Command) -> None:
    done = command.run(TURNS, "--max-turns", "1")

    assert done.status == 3
    assert "spend: after-call, by what the driver reports; at most 1 turn\n" in done.err
    assert "✗ the turns ceiling of 1 is reached: 2 observed  turns" in done.err


def test_frames_of_a_refused_run_end_with_the_refusal_alone(command: Command) -> None:
    done = command.run(TURNS, "--max-turns", "1", "--format", "jsonl")

    assert done.status == 3
    assert done.err == ""
    last = done.frames[-1]
    assert (last["state"], last["final"]) == ("failed", True)
    assert last["message"] == "the turns ceiling of 1 is reached: 2 observed"
    assert "response" not in last


def test_that_there_are_no_ceilings_is_said_once_and_to_people_only(command: Command) -> None:
    text, jsonl = command.run(HELLO), command.run(HELLO, "--format", "jsonl")

    assert text.err.count("no ceilings") == 1
    assert "no ceilings" not in jsonl.out + jsonl.err


@pytest.mark.parametrize("ceiling", ["usd", "tokens", "turns", "tool-calls"])
def test_a_ceiling_of_nothing_creates_no_run(command: Command, ceiling: str) -> None:
    done = command.run(HELLO, f"--max-{ceiling}", "0")

    assert done.status == 3
    assert "error[E-SPE-001]" in done.err
    assert json.loads(command("ps", "--all", "--json").out) == []


@pytest.mark.parametrize(
    "words",
    [("--max-usd", "much"), ("--max-usd", "-1"), ("--max-tokens", "-1"), ("--max-turns", "x")],
)
def test_what_is_no_ceiling_is_a_usage_error(command: Command, words: tuple[str, str]) -> None:
    done = command.run(HELLO, *words)

    assert done.status == 2
    assert words[0] in done.err


def test_a_ceiling_in_dollars_needs_a_model_with_a_price(command: Command) -> None:
    done = command.run(HELLO, "--max-usd", "1", "--model", "acme:new")

    assert done.status == 2
    assert "error[E-USE-041]: the usd ceiling of $1.00 cannot be held" in done.err
    assert "hint: " in done.err


def test_explain_tells_the_terms_and_refuses_what_could_not_begin(command: Command) -> None:
    plan = command.run(HELLO, "--max-usd", "1.50", "--explain", "--json")
    shown = command.run(HELLO, "--max-usd", "1.50", "--explain")
    refused = command.run(HELLO, "--max-usd", "0", "--explain")

    terms = json.loads(plan.out)
    assert (terms["ledger"], terms["spend"]) == ("driver", "after-call")
    assert terms["ceilings"] == {"microusd": 1_500_000}
    assert "usd  $1.50" in shown.out
    assert refused.status == 3


def test_the_ceilings_of_the_day_come_from_the_environment(command: Command) -> None:
    env = {"CAPSULE_DAY_TOKENS": "100", "CAPSULE_DAY_USD": "5"}
    first, second = command.run(ONE_CALL, env=env), command.run(ONE_CALL, env=env)

    assert "all runs of the day: $5.00, 100 tokens" in first.err
    assert (second.status, "error[E-SPE-002]" in second.err) == (3, True)


def test_a_detached_run_keeps_to_the_day_too(command: Command) -> None:
    env = {"CAPSULE_DAY_TOKENS": "100"}
    command.run(ONE_CALL, env=env)

    done = command.run(ONE_CALL, "--detach", env=env)

    assert (done.status, done.out) == (3, "")


@pytest.mark.parametrize("name", ["CAPSULE_DAY_TOKENS", "CAPSULE_DAY_USD"])
def test_a_day_that_cannot_be_read_stops_everything(command: Command, name: str) -> None:
    done = command.run(HELLO, env={name: "plenty"})

    assert done.status == 2
    assert "error[E-USE-043]" in done.err


# Costs.


@pytest.mark.parametrize(
    ("harness", "figures"),
    [
        (ONE_CALL, "32k tokens · $0.12"),
        (PARTLY_PRICED, "32k tokens · ≥ $0.12"),
        (UNPRICED, "7 tokens · cost —"),
    ],
)
def test_the_end_line_tells_the_cost(command: Command, harness: str, figures: str) -> None:
    done = command.run(harness)

    assert done.err.splitlines()[-1].endswith(figures)


def test_a_run_without_calls_tells_no_cost(command: Command) -> None:
    done = command.run(HELLO)

    assert "$" not in done.err and "—" not in done.err


@pytest.mark.parametrize(
    ("harness", "cost"),
    [
        (ONE_CALL, {"least_microusd": 120_000, "most_microusd": 120_000, "shown": "$0.12"}),
        (PARTLY_PRICED, {"least_microusd": 120_000, "most_microusd": None, "shown": "≥ $0.12"}),
        (UNPRICED, {"least_microusd": 0, "most_microusd": None, "shown": "—"}),
        (HELLO, None),
    ],
)
def test_the_result_and_show_tell_the_cost(
    command: Command, tmp_path: Path, harness: str, cost: dict[str, Any] | None
) -> None:
    command.run(harness, "--result", "result.json", "--max-turns", "9")
    result = json.loads((tmp_path / "result.json").read_text())
    shown = json.loads(command("show", "@last", "--json").out)
    page = command("show", "@last").out

    assert result["cost"] == shown["cost"] == cost
    assert shown["ceilings"] == {"turns": 9}
    assert (shown["ledger"], shown["spend"]) == ("driver", "after-call")
    assert any(
        line.split() == ["cost", *(cost["shown"].split() if cost else "—")]
        for line in page.splitlines()
    )


def test_spend_adds_up_by_capsule_model_and_day(command: Command) -> None:
    for harness in (ONE_CALL, PARTLY_PRICED, UNPRICED):
        command.run(harness)

    total = command("spend").out.splitlines()
    by_model = command("spend", "--by", "model").out.splitlines()
    by_capsule = json.loads(command("spend", "--by", "capsule", "--json").out)
    by_day = json.loads(command("spend", "--by", "day", "--json").out)

    assert total[0].split() == ["RUNS", "CALLS", "TOKENS", "COST"]
    assert total[1].split() == ["all", "3", "4", "64014", "≥", "$0.24"]
    assert [line.split() for line in by_model[1:]] == [
        ["acme:new", "2", "2", "14", "—"],
        [SONNET, "2", "2", "64000", "$0.24"],
        ["all", "3", "4", "64014", "≥", "$0.24"],
    ]
    assert [(it["of"], it["runs"], it["steps"]) for it in by_capsule["sums"]] == [("sample", 3, 4)]
    assert len(by_day["sums"]) == 1
    assert by_day["prices"].startswith("genai-prices ")


def told(usd: float, model: str) -> str:
    return saying(
        f"""
{usage(7, model=model, cost_usd=usd)}
{{"type":"turn-end","result":"done"}}
"""
    )


def test_what_harnesses_say_stands_beside_our_account_and_is_rounded_once(
    command: Command,
) -> None:
    for harness in (told(0.0000004, "acme:a"), told(0.0000004, "acme:a"), told(0.2, "acme:b")):
        command.run(harness)

    by_model = command("spend", "--by", "model").out.splitlines()
    account = json.loads(command("spend", "--by", "model", "--json").out)
    by_capsule = json.loads(command("spend", "--by", "capsule", "--json").out)
    later = json.loads(command("spend", "--since", "2999-01-01", "--json").out)

    assert by_model[0].endswith("COST  THE HARNESS SAYS")
    assert [line.split()[-1] for line in by_model[1:]] == ["$0.000001", "$0.20", "$0.20"]
    assert [it["harness_microusd"] for it in account["sums"]] == [1, 200_000]
    assert account["total"]["harness_microusd"] == 200_001
    assert account["total"]["harness_is_partial"] is False
    assert [it["harness_microusd"] for it in by_capsule["sums"]] == [200_001]
    assert later["total"]["harness_microusd"] is None


def test_a_harness_that_says_nothing_leaves_what_others_say_partial(command: Command) -> None:
    command.run(told(0.2, "acme:a"))
    command.run(ONE_CALL)

    by_model = command("spend", "--by", "model").out.splitlines()
    account = json.loads(command("spend", "--by", "model", "--json").out)

    assert [line.split()[-2:] for line in by_model[1:]] == [
        ["—", "$0.20"],
        ["$0.12", "—"],
        ["≥", "$0.20"],
    ]
    assert (account["total"]["harness_microusd"], account["total"]["harness_is_partial"]) == (
        200_000,
        True,
    )


def test_spend_of_nothing_is_a_dash_and_never_nothing(command: Command) -> None:
    command.run(HELLO)

    done = command("spend")

    assert done.out.splitlines()[1].split() == ["all", "0", "0", "—", "—"]
    assert "$0" not in done.out


def test_spend_since_an_instant(command: Command) -> None:
    command.run(ONE_CALL)

    def steps(since: str) -> int:
        account = json.loads(command("spend", "--since", since, "--json").out)
        found: int = account["total"]["steps"]
        return found

    assert [steps(since) for since in ("24h", "2020-01-31", "2999-01-01")] == [1, 1, 0]


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "7 days", "99999999999d"])
def test_spend_since_what_is_no_instant(command: Command, since: str) -> None:
    done = command("spend", "--since", since)

    assert done.status == 2
    assert "no date like 2026-01-31 and no duration" in done.err


# What is not needed is not loaded.


@pytest.mark.parametrize(("harness", "loaded"), [(HELLO, "False"), (UNPRICED, "True")])
def test_prices_are_loaded_only_where_something_has_to_be_priced(
    command: Command, harness: str, loaded: str
) -> None:
    words = ["run", command.capsule(harness), "--task", "go", *ADVISORY]
    code = (
        "import sys; from capsule_runtime.cli import main; main(sys.argv[1:]);"
        "print('genai_prices' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=command.env,
        cwd=command.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == loaded


def test_prices_that_were_loaded_once_are_kept(command: Command) -> None:
    command.run(UNPRICED)

    kept = command.state / "cache" / "prices.msgpack"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_one_damaged_log_does_not_hide_what_the_others_say(command: Command) -> None:
    command.run(ONE_CALL)
    command.run(ONE_CALL)
    whole, hurt = [row["id"] for row in json.loads(command("ps", "--all", "--json").out)]
    with closing(sqlite3.connect(command.state / "capsule.db")) as database, database:
        number = database.execute("select no from runs where id = ?", (hurt,)).fetchone()[0]
        database.execute("update log set body = x'fffe0a' where run = ?", (number,))
    done = command("spend", "--json")
    account = json.loads(done.out)

    assert done.status == 10
    assert f"the log of {hurt} is damaged" in done.err
    assert account["damaged"] == [hurt]
    assert (account["total"]["runs"], account["total"]["cost"]["shown"]) == (1, "$0.12")
    assert whole != hurt
