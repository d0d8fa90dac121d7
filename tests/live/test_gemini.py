"""Gemini CLI itself, over the Agent Client Protocol and by stream-json."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from support.live.ended import Counts, total
from support.live.rig import Going, Rig

KIT = "gemini"
CAPSULES = Path(__file__).parents[2] / "capsules"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)
STREAM = {"mode": "stream-json"}
MODES = [{}, STREAM]


def told_by_acp(served: list[Counts]) -> list[Counts]:
    """Return what it tells of *served*: a sum, without the cache and thoughts apart."""
    all_in = total(served)
    prompt = all_in["input_tokens"] + all_in["cache_read_tokens"]
    output = all_in["output_tokens"] - all_in["reasoning_tokens"]
    return [{"input_tokens": prompt, "output_tokens": output}, {}]


@pytest.mark.every_tier
def test_a_plain_answer(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain")

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert ended.usage == told_by_acp(rig.served())


def test_a_plain_answer_of_stream_json(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain", capsule=rig.capsule(config=STREAM))

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.counted == total(rig.served())


@pytest.mark.every_tier
@pytest.mark.parametrize("config", MODES)
def test_a_tool_that_runs(rig: Rig, config: dict[str, object]) -> None:
    ended = rig.run("Please MOCK:tool", capsule=rig.capsule(config=config))

    assert ended.outcome == DONE
    (call,) = [event for event in ended.events if event["type"] == "tool-call"]
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (call["name"], artifact["tool_call_id"]) == ("run_shell_command", call["id"])
    assert (rig.workdir / "ran.txt").exists()
    assert ended.result["turns"] == 2
    if config:
        assert artifact["content"] == "hi\noops"
        assert ended.counted == total(rig.served())
    else:
        assert ended.usage == told_by_acp(rig.served())


@pytest.mark.every_tier
def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it left by itself
    assert ended.usage == [{}]


@pytest.mark.parametrize("config", MODES)
def test_ctrl_c_while_a_tool_runs(rig: Rig, config: dict[str, object]) -> None:
    with rig.started("Please MOCK:toolhang", capsule=rig.capsule(config=config)) as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert len([event for event in ended.events if event["type"] == "tool-call"]) == 1


def test_steered_while_it_writes(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w150 ")
        steered = rig.capsule_command("steer", going.run, "and then MOCK:plain", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True]


@pytest.mark.parametrize(("policy", "is_done"), [("allow", True), ("deny", False)])
def test_asking_for_permission(rig: Rig, policy: str, is_done: bool) -> None:
    asking = rig.capsule(config={"permissions": "ask"})
    ended = rig.run("Please MOCK:touch", "--on-permission", policy, capsule=asking)

    (asked,) = [event for event in ended.events if event["type"] == "permission"]
    assert asked["tool"] == "run_shell_command"
    assert (rig.workdir / "touched.txt").exists() == is_done
    assert ended.status in (0, 1)
    ended.check()


@pytest.mark.every_tier
def test_resumed_in_a_new_process(rig: Rig) -> None:
    first = rig.run("Please MOCK:plain", "--context", "talk")
    second = rig.run("Please MOCK:tool", "--context", "talk")

    assert (first.outcome, second.outcome) == (DONE, DONE)
    assert first.result["session"] == second.result["session"]
    assert second.counted == total(rig.served()[1:])


def test_a_session_that_is_gone(rig: Rig) -> None:
    rig.run("Please MOCK:plain", "--context", "talk")
    for kept in rig.state.rglob(".gemini/tmp/*/chats"):
        shutil.rmtree(kept)

    ended = rig.run("Please MOCK:plain", "--context", "talk")

    assert ended.outcome[0] == "failed"
    assert ended.failure == "session-gone"
    assert "E-RUN-036" in ended.result["message"]


@pytest.mark.parametrize("config", MODES)
@pytest.mark.parametrize(("status", "kind"), [(400, "other"), (401, "auth")])
def test_an_error_of_the_api(rig: Rig, status: int, kind: str, config: dict[str, object]) -> None:
    ended = rig.run(f"Please MOCK:http{status}", capsule=rig.capsule(config=config))

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.counted == {}


@pytest.mark.parametrize(("status", "kind"), [(429, "rate-limit"), (500, "other")])
def test_an_error_that_it_tries_again(rig: Rig, status: int, kind: str) -> None:
    ended = rig.run(f"Please MOCK:http{status}")

    assert ended.outcome == ("failed", kind, 1)
    assert ended.counted == {}


@pytest.mark.parametrize("config", MODES)
def test_an_answer_that_is_declined_looks_like_any_other(
    rig: Rig, config: dict[str, object]
) -> None:
    ended = rig.run("Please MOCK:refusal", capsule=rig.capsule(config=config))

    assert ended.outcome == DONE
    assert ended.result["response"] == "I cannot help with that."


def test_killed_from_outside(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome[0] == "failed"
    assert ended.failure == "harness-error"


def test_a_system_prompt_and_a_key_that_is_missing(rig: Rig) -> None:
    done = rig.run("MOCK:plain", capsule=rig.capsule(system_prompt="Be brief."))
    refused = rig.run_without_key("MOCK:plain")

    assert done.outcome == DONE
    assert refused.status == 8
    assert "GEMINI_API_KEY" in refused.err


def test_the_capsule_that_is_shipped_for_it(rig: Rig) -> None:
    grants = (
        "--grant",
        "provider=google",
    )
    ended = rig.run("MOCK:tool", *grants, capsule=str(CAPSULES / "explain-change"))

    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."


def until_tool(going: Going) -> None:
    """Wait until the first answer is over and its tool runs."""
    going.until_text(".")
    going.until_said("tool-call")
