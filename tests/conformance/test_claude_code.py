"""What the Claude Code driver writes, and what it makes of what no recording holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capsule_drivers.claude_code import ClaudeCodeDriver
from capsule_drivers.claude_launch import ClaudeCodeConfig
from capsule_runtime import (
    Answer,
    DataPart,
    Exit,
    FailureKind,
    LaunchPlan,
    LaunchRequest,
    Message,
    Note,
    Permission,
    Refused,
    Said,
    Send,
    Steered,
    TextPart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

MODEL = "claude-sonnet-4-5"


def request(
    *,
    config: ClaudeCodeConfig | None = None,
    session: str | None = None,
    model: str | None = None,
    system_prompt: str | None = None,
) -> LaunchRequest:
    parts = (TextPart("review"), DataPart({"depth": 2}, "input.json"))
    return LaunchRequest(
        run="run_1",
        context="talk",
        message=Message("msg", parts),
        command=("claude",),
        args=("--effort", "low"),
        config=config or ClaudeCodeConfig(),
        home="/home",
        workdir="/work",
        tmp="/tmp",
        out="/out",
        agent_path="/agent",
        limits={},
        session=session,
        model=model,
        system_prompt=system_prompt,
    )


def launch(asked: LaunchRequest) -> LaunchPlan:
    return ClaudeCodeDriver().launch(asked)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def result(**fields: Any) -> bytes:
    said = {"subtype": "success", "is_error": False, "terminal_reason": "completed", **fields}
    return line(type="result", **said)


def api(event: dict[str, Any], parent: str | None = None) -> bytes:
    return line(type="stream_event", event=event, parent_tool_use_id=parent)


def begins(id: str, **usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"id": id, "model": MODEL, "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def ends(stop_reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}


def hear(*lines: bytes) -> list[Said]:
    return list(ClaudeCodeDriver().receive(b"".join(lines)))


def written(send: Send | None) -> Any:
    assert send is not None
    return json.loads(send.data)


# The launch.


def test_the_task_goes_by_stdin_and_its_parts_are_words() -> None:
    plan = launch(request())

    assert "review" not in " ".join(plan.argv)
    assert plan.keep_stdin
    assert json.loads(plan.stdin)["message"]["content"] == [
        {"type": "text", "text": "review"},
        {"type": "text", "text": 'input.json:\n\n{"depth":2}'},
    ]


def test_a_new_session_asks_nobody_and_reports_every_call() -> None:
    plan = launch(request())

    assert plan.argv[0] == "claude"
    assert plan.argv[-2:] == ("--effort", "low")
    assert "--include-partial-messages" in plan.argv
    assert "--dangerously-skip-permissions" in plan.argv
    assert "--resume" not in plan.argv
    assert plan.env["IS_SANDBOX"] == "1"
    assert plan.env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert plan.env["DISABLE_TELEMETRY"] == "1"


def test_what_a_capsule_sets_becomes_switches() -> None:
    config = ClaudeCodeConfig(permissions="ask", retries=0, max_turns=3, max_budget_usd=0.5)
    plan = launch(
        request(config=config, session="s-1", model=f"anthropic:{MODEL}", system_prompt="Be brief.")
    )

    words = " ".join(plan.argv)
    assert "--permission-prompt-tool stdio --permission-mode default" in words
    assert "--dangerously-skip-permissions" not in words
    assert f"--model {MODEL} " in words
    assert "--resume s-1" in words
    assert "--max-turns 3 --max-budget-usd 0.5" in words
    assert plan.env["CLAUDE_CODE_MAX_RETRIES"] == "0"
    ((name, prompt),) = plan.files.items()
    assert f"--append-system-prompt-file /home/{name}" in words
    assert prompt == b"Be brief."


# What is written while it works.


def test_an_interrupt_is_a_request_of_its_own() -> None:
    sent = written(ClaudeCodeDriver().interrupt())

    assert (sent["type"], sent["request"]) == ("control_request", {"subtype": "interrupt"})


def test_steered_words_are_taken_when_they_are_said_again() -> None:
    driver = ClaudeCodeDriver()
    sent = written(driver.steer("steer_1", "stop"))
    echo = line(type="user", uuid="steer_1", isReplay=True, message=sent["message"])

    assert sent["uuid"] == "steer_1"
    assert list(driver.receive(echo)) == [Steered("steer_1")]
    assert list(driver.receive(echo)) == []


def test_a_turn_that_took_no_steered_words_is_not_the_last() -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "more")
    echo = line(type="user", uuid="steer_1", isReplay=True, message={"content": []})

    assert list(driver.receive(result(uuid="a", result="first"))) == []
    assert list(driver.receive(echo + result(uuid="b", result="second"))) == [
        Steered("steer_1"),
        TurnEnd("second"),
    ]


def test_an_interrupted_turn_is_the_last_whatever_waits() -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "more")
    driver.interrupt()

    assert list(driver.receive(result(result="so far"))) == [TurnEnd("so far")]


def test_a_permission_that_is_given_repeats_the_input() -> None:
    driver = ClaudeCodeDriver()
    asking = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "date"}}
    (asked,) = driver.receive(line(type="control_request", request_id="r", request=asking))
    sent = written(driver.answer("r", Answer("allow")))

    assert asked == Permission("r", "Bash", {"command": "date"}, ["allow", "deny"])
    assert sent["response"]["request_id"] == "r"
    verdict = {"behavior": "allow", "updatedInput": {"command": "date"}}
    assert sent["response"]["response"] == verdict


def test_a_permission_that_is_refused_says_why() -> None:
    driver = ClaudeCodeDriver()
    asking = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "date"}}
    driver.receive(line(type="control_request", request_id="r", request=asking))
    sent = written(driver.answer("r", Refused("E-POL-001", "not here")))

    assert sent["response"]["response"] == {"behavior": "deny", "message": "not here"}


def test_a_question_that_nobody_can_answer_is_answered() -> None:
    asking = line(type="control_request", request_id="r", request={"subtype": "hook_callback"})
    note, sent = hear(asking)

    assert isinstance(note, Note)
    assert isinstance(sent, Send)
    assert written(sent)["response"]["subtype"] == "error"


# Usage.


def test_an_hour_in_the_cache_and_thoughts_are_told_apart() -> None:
    kept = {"ephemeral_1h_input_tokens": 7, "ephemeral_5m_input_tokens": 3}
    start = begins("m", input_tokens=5, cache_creation_input_tokens=10, cache_creation=kept)
    (usage,) = hear(
        api(start), api(ends(output_tokens=9, output_tokens_details={"thinking_tokens": 4}))
    )

    assert usage == Usage(
        f"anthropic:{MODEL}",
        input_tokens=5,
        output_tokens=9,
        cache_write_tokens=10,
        cache_write_1h_tokens=7,
        reasoning_tokens=4,
        call_id="m",
    )


def test_the_placeholder_of_an_answer_that_was_cut_off_is_no_output() -> None:
    (usage,) = hear(api(begins("m", input_tokens=5)), api(ends(None, output_tokens=1)))

    assert usage == Usage(f"anthropic:{MODEL}", input_tokens=5, call_id="m")


def test_sub_agents_that_stream_at_once_have_an_account_each() -> None:
    heard = hear(
        api(begins("a", input_tokens=1), "task_1"),
        api(begins("b", input_tokens=2), "task_2"),
        api(
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}, "task_1"
        ),
        api(ends(output_tokens=3), "task_1"),
        api(ends(output_tokens=4), "task_2"),
    )

    assert heard == [
        Usage(f"anthropic:{MODEL}", input_tokens=1, output_tokens=3, call_id="a"),
        Usage(f"anthropic:{MODEL}", input_tokens=2, output_tokens=4, call_id="b"),
    ]


def test_what_a_line_hid_that_nobody_can_read_is_unknown() -> None:
    broken = api(ends(output_tokens=9)).replace(b'"output_tokens": 9', b'"output_tokens": nine')
    note, usage = hear(api(begins("m", input_tokens=5)), broken)

    assert isinstance(note, Note)
    assert usage == Usage(f"anthropic:{MODEL}", call_id="m")


def test_a_result_that_is_said_twice_counts_once() -> None:
    since = {MODEL: {"inputTokens": 5, "outputTokens": 9, "costUSD": 0.5}}
    end = result(uuid="a", result="done", model_usage_since_last_result=since)

    assert hear(end, end) == [
        Usage(f"anthropic:{MODEL}", input_tokens=5, output_tokens=9, cost_usd=0.5, scope="total"),
        TurnEnd("done"),
    ]


# Endings.


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"stop_reason": "refusal"}, FailureKind.DECLINED),
        ({"api_error_status": 401}, FailureKind.AUTH),
        ({"api_error_status": 429}, FailureKind.RATE_LIMIT),
        ({"result": "Your credit balance is too low"}, FailureKind.QUOTA),
        ({"terminal_reason": "prompt_too_long"}, FailureKind.CONTEXT_LENGTH),
        ({"result": "API Error: 400 prompt is too long"}, FailureKind.CONTEXT_LENGTH),
        ({"subtype": "error_max_turns"}, FailureKind.MAX_TURNS),
        ({"subtype": "error_max_budget_usd"}, FailureKind.QUOTA),
        ({"api_error_status": 500}, FailureKind.OTHER),
        ({"errors": ["No conversation found with session ID: x"]}, FailureKind.SESSION_GONE),
    ],
)
def test_the_kind_of_a_failure(fields: dict[str, Any], kind: FailureKind) -> None:
    (failed,) = hear(result(is_error=True, **{"terminal_reason": "api_error", **fields}))

    assert isinstance(failed, TurnFailed)
    assert failed.kind == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [("rate_limit", FailureKind.RATE_LIMIT), ("billing_error", FailureKind.QUOTA)],
)
def test_what_stands_in_the_models_place_names_the_failure(error: str, kind: FailureKind) -> None:
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}
    note, failed = hear(
        line(type="assistant", message=message, error=error),
        result(is_error=True, terminal_reason="api_error", result="API Error"),
    )

    assert isinstance(note, Note)
    assert isinstance(failed, TurnFailed)
    assert failed.kind == kind


@pytest.mark.parametrize(
    ("exit", "kind"),
    [
        (Exit(1, None, b"error: unknown option"), FailureKind.HARNESS_ERROR),
        (Exit(1, None, b"No conversation found with session ID: x"), FailureKind.SESSION_GONE),
        (Exit(None, 9), FailureKind.HARNESS_ERROR),
        (Exit(0, None), FailureKind.INDETERMINATE),
        (Exit(None, None), FailureKind.INDETERMINATE),
    ],
)
def test_an_output_without_a_result(exit: Exit, kind: FailureKind) -> None:
    (failed,) = ClaudeCodeDriver().ended(exit)

    assert isinstance(failed, TurnFailed)
    assert failed.kind == kind


def test_a_tool_that_is_cut_off_gets_its_end() -> None:
    driver = ClaudeCodeDriver()
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "date"}}
    said = driver.receive(line(type="assistant", message={"id": "m", "content": [call]}))
    closed, failed = driver.ended(Exit(None, 9))

    assert list(said) == [ToolCall("t", "Bash", {"command": "date"}, "m")]
    assert closed == ToolResult("t", "Bash", "interrupted", is_error=True)
    assert isinstance(failed, TurnFailed)


def test_what_nests_too_deep_is_not_passed_on() -> None:
    deep: object = None
    for _ in range(200):
        deep = [deep]
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": deep}
    (said,) = hear(line(type="assistant", message={"id": "m", "content": [call]}))

    assert isinstance(said, ToolCall)
    assert isinstance(said.input, str)
