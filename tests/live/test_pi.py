"""pi itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.live.ended import Counts, total
from support.live.rig import PROVIDERS, Going, Rig

KIT = "pi"
CAPSULE = Path(__file__).parents[2] / "capsules" / "write-docs"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)


def test_the_ready_capsule(rig: Rig) -> None:
    grants = ("--grant", "provider=anthropic")

    ended = rig.run("Please MOCK:tool", *grants, capsule=str(CAPSULE))

    assert ended.outcome == ("completed", "completed", 0)
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.every_tier
def test_a_plain_answer(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain", capsule=rig.capsule(system_prompt="Be brief."))

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert known(ended.counted) == known(total(rig.served()))


def test_a_ceiling_that_is_crossed(rig: Rig) -> None:
    ended = rig.run("Please MOCK:loop", "--max-tokens", "2000")

    assert ended.outcome == ("refused", "tokens", 3)
    assert known(ended.counted) == known(total(rig.served()))


def test_a_server_that_is_not_there(rig: Rig) -> None:
    rig.configure("http://127.0.0.1:9")

    ended = rig.run("Please MOCK:plain")

    assert ended.outcome == ("failed", "other", 1)
    assert len([event for event in ended.events if event["type"] == "retrying"]) == 3
    assert ended.counted == {}


def test_a_server_that_is_busy_for_a_while(rig: Rig) -> None:
    ended = rig.run("Please MOCK:flaky")

    assert ended.outcome == DONE
    assert known(ended.counted) == known(total(rig.served()))


def test_a_key_that_is_missing(rig: Rig) -> None:
    refused = rig.run_without_key("MOCK:plain")

    assert refused.status == 8
    assert "_API_KEY" in refused.err


@pytest.mark.parametrize("model", ["openai:gpt-5", "google:gemini-2.5-pro"])
def test_models_of_others(rig: Rig, model: str) -> None:
    rig.providers = PROVIDERS
    ended = rig.run("Please MOCK:tool", "--model", model)

    assert ended.outcome == DONE
    assert {e["model"] for e in ended.events if e["type"] == "usage"} == {model}
    assert read(ended.counted) == read(total(rig.served()))


def test_a_server_of_your_own(rig: Rig) -> None:
    rig.providers = ("openai",)
    config = {"provider": "openai", "api": "openai-completions"}
    capsule = rig.capsule(config=config)

    ended = rig.run("Please MOCK:tool", "--model", "llama", capsule=capsule)

    assert ended.outcome == DONE
    assert read(ended.counted) == read(total(rig.served()))


@pytest.mark.every_tier
def test_a_tool_that_runs(rig: Rig) -> None:
    ended = rig.run("Please MOCK:tool")

    assert ended.outcome == DONE
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (artifact["content"], artifact["is_error"]) == ("hi\noops\n", False)
    assert (rig.workdir / "ran.txt").exists()
    assert ended.result["turns"] == 2
    assert known(ended.counted) == known(total(rig.served()))


def test_tools_at_the_same_time(rig: Rig) -> None:
    ended = rig.run("Please MOCK:multi")

    assert ended.outcome == DONE
    failed = [frame["is_error"] for frame in ended.frames if frame["type"] == "artifact"]
    assert sorted(failed) == [False, False, True]
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.every_tier
def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it left by itself
    (cut_off,) = ended.usage
    assert "output_tokens" not in cut_off  # what was written of the answer nobody told


def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert artifact["is_error"] is True
    assert known(ended.counted) == known(total(rig.served()))


def test_steered_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:loop") as going:
        until_tool(going)
        steered = rig.capsule_command("steer", going.run, "STEER please stop now", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert "I saw: " in ended.result["response"]
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True]
    assert len(rig.served()) < 6  # the loop was left before its end
    assert known(ended.counted) == known(total(rig.served()))


def test_steered_while_it_writes_its_last_words(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w150 ")
        steered = rig.capsule_command("steer", going.run, "and then MOCK:plain", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True]
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.every_tier
def test_resumed_in_a_new_process(rig: Rig) -> None:
    first = rig.run("Please MOCK:plain", "--context", "talk")
    second = rig.run("Please MOCK:tool", "--context", "talk")

    assert (first.outcome, second.outcome) == (DONE, DONE)
    assert first.result["session"] == second.result["session"]
    served = rig.served()
    assert known(first.counted) == known(total(served[:1]))
    assert known(second.counted) == known(total(served[1:]))


def test_a_session_that_is_gone(rig: Rig) -> None:
    rig.run("Please MOCK:plain", "--context", "talk")
    for kept in rig.state.rglob(".pi/agent/sessions/*/*.jsonl"):
        kept.unlink()

    ended = rig.run("Please MOCK:plain", "--context", "talk")

    assert ended.outcome == ("failed", "session-gone", 1)


@pytest.mark.parametrize(
    ("status", "kind", "retries"),
    [(400, "other", 0), (401, "auth", 0), (429, "rate-limit", 3), (500, "other", 3)],
)
def test_an_error_of_the_api(rig: Rig, status: int, kind: str, retries: int) -> None:
    ended = rig.run(f"Please MOCK:http{status}")

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.usage == []
    assert len([e for e in ended.events if e["type"] == "retrying"]) == retries


def test_an_answer_that_is_declined(rig: Rig) -> None:
    ended = rig.run("Please MOCK:refusal")

    assert ended.outcome == ("failed", "declined", 1)
    assert known(ended.counted) == known(total(rig.served()))


def test_an_answer_that_is_cut_off_by_its_length(rig: Rig) -> None:
    ended = rig.run("Please MOCK:maxtok")

    assert ended.outcome == ("failed", "truncated", 1)
    assert known(ended.counted) == known(total(rig.served()))


def test_killed_from_outside(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome == ("failed", "harness-error", 1)
    assert known(ended.counted) == known(total(rig.served()))


def until_tool(going: Going) -> None:
    """Wait until the first answer is over and its tool runs."""
    going.until_text(".")
    going.until_said("usage")


def known(counts: Counts) -> Counts:
    """Return *counts* without reasoning, which pi does not tell."""
    return {name: count for name, count in counts.items() if name != "reasoning_tokens"}


def read(counts: Counts) -> Counts:
    """Return of *counts* what every provider tells."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    return {name: counts[name] for name in names}
