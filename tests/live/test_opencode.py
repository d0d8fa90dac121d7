"""opencode itself, over the Agent Client Protocol and by `run`."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from support.live.ended import Ended, total
from support.live.rig import Going, Rig

KIT = "opencode"
CAPSULES = Path(__file__).parents[2] / "capsules"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)
RUN = {"mode": "run"}
MODES = [{}, RUN]


@pytest.mark.every_tier
def test_a_plain_answer(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain")

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


@pytest.mark.every_tier
def test_a_plain_answer_of_run(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain", capsule=rig.capsule(config=RUN))

    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert ended.usage == rig.served()


@pytest.mark.every_tier
@pytest.mark.parametrize("config", MODES)
def test_a_tool_that_runs(rig: Rig, config: dict[str, object]) -> None:
    ended = rig.run("Please MOCK:tool", capsule=rig.capsule(config=config))

    assert ended.outcome == DONE
    (call,) = [event for event in ended.events if event["type"] == "tool-call"]
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (call["name"], artifact["tool_call_id"]) == ("bash", call["id"])
    assert (artifact["content"], artifact["exit_code"]) == ("hi\noops\n", 0)
    assert (rig.workdir / "ran.txt").exists()
    assert ended.result["turns"] == 2
    first, second = rig.served()
    # Over the protocol it tells the numbers of the last call alone; the first one is unknown.
    assert ended.usage == ([first, second] if config else [{}, second])
    cost = ended.result["cost"]  # of what passed the gateway: all of it is known
    assert cost["least_microusd"] == cost["most_microusd"] > 0
    assert ended.result["harness_microusd"] > 0
    assert not ended.result["harness_is_partial"]  # its own dollars are those of the whole turn


def test_tools_at_the_same_time(rig: Rig) -> None:
    ended = rig.run("Please MOCK:multi", capsule=rig.capsule(config=RUN))

    assert ended.outcome == DONE
    assert len([frame for frame in ended.frames if frame["type"] == "artifact"]) == 3
    assert ended.usage == rig.served()


def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it left by itself
    assert ended.usage == [{}]


def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert len([frame for frame in ended.frames if frame["type"] == "artifact"]) == 1


@pytest.mark.every_tier
def test_ctrl_c_while_run_works(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang", capsule=rig.capsule(config=RUN)) as going:
        going.until(lambda frame: "inference turn" in frame.get("message", ""))
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED


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


@pytest.mark.parametrize(("policy", "is_done"), [("allow", True), ("deny", False)])
def test_asking_for_permission(rig: Rig, policy: str, is_done: bool) -> None:
    asking = rig.capsule(config={"permissions": "ask"})
    ended = rig.run("Please MOCK:touch", "--on-permission", policy, capsule=asking)

    (asked,) = [event for event in ended.events if event["type"] == "permission"]
    assert (asked["tool"], asked["input"]["command"]) == ("bash", "date > touched.txt")
    assert (rig.workdir / "touched.txt").exists() == is_done
    assert ended.outcome == DONE


@pytest.mark.every_tier
@pytest.mark.parametrize("config", MODES)
def test_resumed_in_a_new_process(rig: Rig, config: dict[str, object]) -> None:
    capsule = rig.capsule(config=config)
    first = rig.run("Please MOCK:plain", "--context", "talk", capsule=capsule)
    second = rig.run("Please MOCK:plain", "--context", "talk", capsule=capsule)

    assert (first.outcome, second.outcome) == (DONE, DONE)
    assert first.result["session"] == second.result["session"]
    served = rig.served()
    assert (first.usage, second.usage) == (served[:1], served[1:])
    assert second.text == ("" if config else "Hello from the mock. Turn done.")
    costs = [one["cost_usd"] for one in (*dollars(first), *dollars(second))]
    assert costs == pytest.approx([0.0042, 0.0042], abs=1e-3)  # not the session's, a second time


@pytest.mark.parametrize("config", MODES)
def test_a_session_that_is_gone(rig: Rig, config: dict[str, object]) -> None:
    capsule = rig.capsule(config=config)
    rig.run("Please MOCK:plain", "--context", "talk", capsule=capsule)
    for kept in rig.state.rglob(".local/share/opencode"):
        shutil.rmtree(kept)

    ended = rig.run("Please MOCK:plain", "--context", "talk", capsule=capsule)

    assert ended.outcome[0] == "failed"
    assert ended.failure == "session-gone"
    assert "E-RUN-036" in ended.result["message"]


@pytest.mark.parametrize("config", MODES)
@pytest.mark.parametrize(("status", "kind"), [(400, "other"), (401, "auth"), (429, "rate-limit")])
def test_an_error_of_the_api(rig: Rig, status: int, kind: str, config: dict[str, object]) -> None:
    ended = rig.run(f"Please MOCK:http{status}", capsule=rig.capsule(config=config))

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.counted == {}


def test_an_error_that_it_tries_again_is_ended_by_the_limit_of_the_run(rig: Rig) -> None:
    ended = rig.run("Please MOCK:http500", capsule=rig.capsule(limits='wall = "6s"'))

    assert ended.outcome in (("timed-out", "wall", 124), ("failed", "other", 1))
    assert ended.counted == {}


def test_an_answer_that_is_declined(rig: Rig) -> None:
    ended = rig.run("Please MOCK:refusal", capsule=rig.capsule(config=RUN))

    assert ended.outcome == ("failed", "declined", 1)
    assert ended.usage == rig.served()


def test_an_answer_that_is_cut_off_by_its_length(rig: Rig) -> None:
    ended = rig.run("Please MOCK:maxtok", capsule=rig.capsule(config=RUN))

    assert ended.outcome == ("failed", "truncated", 1)
    assert ended.usage == rig.served()


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
    assert "ANTHROPIC_API_KEY" in refused.err


def test_the_capsule_that_is_shipped_for_it(rig: Rig) -> None:
    grants = ("--grant", "provider=anthropic")
    ended = rig.run("MOCK:tool", *grants, capsule=str(CAPSULES / "fix-test"))

    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."


def until_tool(going: Going) -> None:
    """Wait until the first answer is over and its tool runs."""
    going.until_text(".")
    going.until_said("tool-call")


def dollars(ended: Ended) -> list[dict[str, float]]:
    """Return the reports that hold the harness's own dollars."""
    return [event for event in ended.events if "cost_usd" in event]
