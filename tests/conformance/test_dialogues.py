"""What no driver may do: allow what was not asked, pay after a stop, count nothing or twice."""

from __future__ import annotations

import json

import pytest

from capsule_drivers.acp_dialogue import Dialogue, Plan
from capsule_drivers.codex import CodexDriver
from capsule_drivers.gemini_stream import StreamLines
from capsule_drivers.mini_swe_agent import MiniSweAgentConfig, MiniSweAgentDriver
from capsule_drivers.opencode_run import RunLines
from capsule_drivers.pi import PiDriver
from capsule_runtime import (
    Answer,
    Exit,
    LaunchRequest,
    Message,
    Note,
    Send,
    Text,
    TextPart,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.driver import find_driver


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value, separators=(",", ":")).encode() + b"\n" for value in values)


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


# What was used is counted, whatever becomes of the harness and its lines.

KILLED = Exit(code=None, signal=9)


def test_an_answer_of_pi_that_was_cut_off_is_not_free() -> None:
    driver = PiDriver()
    change = {"type": "text_delta", "delta": "hi"}
    driver.receive(lines({"type": "message_update", "assistantMessageEvent": change}))

    assert [type(event) for event in driver.ended(KILLED)] == [Usage, TurnFailed]


def test_an_old_total_of_codex_that_is_heard_again_is_no_call() -> None:
    driver = CodexDriver()
    thread = {"id": "t"}
    driver.receive(lines({"id": 2, "result": {"thread": thread}}))
    driver.receive(lines({"method": "turn/started", "params": {"turn": {"id": "u"}}}))
    said = [
        event
        for total in (1000, 2000, 1000, 3000)
        for event in driver.receive(lines(total_of("t", total)))
        if isinstance(event, Usage)
    ]

    calls = {event.call_id: event.input_tokens for event in said}
    assert list(calls.values()) == [1000, 1000, 1000]


def total_of(thread: str, tokens: int) -> dict[str, object]:
    used = {"total": {"inputTokens": tokens}, "last": {"inputTokens": 1000}}
    params = {"threadId": thread, "turnId": "u", "tokenUsage": used}
    return {"method": "thread/tokenUsage/updated", "params": params}


def test_parts_of_opencode_without_a_name_are_not_one_part() -> None:
    said = RunLines().receive(
        lines(
            {"type": "text", "part": {"text": "a"}},
            {"type": "text", "part": {"text": "b"}},
        )
    )

    assert [event.text for event in said if isinstance(event, Text)] == ["a", "b"]


def test_a_model_of_gemini_without_a_sum_is_counted_beside_one_that_has_it() -> None:
    models = {
        "a": {"input_tokens": 900, "output_tokens": 40},
        "b": {"total_tokens": 10, "input_tokens": 5, "output_tokens": 5},
        "c": {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0},
    }
    said = StreamLines().receive(
        lines(
            {"type": "init", "session_id": "s", "model": "a"},
            {"type": "result", "status": "success", "stats": {"models": models}},
        )
    )

    used = [event for event in said if isinstance(event, Usage)]
    assert [(event.model, event.input_tokens) for event in used] == [
        ("google:a", 900),
        ("google:b", 5),
    ]


def test_a_system_prompt_of_mini_swe_agent_is_no_template() -> None:
    plan = MiniSweAgentDriver().launch(
        LaunchRequest(
            run="r",
            context="c",
            message=Message("m", (TextPart("t"),)),
            command=(),
            args=(),
            config=MiniSweAgentConfig(),
            home="/h",
            workdir="/w",
            tmp="/t",
            out="/o",
            agent_path="/a",
            limits={},
            model="openai/x",
            system_prompt="x {% endraw %}{{ 7*7 }}",
        )
    )
    [template] = [
        json.loads(data)["agent"]["system_template"]
        for data in plan.files.values()
        if b"system_template" in data
    ]

    # Each "{%" of the prompt's own stands at the end of a raw block.
    inside = "x {%{% endraw %}{% raw %} endraw %}{{ 7*7 }}"
    assert template == "{% raw %}" + inside + "{% endraw %}"
