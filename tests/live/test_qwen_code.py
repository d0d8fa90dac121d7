"""Qwen Code itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.live.ended import Counts, total
from support.live.rig import PROVIDERS, Going, Rig

KIT = "qwen-code"
CAPSULE = Path(__file__).parents[2] / "capsules" / "triage-issue"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)


def test_the_ready_capsule(rig: Rig) -> None:
    grants = ("--grant", "provider=openai")

    ended = rig.run("Please MOCK:plain", *grants, capsule=str(CAPSULE))

    assert ended.outcome == ("completed", "completed", 0)
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.every_tier
def test_a_plain_answer(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain", capsule=rig.capsule(system_prompt="Be brief."))

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert known(ended.counted) == known(total(rig.served()))


def test_it_asks_the_model_for_nothing_beside_the_task(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain")

    assert ended.outcome == DONE
    assert [line["at"] for line in rig.asked()].count("asked") == 1


def test_a_ceiling_that_is_crossed(rig: Rig) -> None:
    ended = rig.run("Please MOCK:loop", "--max-tokens", "2000")

    assert ended.outcome == ("refused", "tokens", 3)
    assert known(ended.counted) == known(total(rig.served()))


def test_a_server_that_is_busy_for_a_while(rig: Rig) -> None:
    ended = rig.run("Please MOCK:flaky")

    assert ended.outcome == DONE
    assert known(ended.counted) == known(total(rig.served()))


def test_a_key_that_is_missing(rig: Rig) -> None:
    refused = rig.run_without_key("MOCK:plain")

    assert refused.status == 8
    assert "_API_KEY" in refused.err


@pytest.mark.parametrize(
    ("auth", "model"), [("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-2.5-pro")]
)
def test_other_apis(rig: Rig, auth: str, model: str) -> None:
    rig.providers = PROVIDERS
    capsule = rig.capsule(config={"auth": auth})

    ended = rig.run("Please MOCK:tool", "--model", model, capsule=capsule)

    assert ended.outcome == DONE
    served = total(rig.served())
    # What was written to Anthropic's cache it counts as input.
    written = served.get("cache_write_tokens", 0)
    assert read(ended.counted) == {
        **read(served),
        "input_tokens": served["input_tokens"] + written,
    }


@pytest.mark.every_tier
def test_a_tool_that_runs(rig: Rig) -> None:
    ended = rig.run("Please MOCK:tool")

    assert ended.outcome == DONE
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (artifact["content"], artifact["is_error"]) == ("hi\noops", False)
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
    assert ended.usage == [{}]  # nobody told what the answer used


def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert artifact["is_error"] is True
    assert known(ended.counted) == known(total(rig.served()))


def test_steered_words_are_answered_when_the_turn_is_over(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        steered = [
            rig.capsule_command("steer", going.run, f"{word} MOCK:plain", "--json")
            for word in ("one", "two")
        ]
        ended = going.ended()

    assert [one.status for one in steered] == [0, 0]
    assert ended.outcome == DONE
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True, True]
    assert known(ended.counted) == known(total(rig.served()))


def test_ctrl_c_while_words_wait(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        steered = rig.capsule_command("steer", going.run, "and then MOCK:plain", "--json")
        going.interrupt()
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it left by itself
    assert [steer["taken_at"] for steer in ended.result["steers"]] == [None]
    assert [line["at"] for line in rig.asked()].count("asked") == 1


def test_asking_for_permission_that_is_given(rig: Rig) -> None:
    asking = rig.capsule(config={"permissions": "ask"})

    ended = rig.run("Please MOCK:touch", "--on-permission", "allow", capsule=asking)

    assert ended.outcome == DONE
    (asked,) = [event for event in ended.events if event["type"] == "permission"]
    assert asked["tool"] == "run_shell_command"
    assert (rig.workdir / "touched.txt").exists()


def test_asking_for_permission_that_is_denied(rig: Rig) -> None:
    asking = rig.capsule(config={"permissions": "ask"})

    ended = rig.run("Please MOCK:touch", "--on-permission", "deny", capsule=asking)

    assert len([event for event in ended.events if event["type"] == "permission"]) == 1
    assert not (rig.workdir / "touched.txt").exists()


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
    for kept in rig.state.rglob(".qwen/projects/*/chats/*.jsonl"):
        kept.unlink()

    ended = rig.run("Please MOCK:plain", "--context", "talk")

    assert ended.outcome == ("failed", "session-gone", 1)


@pytest.mark.parametrize(("status", "kind", "code"), [(400, "other", 1), (401, "auth", 8)])
def test_an_error_of_the_api(rig: Rig, status: int, kind: str, code: int) -> None:
    ended = rig.run(f"Please MOCK:http{status}")

    assert ended.outcome == ("failed", kind, code)
    assert ended.usage == []
    assert ended.text == ""  # what it says of the error is no answer


def test_it_tries_again_in_silence_until_a_limit_ends_it(rig: Rig) -> None:
    ended = rig.run("Please MOCK:http500", capsule=rig.capsule(limits='wall = "8s"'))

    assert ended.outcome == ("timed-out", "wall", 124)
    assert ended.counted == {}


def test_a_server_that_stays_busy(rig: Rig) -> None:
    ended = rig.run("Please MOCK:http429", capsule=rig.capsule(config={"retries": 1}))

    assert ended.outcome == ("failed", "rate-limit", 1)
    assert ended.counted == {}
    retries = [event for event in ended.events if event["type"] == "retrying"]
    assert [(retry["attempt"], retry["max"], retry["delay"]) for retry in retries] == [(1, 1, 1.0)]


@pytest.mark.parametrize("scenario", ["refusal", "maxtok"])
def test_an_answer_that_stopped_early_looks_like_any_other(rig: Rig, scenario: str) -> None:
    ended = rig.run(f"Please MOCK:{scenario}")

    assert ended.outcome == DONE
    assert known(ended.counted) == known(total(rig.served()))


def test_too_many_turns(rig: Rig) -> None:
    ended = rig.run("Please MOCK:loop", capsule=rig.capsule(config={"max_turns": 2}))

    assert ended.outcome == ("failed", "max-turns", 1)
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
    """Return *counts* without what Qwen Code does not tell."""
    untold = ("reasoning_tokens", "cache_write_tokens")
    return {name: count for name, count in counts.items() if name not in untold}


def read(counts: Counts) -> Counts:
    """Return of *counts* what every provider tells."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    return {name: counts[name] for name in names}
