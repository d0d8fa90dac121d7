"""The driver `acp` on an agent that it does not know: the manifest names the command."""

from __future__ import annotations

from support.live.rig import Rig

KIT = "gemini"
DONE = ("completed", "completed", 0)
INTERRUPTED = ("canceled", "interrupted", 130)


def agent(rig: Rig, **config: object) -> str:
    return rig.capsule("acp", command=("gemini", "--acp", "--skip-trust"), config=config)


def test_a_tool_that_runs(rig: Rig) -> None:
    ended = rig.run("Please MOCK:tool", capsule=agent(rig, mode="yolo"))

    assert ended.outcome == DONE
    assert ended.result["response"] == "Hello from the mock. Turn done."
    assert "MODE_UPDATE" not in ended.text
    assert (rig.workdir / "ran.txt").exists()
    assert ended.usage == []  # it tells none in the protocol's own words


def test_a_question_that_the_policy_answers(rig: Rig) -> None:
    asking = agent(rig, permissions="ask")
    ended = rig.run("Please MOCK:touch", "--on-permission", "allow", capsule=asking)

    assert ended.outcome == DONE
    assert (rig.workdir / "touched.txt").exists()


def test_ctrl_c_while_it_streams(rig: Rig) -> None:
    with rig.started("Please MOCK:slow", capsule=agent(rig)) as going:
        going.until_text("w5 ")
        going.interrupt()
        ended = going.ended()

    assert ended.outcome == INTERRUPTED


def test_a_session_is_loaded_or_said_to_be_gone(rig: Rig) -> None:
    """Gemini CLI finds a session of an earlier process sometimes, and mostly it does not."""
    first = rig.run("Please MOCK:plain", "--context", "talk", capsule=agent(rig))
    second = rig.run("Please MOCK:plain", "--context", "talk", capsule=agent(rig))

    assert first.outcome == DONE
    assert (second.outcome[0], second.failure) in (("completed", None), ("failed", "session-gone"))
