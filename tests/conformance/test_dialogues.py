"""What no dialogue may do, whichever driver holds it: allow what was not asked, pay after a stop."""

from __future__ import annotations

import json

import pytest

from capsule_drivers.acp_dialogue import Dialogue, Plan
from capsule_runtime import Answer, Note, Send, TurnEnd, Usage
from capsule_runtime.driver import find_driver


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def answered(id: int, **result: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def dialogue(*, injects: bool) -> Dialogue:
    """Return a dialogue in the middle of its first turn, whose prompt is number 3."""
    it = Dialogue(lambda result, told: [Usage("m:1", input_tokens=1)], injects=injects)
    it.begin(Plan("/w", [{"type": "text", "text": "t"}]))
    it.receive(lines(answered(1), answered(2, sessionId="s")))
    return it


@pytest.mark.parametrize("name", ["claude-code", "qwen-code", "codex", "gemini", "opencode", "acp"])
def test_nothing_is_allowed_that_was_not_asked(name: str) -> None:
    assert find_driver(name)().answer("nobody asked", Answer("allow")) is None


def test_words_that_wait_begin_no_turn_after_a_stop() -> None:
    it = dialogue(injects=False)
    it.steer("s1", "more")
    it.interrupt()

    said = it.receive(lines(answered(3, stopReason="end_turn")))

    assert not any(isinstance(one, Send) for one in said)
    assert isinstance(said[-1], TurnEnd)


def test_refused_words_leave_the_turn_at_work_alone() -> None:
    it = dialogue(injects=True)
    it.steer("s1", "more")
    refusal = {"jsonrpc": "2.0", "id": 4, "error": {"code": -32603, "message": "x"}}

    refused = it.receive(lines(refusal))
    said = it.receive(lines(answered(3, stopReason="end_turn")))

    assert [type(one) for one in refused] == [Note]
    assert any(isinstance(one, Usage) for one in said)
    assert isinstance(said[-1], TurnEnd)
