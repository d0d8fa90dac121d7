"""`capsule run --driver`: a harness as it is, with no capsule around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import ADVISORY, Command
from support.drivers import install_drivers

GREETER = """
if [ "$1" = --version ]; then echo "greeter 1.2.3"; exit; fi
read task
echo '{"type":"session","id":"s1","model":"p:m"}'
echo '{"type":"turn-end","result":"hello from '"$PWD, $GREETING, $*"'"}'
"""
MODEL = "anthropic:claude-sonnet-4-5"
RUN = ("run", "--driver", "greeter", "--task", "hi", *ADVISORY)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    found = Command(tmp_path)
    found.env["PYTHONPATH"] = f"{install_drivers(tmp_path / 'drivers')}:{Path(__file__).parents[1]}"
    found.install("greeter", GREETER)
    (tmp_path / "work").mkdir()
    return found


def test_a_harness_runs_without_a_capsule(command: Command) -> None:
    done = command(*RUN, "--workdir", "work", "--env", "GREETING=hello", "--", "--fast", "./x")
    result = json.loads(command("show", "@last", "--json").out)

    assert done.status == 0
    assert done.out == f"hello from {command.folder}/work, hello, --fast ./x\n"
    assert (result["capsule"], result["driver"], result["version"]) == (
        "greeter",
        "greeter",
        "0.0.0",
    )


def test_the_task_may_come_from_stdin(command: Command) -> None:
    done = command("run", "--driver", "greeter", "-", *ADVISORY, stdin=b"hi")

    assert done.status == 0


def test_it_has_the_defaults_of_every_capsule_and_asks_for_nothing(command: Command) -> None:
    done = command(
        *RUN, "--explain", "--json", "--model", MODEL, "--max-usd", "1", "--context", "c"
    )
    plan = json.loads(done.out)

    assert plan["asks"]["asked"] == []
    assert (plan["model"], plan["context"]) == (MODEL, "c")
    assert plan["ceilings"]["microusd"] == 1_000_000
    assert plan["limits"]["wall_seconds"] == 3600
    assert plan["on_permission"] == "deny"


def test_runs_of_one_context_go_on_in_the_same_session(command: Command) -> None:
    first = command(*RUN, "--context", "talk")
    second = command(*RUN, "--context", "talk")
    started = json.loads(command("explain", "@last", "--json").out)

    assert (first.status, second.status) == (0, 0)
    assert started["attempt"]["session"] == "s1"


def test_a_driver_and_a_capsule_are_one_too_many(command: Command) -> None:
    done = command("run", command.capsule("true"), "--driver", "greeter", "--task", "hi")

    assert done.status == 2
    assert "--driver greeter runs a harness without a capsule" in done.err


def test_neither_a_driver_nor_a_capsule_is_too_little(command: Command) -> None:
    done = command("run", "--task", "hi")

    assert done.status == 2
    assert "missing argument" in done.err


def test_a_driver_for_any_program_has_none_to_run(command: Command) -> None:
    done = command("run", "--driver", "jsonl", "--task", "hi", *ADVISORY)

    assert done.status == 2
    assert "error[E-USE-036]" in done.err


def test_a_driver_that_is_not_installed_is_named_with_those_that_are(command: Command) -> None:
    done = command("run", "--driver", "nope", "--task", "hi", *ADVISORY)

    assert done.status == 8
    assert "no driver is named 'nope'" in done.err and "greeter" in done.err


def test_what_is_granted_to_a_harness_as_it_is_it_is_taken_to_ask_for(command: Command) -> None:
    command.install("claude", "exit 0")
    words = ("--driver", "claude-code", "--task", "x", "--env", "ANTHROPIC_API_KEY=x", *ADVISORY)

    done = command("run", *words, "--grant", "host=api.anthropic.com", "--explain", "--json")

    assert json.loads(done.out)["grants"]["hosts"] == ["api.anthropic.com"]


def test_who_has_no_key_is_told_of_the_gateway(command: Command) -> None:
    command.install("claude", "exit 0")

    done = command("run", "--driver", "claude-code", "--task", "x", *ADVISORY)

    assert done.status == 8
    assert "--grant provider=anthropic" in done.err
    assert "--env ANTHROPIC_API_KEY" in done.err


def test_the_plan_shows_what_the_gateway_tells_the_harness(command: Command) -> None:
    command.install("claude", "exit 0")
    words = ("--driver", "claude-code", "--task", "x", "--grant", "provider=anthropic", *ADVISORY)

    plan = json.loads(command("run", *words, "--explain", "--json").out)

    told = {name for name, origin in plan["env"].items() if origin == "gateway"}
    assert told == {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
    assert (plan["ledger"], plan["spend"]) == ("gateway", "before-call")


def test_who_has_another_way_to_a_model_has_an_account_by_what_it_tells(command: Command) -> None:
    command.install("claude", "exit 0")
    words = ("--driver", "claude-code", "--task", "x", "--grant", "provider=anthropic", *ADVISORY)
    other = {
        "key": ("--env", "ANTHROPIC_AUTH_TOKEN=x"),
        "host": ("--grant", "host=api.openai.com"),
        "upstream": ("--upstream", "127.0.0.1:4000"),
    }

    plans = {
        way: json.loads(command("run", *words, *more, "--explain", "--json").out)
        for way, more in other.items()
    }

    assert {way: plan["ledger"] for way, plan in plans.items()} == dict.fromkeys(other, "driver")
