"""Claude Code itself."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from support.live.ended import total
from support.live.rig import Going, Rig

KIT = "claude-code"
CAPSULE = Path(__file__).parents[2] / "capsules" / "code-review"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)


def test_the_ready_capsule(rig: Rig) -> None:
    grants = ("--grant", "provider=anthropic")

    ended = rig.run("Please MOCK:tool", *grants, capsule=str(CAPSULE))

    assert ended.outcome == ("completed", "completed", 0)
    assert ended.counted == total(rig.served())
    assert ended.result["harness_microusd"] > 0


@pytest.mark.every_tier
def test_a_plain_answer(rig: Rig) -> None:
    ended = rig.run("Please MOCK:plain")

    assert ended.outcome == DONE
    assert ended.text == "Hello from the mock. Turn done."
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_without_a_capsule(rig: Rig) -> None:
    ended = rig.run(
        "Please MOCK:plain", "--model", "claude-sonnet-4-5", capsule="--driver=claude-code"
    )

    assert ended.outcome == DONE
    assert ended.usage == rig.served()


def test_a_ceiling_that_is_crossed(rig: Rig) -> None:
    ended = rig.run("Please MOCK:loop", "--max-tokens", "2000")

    assert ended.outcome == ("refused", "tokens", 3)
    assert ended.counted == total(rig.served())


@pytest.mark.every_tier
def test_a_tool_that_runs(rig: Rig) -> None:
    ended = rig.run("Please MOCK:tool")

    assert ended.outcome == DONE
    (call,) = [event for event in ended.events if event["type"] == "tool-call"]
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert (call["name"], artifact["tool_call_id"]) == ("Bash", call["id"])
    assert (artifact["content"], artifact["is_error"]) == ("hi\noops", False)
    assert (rig.workdir / "ran.txt").exists()
    assert ended.result["turns"] == 2
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_tools_at_the_same_time(rig: Rig) -> None:
    ended = rig.run("Please MOCK:multi")

    assert ended.outcome == DONE
    artifacts = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert [frame["is_error"] for frame in artifacts] == [False, True, False]
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


@pytest.mark.every_tier
def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"  # it left by itself
    (cut_off,) = ended.usage
    assert cut_off == begun(rig)
    # What it had written of the answer it counts itself; nobody served that number.
    assert {**ended.counted, "output_tokens": 0} == {**cut_off, "output_tokens": 0}
    assert ended.counted["output_tokens"] > 1


def test_ctrl_c_while_a_tool_runs(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    (artifact,) = [frame for frame in ended.frames if frame["type"] == "artifact"]
    assert artifact["is_error"] is True
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_ctrl_c_while_nothing_comes(rig: Rig) -> None:
    with rig.started("Please MOCK:hang") as going:
        going.until_text("Partial")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.usage == [begun(rig)]


def test_ctrl_c_before_its_first_word(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        while "running" not in rig.capsule_command("ps").out:
            pass
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED
    assert ended.events[-1]["type"] == "turn-failed"


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
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_steered_while_it_writes_its_last_words(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w150 ")
        steered = rig.capsule_command("steer", going.run, "and then MOCK:plain", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True]
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


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


def test_steered_twice_while_it_writes(rig: Rig) -> None:
    with rig.started("Please MOCK:slow") as going:
        going.until_text("w5 ")
        for words in ("and", "then MOCK:plain"):
            assert rig.capsule_command("steer", going.run, words, "--json").status == 0
        ended = going.ended()

    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert [steer["taken_at"] is not None for steer in ended.result["steers"]] == [True, True]
    assert ended.counted == total(rig.served())


def test_steered_while_its_turn_fails(rig: Rig) -> None:
    with rig.started("Please MOCK:http429", capsule=rig.capsule(config={"retries": 4})) as going:
        run = until_it_tries_again(rig)
        steered = rig.capsule_command("steer", run, "and then MOCK:plain", "--json")
        ended = going.ended()

    assert steered.status == 0, steered.err
    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."


@pytest.mark.parametrize(
    ("policy", "outcome", "is_touched"),
    [
        ("allow", DONE, True),
        ("deny", DONE, False),
        ("fail", ("failed", "permission", 5), False),
    ],
)
def test_asking_for_permission(
    rig: Rig, policy: str, outcome: tuple[str, str, int], *, is_touched: bool
) -> None:
    asking = rig.capsule(config={"permissions": "ask"})
    ended = rig.run("Please MOCK:touch", "--on-permission", policy, capsule=asking)

    (asked,) = [event for event in ended.events if event["type"] == "permission"]
    assert (asked["tool"], asked["input"]["command"]) == ("Bash", "date > touched.txt")
    assert ended.outcome == outcome
    assert (rig.workdir / "touched.txt").exists() == is_touched
    assert ended.counted == total(rig.served())


@pytest.mark.every_tier
def test_resumed_in_a_new_process(rig: Rig) -> None:
    first = rig.run("Please MOCK:plain", "--context", "talk")
    second = rig.run("Please MOCK:tool", "--context", "talk")

    assert (first.outcome, second.outcome) == (DONE, DONE)
    assert first.result["session"] == second.result["session"]
    served = rig.served()
    assert (first.usage, second.usage) == (served[:1], served[1:])
    assert second.counted == total(served[1:])


def test_a_session_that_is_gone(rig: Rig) -> None:
    rig.run("Please MOCK:plain", "--context", "talk")
    for kept in rig.state.rglob(".claude/projects/*/*.jsonl"):
        kept.unlink()

    ended = rig.run("Please MOCK:plain", "--context", "talk")

    assert ended.outcome[0] == "failed"
    assert ended.failure == "session-gone"
    assert "E-RUN-036" in ended.result["message"]


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "other"), (401, "auth"), (429, "rate-limit"), (500, "other")]
)
def test_an_error_of_the_api(rig: Rig, status: int, kind: str) -> None:
    ended = rig.run(f"Please MOCK:http{status}", capsule=rig.capsule(config={"retries": 1}))

    assert ended.outcome == ("failed", kind, 8 if kind == "auth" else 1)
    assert ended.counted == {}
    retries = [event for event in ended.events if event["type"] == "retrying"]
    assert len(retries) == (0 if status == 400 else 1)


def test_a_server_that_is_not_there(rig: Rig) -> None:
    capsule = rig.capsule(config={"retries": 1})
    rig.configure("http://127.0.0.1:9")

    ended = rig.run("Please MOCK:plain", capsule=capsule)

    assert ended.outcome == ("failed", "other", 1)


def test_a_server_that_is_busy_for_a_while(rig: Rig) -> None:
    ended = rig.run("Please MOCK:flaky")

    assert ended.outcome == DONE
    retries = [event for event in ended.events if event["type"] == "retrying"]
    assert [retry["attempt"] for retry in retries] == [1, 2]
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_an_answer_that_is_declined(rig: Rig) -> None:
    ended = rig.run("Please MOCK:refusal")

    assert ended.outcome == ("failed", "declined", 1)
    assert ended.usage == rig.served()
    assert ended.counted == total(rig.served())


def test_an_answer_that_is_cut_off_by_its_length(rig: Rig) -> None:
    ended = rig.run("Please MOCK:maxtok")

    assert ended.outcome == ("failed", "truncated", 1)
    assert ended.counted == total(rig.served())


def test_too_many_turns(rig: Rig) -> None:
    ended = rig.run("Please MOCK:loop", capsule=rig.capsule(config={"max_turns": 2}))

    assert ended.outcome == ("failed", "max-turns", 1)
    assert ended.counted == total(rig.served())


def test_killed_from_outside(rig: Rig) -> None:
    with rig.started("Please MOCK:toolhang") as going:
        until_tool(going)
        os.kill(going.pid_of_harness(), signal.SIGKILL)
        ended = going.ended()

    assert ended.outcome[0] == "failed"
    assert ended.failure == "harness-error"
    assert ended.usage == rig.served()


def test_a_system_prompt_and_a_key_that_is_missing(rig: Rig) -> None:
    done = rig.run("MOCK:plain", capsule=rig.capsule(system_prompt="Be brief."))
    refused = rig.run_without_key("MOCK:plain")

    assert done.outcome == DONE
    assert refused.status == 8
    assert "ANTHROPIC_API_KEY" in refused.err


def until_tool(going: Going) -> None:
    """Wait until the first answer is over and its tool runs."""
    going.until_text(".")
    going.until_said("usage")


def until_it_tries_again(rig: Rig) -> str:
    """Wait until the run, which shows no frame, waits before it tries a call again; return its id."""
    running: list[dict[str, str]] = []
    while not running:
        running = json.loads(rig.capsule_command("ps", "--json").out)
    run = running[0]["id"]
    with rig.followed(run) as entries:
        for entry in entries:
            if entry.get("fact") == "said" and entry["event"]["type"] == "retrying":
                return run
    raise AssertionError("it ended before that")


def begun(rig: Rig) -> dict[str, int]:
    """Return what of its one answer was known before its end."""
    (line,) = [line for line in rig.asked() if line["at"] == "answered"]
    used: dict[str, int] = line["begun"]
    return used


def test_a_recorded_conversation_is_played_without_a_provider(rig: Rig) -> None:
    cassette = str(rig.folder / "cassette.jsonl")
    first = rig.run("Please MOCK:tool", "--record", cassette)
    rig.configure("http://127.0.0.1:9")
    (rig.workdir / "ran.txt").unlink()

    again = rig.run("Please MOCK:tool", "--playback", cassette)

    assert (first.outcome, again.outcome) == (DONE, DONE)
    assert again.text == first.text
    assert (rig.workdir / "ran.txt").exists()
    assert again.record.calls.taken.microusd == 0
