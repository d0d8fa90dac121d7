"""mini-swe-agent itself."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from support.live.ended import Counts, total
from support.live.rig import Rig
from support.processes import started_by_runs

KIT = "mini-swe-agent"
CAPSULE = Path(__file__).parents[2] / "capsules" / "small-fix"


def test_the_ready_capsule(rig: Rig) -> None:
    grants = ("--grant", "provider=openai")

    ended = rig.run("MOCK:submit", *grants, capsule=str(CAPSULE))

    assert ended.outcome == ("completed", "completed", 0)
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.every_tier
def test_a_task_that_is_done(rig: Rig) -> None:
    ended = rig.run("MOCK:submit", capsule=rig.capsule(system_prompt="Be {{ brief }}."))

    assert ended.outcome == ("completed", "completed", 0)
    assert ended.result["response"].strip() == "done"
    assert [e["text"] for e in ended.events if e["type"] == "text"] == ["Submitting."]
    assert known(ended.counted) == known(total(rig.served()))


def test_a_model_of_another(rig: Rig) -> None:
    another = "anthropic:claude-sonnet-4-5"
    rig.providers = ("anthropic",)

    ended = rig.run("MOCK:submit", "--model", another)

    assert ended.outcome == ("completed", "completed", 0)
    (name,) = {event["model"] for event in ended.events if event["type"] == "usage"}
    assert name == another
    served = {n: c for n, c in total(rig.served()).items() if n != "reasoning_tokens"}
    counted = {n: c for n, c in ended.counted.items() if n != "reasoning_tokens"}
    assert counted == served


@pytest.mark.every_tier
def test_a_tool_that_runs(rig: Rig) -> None:
    ended = rig.run("MOCK:tool")  # and then answers that call none, which is an error to it

    assert ended.outcome == ("failed", "other", 1)
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (artifact["content"], artifact["is_error"], artifact["exit_code"]) == (
        "hi\noops\n",
        False,
        0,
    )
    assert (rig.workdir / "ran.txt").exists()
    assert len(rig.served()) == 4
    assert known(ended.counted) == known(total(rig.served()))


def test_tools_at_the_same_time(rig: Rig) -> None:
    ended = rig.run("MOCK:multi")

    codes = [frame["exit_code"] for frame in ended.frames if frame["type"] == "artifact"]
    assert codes == [0, 3, 0]
    assert known(ended.counted) == known(total(rig.served()))


def test_ctrl_c_while_nothing_comes(rig: Rig) -> None:
    with rig.started("MOCK:hang") as going:
        while not rig.asked():
            pass
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == ("canceled", "interrupted", 130)
    assert ended.counted == {}


@pytest.mark.every_tier
def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("MOCK:toolhang") as going:
        until_tool(rig)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == ("canceled", "interrupted", 130)
    assert known(ended.counted) == known(total(rig.served()))


def test_too_many_steps(rig: Rig) -> None:
    ended = rig.run("MOCK:loop", capsule=rig.capsule(config={"step_limit": 2}))

    assert ended.outcome == ("failed", "max-turns", 1)
    assert ended.result["turns"] == 2
    assert known(ended.counted) == known(total(rig.served()))


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "other"), (401, "auth"), (429, "rate-limit"), (500, "other")]
)
def test_an_error_of_the_api(rig: Rig, status: int, kind: str) -> None:
    ended = rig.run(f"MOCK:http{status}", capsule=rig.capsule(config={"retries": 1}))

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.counted == {}


def test_an_answer_that_is_declined_is_one_without_a_tool(rig: Rig) -> None:
    ended = rig.run("MOCK:refusal")

    assert ended.outcome == ("failed", "other", 1)
    assert known(ended.counted) == known(total(rig.served()))


def test_killed_from_outside(rig: Rig) -> None:
    with rig.started("MOCK:toolhang") as going:
        os.kill(until_tool(rig), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome == ("failed", "harness-error", 1)
    assert ended.usage == [{}]  # its trajectory does not know of the step; its words do


def test_the_trajectory_of_the_last_run_is_none_of_this_one(rig: Rig) -> None:
    rig.run("MOCK:submit", "--context", "talk")
    second = rig.run("MOCK:http401", "--context", "talk")

    assert second.outcome == ("failed", "auth", 8)
    assert second.usage == []


def until_tool(rig: Rig) -> int:
    """Wait until the tool runs that never ends; return the pid of the harness."""
    while not (commands := commands_of(rig)) or not any(b"tail\0-f" in c for c in commands):
        pass
    (pid,) = [pid for command, pid in commands.items() if b"/bin/mini\0" in command]
    return pid


def commands_of(rig: Rig) -> dict[bytes, int]:
    """Return what runs of the harness, by command line."""
    found: dict[bytes, int] = {}
    for pid in started_by_runs(rig.state):
        with suppress(FileNotFoundError, ProcessLookupError):
            found[Path(f"/proc/{pid}/cmdline").read_bytes()] = pid
    return found


def known(counts: Counts) -> Counts:
    """Return *counts* without writes to the cache, which nobody tells of OpenAI's."""
    return {name: count for name, count in counts.items() if name != "cache_write_tokens"}
