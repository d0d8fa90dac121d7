"""The driver `acp` on agents that it does not know: the manifest names the command.

Gemini CLI, opencode and Qwen Code each speak the protocol in their own way.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal

import pytest

from support.live.ended import Counts, Ended
from support.live.rig import Going, Rig

KIT = "gemini"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)
ANSWER = "Hello from the mock. Turn done."

SETTINGS: dict[str, tuple[str, object]] = {
    "gemini": (
        ".gemini/settings.json",
        {
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "maxAttempts": 1},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        },
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        {
            "autoupdate": False,
            "share": "disabled",
            "agent": {"title": {"disable": True}},
            "model": "anthropic/claude-sonnet-4-5",
        },
    ),
    "qwen-code": (
        ".qwen/settings.json",
        {
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
            # Calls of the model that no report counts.
            "ui": {"enableFollowupSuggestions": False},
            "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        },
    ),
}
"""What a person who uses the agent has set: the driver writes no file for an agent it does not know."""
COMMANDS = {
    "gemini": "exec gemini --acp --skip-trust",
    "opencode": 'export ANTHROPIC_BASE_URL="$ANTHROPIC_BASE_URL/v1" OPENCODE_DISABLE_AUTOUPDATE=1'
    " OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1"
    " OPENCODE_DISABLE_DEFAULT_PLUGINS=1; exec opencode acp",
    "qwen-code": "export OPENAI_MODEL=mock-model; exec qwen --acp --auth-type openai",
}


IN_EVERY_TIER = {
    name: pytest.param(name, marks=pytest.mark.every_tier) for name in ("gemini", "qwen-code")
}
"""Not opencode: it listens at a port of its own, which a scoped run may not."""


def on(*agents: object) -> pytest.MarkDecorator:
    """Run the test on each of *agents*."""
    return pytest.mark.parametrize("rig", agents, indirect=True)


def agent(rig: Rig, **config: object) -> str:
    """Write a capsule for the rig's agent; return its folder."""
    name, settings = SETTINGS[rig.kit]
    folder = os.path.dirname(name)
    wanted = shlex.quote(json.dumps(settings))
    script = f"mkdir -p ~/{folder}; echo {wanted} > ~/{name}; {COMMANDS[rig.kit]}"
    return rig.capsule("acp", command=("sh", "-c", script), config=config)


def told(rig: Rig) -> list[Counts]:
    """Return what the agent tells, in the protocol's words, of what the mock served."""
    served = rig.served()
    match rig.kit:
        case "opencode":  # the last call alone
            return [*({} for _ in served[:-1]), *served[-1:]]
        case "qwen-code":  # each call
            return served
        case _:
            return [{} for _ in served]


@on(IN_EVERY_TIER["gemini"], "opencode", IN_EVERY_TIER["qwen-code"])
def test_a_tool_that_runs(rig: Rig) -> None:
    mode = {"mode": "yolo"} if rig.kit != "opencode" else {}
    ended = rig.run("Please MOCK:tool", capsule=agent(rig, **mode))

    assert ended.outcome == DONE
    assert ended.text == f"I will run a command.{ANSWER}"
    assert ended.result["response"] == ANSWER
    assert len([event for event in ended.events if event["type"] == "tool-call"]) == 1
    assert len([frame for frame in ended.frames if frame["type"] == "artifact"]) == 1
    assert (rig.workdir / "ran.txt").exists()
    assert ended.usage == told(rig)


@pytest.mark.every_tier
@on("qwen-code")
def test_a_session_that_goes_on_in_a_new_process_until_it_is_gone(rig: Rig) -> None:
    first, second = (talk(rig) for _ in range(2))
    for kept in rig.state.rglob(".qwen/projects"):
        shutil.rmtree(kept)
    third = talk(rig)

    assert (first.outcome, first.text) == (DONE, ANSWER)
    assert (second.outcome, second.text) == (DONE, ANSWER)  # and the first one's is not said again
    assert first.result["session"] == second.result["session"]
    assert first.usage + second.usage == rig.served()
    assert (third.outcome[0], third.failure) == ("failed", "session-gone")
    assert "E-RUN-036" in third.result["message"]


def test_a_session_is_loaded_or_said_to_be_gone(rig: Rig) -> None:
    """Gemini CLI finds a session of an earlier process sometimes, and mostly it does not."""
    first, second = (talk(rig) for _ in range(2))

    assert (first.outcome, first.text) == (DONE, ANSWER)
    assert (second.outcome[0], second.failure) in (("completed", None), ("failed", "session-gone"))


@pytest.mark.parametrize(("policy", "is_done"), [("allow", True), ("deny", False)])
def test_a_question_that_the_policy_answers(rig: Rig, policy: str, is_done: bool) -> None:
    asking = agent(rig, permissions="ask")
    ended = rig.run("Please MOCK:touch", "--on-permission", policy, capsule=asking)

    (asked,) = [event for event in ended.events if event["type"] == "permission"]
    assert asked["tool"] == "run_shell_command"
    assert (rig.workdir / "touched.txt").exists() == is_done
    assert ended.status in (0, 1)
    ended.check()


@pytest.mark.every_tier
@on("gemini", "qwen-code")
def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow", capsule=agent(rig)) as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it answered that it stopped
    assert ended.usage == [{}]


@on("qwen-code")
def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang", capsule=agent(rig, mode="yolo")) as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert len([frame for frame in ended.frames if frame["type"] == "artifact"]) == 1
    assert ended.usage == rig.served()


def test_steered_while_it_writes(rig: Rig) -> None:
    with rig.started("Please MOCK:brief", capsule=agent(rig)) as going:
        going.until_text("w1 ")
        steered = rig.capsule_command("steer", going.run, "and then MOCK:plain", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert ended.result["response"] == ANSWER
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True]
    assert ended.usage == told(rig)


@pytest.mark.parametrize(("status", "kind"), [(401, "auth"), (429, "rate-limit"), (500, "other")])
def test_an_error_of_the_api(rig: Rig, status: int, kind: str) -> None:
    ended = rig.run(f"Please MOCK:http{status}", capsule=agent(rig))

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.usage == []


@on("qwen-code")
def test_an_error_that_is_told_in_words_alone(rig: Rig) -> None:
    ended = rig.run("Please MOCK:http401", capsule=agent(rig))

    assert ended.outcome == ("failed", "auth", 8)


@on("opencode")
def test_an_answer_that_is_declined(rig: Rig) -> None:
    ended = rig.run("Please MOCK:refusal", capsule=agent(rig))

    assert ended.outcome == ("failed", "declined", 1)
    assert ended.usage == rig.served()


def test_killed_from_outside(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang", capsule=agent(rig)) as going:
        until_tool(going)
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome[0] == "failed"
    assert ended.failure == "harness-error"


@on("qwen-code")
def test_a_task_that_begins_with_a_slash_is_a_task(rig: Rig) -> None:
    ended = rig.run("/help MOCK:plain", capsule=agent(rig))

    assert ended.outcome == DONE
    assert ended.result["response"] == ANSWER


def talk(rig: Rig) -> Ended:
    """Run a plain task in the same context as before."""
    return rig.run("Please MOCK:plain", "--context", "talk", capsule=agent(rig))


def until_tool(going: Going) -> None:
    """Wait until the first answer is over and its tool runs."""
    going.until_text(".")
    going.until_said("tool-call")
