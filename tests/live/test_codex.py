"""Codex 0.171.0, by its app-server and by `exec --json`, against the mock."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.live.ended import Counts, Ended, total
from support.live.rig import Rig

KIT = "codex"
NOTES = Path(__file__).parents[2] / "capsules/release-notes"
HELLO = "Hello from the mock. Turn done."
EXEC: Mapping[str, object] = {"mode": "exec"}
COMPLETED = ("completed", "completed", 0)


def of_type(ended: Ended, type: str) -> list[dict[str, Any]]:
    return [event for event in ended.events if event["type"] == type]


def artifacts(ended: Ended) -> list[dict[str, Any]]:
    return [frame for frame in ended.frames if frame["type"] == "artifact"]


def called(rig: Rig, run: str) -> bool:
    """Whether a tool call is on record."""
    return any(fact.get("event", {}).get("type") == "tool-call" for fact in rig.facts(run))


def served(rig: Rig) -> list[Counts]:
    """Return what the mock served; Codex says zero where nobody told what went into the cache."""
    return [{**counts, "cache_write_tokens": 0} for counts in rig.served()]


def lose_sessions(rig: Rig) -> None:
    """Take away what Codex knows of its conversations."""
    for folder in (rig.state / "contexts").glob("*/home/.codex"):
        shutil.rmtree(folder)


# By the app-server.


@pytest.mark.every_tier
def test_an_answer_is_streamed_and_counted(rig: Rig) -> None:
    ended = rig.run("MOCK:plain")

    assert ended.outcome == COMPLETED
    assert ended.result["response"] == ended.text == HELLO
    assert ended.usage == served(rig)


def test_what_is_started_is_the_program_behind_the_launcher(rig: Rig) -> None:
    ended = rig.run("MOCK:plain")

    [started] = [fact for fact in ended.facts if fact.get("fact") == "attempt-started"]
    assert started["argv"][0].endswith("-unknown-linux-musl/bin/codex")


@pytest.mark.every_tier
def test_a_tool_runs_between_two_calls(rig: Rig) -> None:
    ended = rig.run("MOCK:tool")

    assert ended.outcome == COMPLETED
    [artifact] = artifacts(ended)
    assert (artifact["tool_name"], artifact["exit_code"]) == ("shell", 0)
    assert sorted(artifact["content"].split()) == ["hi", "oops"]
    assert (rig.workdir / "ran.txt").exists()
    assert ended.usage == served(rig)
    assert len(ended.usage) == 2


def test_parallel_tools_are_one_turn_of_the_model(rig: Rig) -> None:
    ended = rig.run("MOCK:multi")

    assert ended.outcome == COMPLETED
    assert [event["answer"][-2:] for event in of_type(ended, "tool-call")] == [":1", ":1", ":2"]
    assert [fact["turns"] for fact in ended.facts if fact.get("fact") == "ended"] == [3]
    assert ended.usage == served(rig)


@pytest.mark.every_tier
def test_an_interrupt_ends_the_turn_in_its_own_way(rig: Rig) -> None:
    with rig.started("MOCK:slow") as going:
        going.until_text("w3 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == ("canceled", "interrupted", 130)
    assert of_type(ended, "turn-failed")[-1]["message"] == "the turn was interrupted"
    assert ended.usage == [{}]  # it was under way: nobody knows what it used


def test_a_tool_that_hangs_is_closed_and_gone(rig: Rig) -> None:
    with rig.started("MOCK:toolhang") as going:
        going.until_text("A long command.")
        while not called(rig, going.run):
            pass
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == ("canceled", "interrupted", 130)
    [artifact] = artifacts(ended)
    assert artifact["is_error"]
    assert ended.usage == served(rig)


def test_words_reach_it_at_work(rig: Rig) -> None:
    with rig.started("MOCK:loop") as going:
        going.until_text("Step 1.")
        steered = rig.capsule_command("steer", going.run, "STEER stop now")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == COMPLETED
    assert ended.result["response"] == "I saw: STEER stop now"
    [steer] = ended.result["steers"]
    assert steer["taken_at"]
    assert ended.usage == served(rig)


def test_permission_is_asked_and_denied_and_it_goes_on(rig: Rig) -> None:
    ended = rig.run(
        "MOCK:permission",
        "--on-permission",
        "deny",
        capsule=rig.capsule(config={"approvals": "ask"}),
    )

    assert ended.outcome == COMPLETED
    [asked] = of_type(ended, "permission")
    assert asked["tool"] == "shell"
    assert "ran.txt" in asked["input"]["command"]
    assert not (rig.workdir / "ran.txt").exists()
    assert ended.usage == served(rig)


@pytest.mark.every_tier
def test_a_context_is_resumed_in_a_new_process(rig: Rig) -> None:
    first = rig.run("MOCK:plain", "--context", "talk")
    second = rig.run("MOCK:tool", "--context", "talk")

    assert (first.outcome, second.outcome) == (COMPLETED, COMPLETED)
    assert first.result["session"] == second.result["session"]
    assert [*first.usage, *second.usage] == served(rig)


def test_a_session_that_is_gone_is_not_begun_anew(rig: Rig) -> None:
    rig.run("MOCK:plain", "--context", "talk")
    lose_sessions(rig)

    ended = rig.run("MOCK:plain", "--context", "talk")

    assert ended.outcome[0] == "failed"
    assert ended.failure == "session-gone"
    assert len(rig.served()) == 1


def test_permission_is_asked_and_given(rig: Rig) -> None:
    asking = rig.capsule(config={"approvals": "ask"})

    ended = rig.run("MOCK:permission", "--on-permission", "allow", capsule=asking)

    assert ended.outcome == COMPLETED
    assert len(of_type(ended, "permission")) == 1
    assert (rig.workdir / "ran.txt").exists()


@pytest.mark.parametrize(
    ("scenario", "kind", "retries"),
    [
        ("http401", "auth", 2),
        ("http429", "rate-limit", 2),
        ("http500", "other", 2),
        ("refusal", "declined", 2),
        ("maxtok", "truncated", 0),
    ],
)
def test_a_failure_has_its_kind_and_its_retries_are_told(
    rig: Rig, scenario: str, kind: str, retries: int
) -> None:
    ended = rig.run(f"MOCK:{scenario}")

    assert ended.outcome[0] == "failed", ended.events
    assert ended.failure == kind
    assert ended.text.count("I cannot help") <= 1
    assert len(of_type(ended, "retrying")) == retries
    assert len([line for line in rig.asked() if line["at"] == "asked"]) == 1 + retries


def test_a_harness_that_is_killed_leaves_a_failure(rig: Rig) -> None:
    with rig.started("MOCK:slow") as going:
        going.until_text("w3 ")
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome[0] == "failed"
    assert ended.failure == "harness-error"


def test_a_run_that_is_killed_leaves_its_count_to_the_next(rig: Rig) -> None:
    with rig.started("MOCK:loop", "--context", "talk") as going:
        going.until_text("Step 2.")
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        killed = going.ended()
    resumed = rig.run("MOCK:plain", "--context", "talk")

    assert [fact for fact in killed.facts if fact.get("fact") == "remembered"]
    assert killed.usage[0] == served(rig)[0]
    assert resumed.outcome == COMPLETED
    assert resumed.usage == served(rig)[-1:]


# By `exec --json`.


def test_exec_counts_the_whole_turn(rig: Rig) -> None:
    ended = rig.run("MOCK:tool", capsule=rig.capsule(config=EXEC))

    assert ended.outcome == COMPLETED
    assert ended.result["response"] == HELLO
    assert ended.counted == total(served(rig))


def test_exec_is_interrupted_by_a_signal(rig: Rig) -> None:
    with rig.started("MOCK:slow", capsule=rig.capsule(config=EXEC)) as going:
        going.until(lambda frame: frame["type"] == "thinking")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == ("canceled", "interrupted", 130)
    assert ended.usage == [{}]


def test_exec_counts_only_what_a_resumed_turn_added(rig: Rig) -> None:
    capsule = rig.capsule(config=EXEC)
    first = rig.run("MOCK:plain", "--context", "talk", capsule=capsule)
    second = rig.run("MOCK:tool", "--context", "talk", capsule=capsule)

    assert (first.outcome, second.outcome) == (COMPLETED, COMPLETED)
    assert total([first.counted, second.counted]) == total(served(rig))


def test_exec_knows_that_a_session_is_gone(rig: Rig) -> None:
    capsule = rig.capsule(config=EXEC)
    rig.run("MOCK:plain", "--context", "talk", capsule=capsule)
    lose_sessions(rig)

    ended = rig.run("MOCK:plain", "--context", "talk", capsule=capsule)

    assert ended.outcome[0] == "failed"
    assert ended.failure == "session-gone"


def test_exec_does_not_repeat_what_a_retry_says_again(rig: Rig) -> None:
    ended = rig.run("MOCK:refusal", capsule=rig.capsule(config=EXEC))

    assert ended.failure == "declined"
    assert len(of_type(ended, "text")) == 1


# The capsule that comes with it.


def test_the_capsule_for_release_notes_runs(rig: Rig) -> None:
    asks = ("--grant", "provider=openai")

    ended = rig.run("MOCK:tool", *asks, capsule=str(NOTES))

    assert ended.outcome == COMPLETED
    assert ended.result["model"] == "openai:gpt-5-codex"
    assert ended.usage == served(rig)
    [closed] = [fact for fact in ended.facts if fact.get("fact") == "spend-closed"]
    cost = closed["settled"]["cost"]
    assert cost["least_microusd"] == cost["most_microusd"] > 0
