"""What the Claude Code driver writes, and what it makes of what no recording holds."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import msgspec
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
    Session,
    Steered,
    Text,
    TextPart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.replay import replay_events

MODEL = "claude-sonnet-4-5"
LINE_BYTES = 16 * 1024 * 1024
"""The longest line that is read."""


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
    assert "uuid" not in json.loads(plan.stdin)  # words with an id that a session knows are dropped
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


@pytest.mark.parametrize("config", [b'{"retries":-1}', b'{"max_turns":0}', b'{"max_budget_usd":0}'])
def test_a_setting_that_it_would_take_for_none_is_refused(config: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(config, type=ClaudeCodeConfig)


# What is written while it works.


def test_an_interrupt_is_a_request_of_its_own() -> None:
    sent = written(ClaudeCodeDriver().interrupt())

    assert (sent["type"], sent["request"]["subtype"]) == ("control_request", "interrupt")


def test_an_interrupt_drops_the_words_that_wait() -> None:
    sent = written(ClaudeCodeDriver().interrupt())

    assert sent["request"]["cancel_queued"] is True


def test_steered_words_are_taken_when_they_are_said_again() -> None:
    driver = ClaudeCodeDriver()
    sent = written(driver.steer("steer_1", "stop"))
    echo = line(type="user", uuid="steer_1", isReplay=True, message=sent["message"])

    assert sent["uuid"] == "steer_1"
    assert list(driver.receive(echo)) == [Steered("steer_1")]
    assert list(driver.receive(echo)) == []


@pytest.mark.parametrize("ending", [{}, {"is_error": True, "terminal_reason": "api_error"}])
def test_a_turn_that_took_no_steered_words_is_not_the_last(ending: dict[str, Any]) -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "more")
    echo = line(type="user", uuid="steer_1", isReplay=True, message={"content": []})

    first = driver.receive(result(uuid="a", result="first", **ending))

    assert [type(event) for event in first] == [Note]
    assert list(driver.receive(echo + result(uuid="b", result="second"))) == [
        Steered("steer_1"),
        TurnEnd("second"),
    ]


def speaks(words: str, id: str, **fields: Any) -> list[bytes]:
    """Return the lines of an answer, each with a name."""
    message = {"id": id, "model": MODEL, "content": [{"type": "text", "text": words}]}
    events = (begins(id, input_tokens=5), ends(output_tokens=9))
    start, end = (
        line(type="stream_event", event=event, uuid=f"{id}-{event['type']}", api_message_id=id)
        for event in events
    )
    return [start, line(type="assistant", message=message, uuid=f"{id}-text", **fields), end]


def moves(state: str, id: str = "steer_1") -> bytes:
    return line(type="command_lifecycle", state=state, command_uuid=id, uuid=f"{id}-{state}")


def news(subtype: str, **fields: Any) -> bytes:
    return line(
        type="system", subtype=subtype, session_id="s", uuid=f"{subtype}-{fields}", **fields
    )


ECHO = line(type="user", uuid="steer_1", isReplay=True, message={"content": []})
TAKEN = {"user_message_uuids": ["steer_1"]}
INTO_THE_TURN = (
    moves("queued"),
    *speaks("I look.", "m1"),
    ECHO,
    moves("started"),
    news("status", **TAKEN),
    *speaks("I saw.", "m2", **TAKEN),
    moves("completed"),
    result(result="I saw.", uuid="r", **TAKEN),
)
"""What it prints from when words are written to it until they are answered, in order."""
INTO_THE_NEXT_TURN = (
    moves("queued"),
    *speaks("Done.", "m1"),
    result(result="Done.", uuid="r1"),
    moves("started"),
    news("init", **TAKEN),
    news("status", **TAKEN),
    ECHO,
    *speaks("I saw.", "m2", **TAKEN),
    result(result="I saw.", uuid="r2", **TAKEN),
    moves("completed"),
)


@pytest.mark.parametrize("stream", [INTO_THE_TURN, INTO_THE_NEXT_TURN], ids=["this", "the-next"])
def test_a_result_is_not_lost_for_another_line_that_is(stream: Sequence[bytes]) -> None:
    for place, missing in enumerate(stream):
        for rest in (b"", missing[: len(missing) // 2] + b"\n"):
            driver = ClaudeCodeDriver()
            driver.steer("steer_1", "look")

            said = driver.receive(b"".join([*stream[:place], rest, *stream[place + 1 :]]))

            if b'"result": "I saw."' not in missing:
                ends = [event for event in said if isinstance(event, TurnEnd | TurnFailed)]
                assert ends == [TurnEnd("I saw.")], missing
                assert Steered("steer_1") in said, missing


def test_a_turn_that_another_followed_does_not_decide() -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "look")

    driver.receive(b"".join(line for line in INTO_THE_NEXT_TURN if b'"r2"' not in line))

    (failed,) = driver.ended(Exit(0, None))
    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.INDETERMINATE


@pytest.mark.parametrize(
    ("exit", "is_done"), [(Exit(0, None), True), (Exit(1, None), False), (Exit(None, 9), False)]
)
def test_it_left_when_a_turn_was_done_and_words_waited(exit: Exit, *, is_done: bool) -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "more")
    driver.receive(result(result="Done."))

    (end,) = driver.ended(exit)

    assert (end == TurnEnd("Done.")) is is_done


def test_words_that_are_dropped_between_two_turns_leave_the_first_the_last() -> None:
    driver = ClaudeCodeDriver()
    driver.steer("steer_1", "more")
    driver.receive(result(result="Done."))
    driver.interrupt()

    assert list(driver.receive(moves("cancelled"))) == [TurnEnd("Done.")]


def test_there_is_one_end() -> None:
    end, late = hear(result(uuid="a", result="first"), result(uuid="b", result="second"))

    assert end == TurnEnd("first")
    assert isinstance(late, Note)


def test_a_line_that_comes_twice_says_nothing_twice() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": 1}
    gave = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
    asking = {"subtype": "can_use_tool", "tool_name": "Bash", "input": 1}
    lines = [
        line(type="assistant", message={"id": "m", "content": [call]}, uuid="1"),
        line(type="control_request", request_id="r", request=asking),
        line(type="user", message={"content": [gave]}, uuid="2"),
        line(type="stream_event", event=delta, uuid="3"),
        *speaks("Done.", "m1"),
        news("api_retry", attempt=1),
    ]

    assert hear(*(twice for one in lines for twice in (one, one))) == hear(*lines)


def test_a_session_whose_beginning_was_lost_is_told_by_what_follows() -> None:
    *_, assistant, _ = speaks("Done.", "m1", session_id="s")

    assert hear(assistant)[0] == Session("s", f"anthropic:{MODEL}")


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


def test_the_beginning_of_an_answer_that_nobody_can_read_is_a_call_of_its_own() -> None:
    broken = api(begins("sub"), "task_1").replace(b'"sub"', b"sub")
    note, unknown, usage = hear(
        api(begins("m", input_tokens=5)), broken, api(ends(output_tokens=9))
    )

    assert isinstance(note, Note)
    assert unknown == Usage("anthropic:unknown")
    assert usage == Usage(f"anthropic:{MODEL}", input_tokens=5, output_tokens=9, call_id="m")


def test_an_answer_whose_beginning_was_lost_has_a_name() -> None:
    end = {"type": "stream_event", "event": ends(input_tokens=5, output_tokens=9)}
    named = line(**end, uuid="line_1")
    known = line(**end, uuid="line_2", api_message_id="m")
    first = [api(begins("a", input_tokens=1)), api(ends(output_tokens=2))]

    assert hear(*first, named, named, known, line(**end)) == [
        Usage(f"anthropic:{MODEL}", input_tokens=1, output_tokens=2, call_id="a"),
        Usage("anthropic:unknown", input_tokens=5, output_tokens=9, call_id="line_1"),
        Usage("anthropic:unknown", input_tokens=5, output_tokens=9, call_id="m"),
        Usage("anthropic:unknown"),  # seen twice, its numbers would count twice
    ]


@pytest.mark.parametrize("count", [-1, 1.5, 2**41, 10**30, "9", True, None])
def test_a_count_that_no_call_can_have_is_unknown_and_costs_no_line(count: object) -> None:
    usage: dict[str, Any] = {"input_tokens": count, "output_tokens": count}
    since = {MODEL: {"inputTokens": count, "outputTokens": 9, "costUSD": "free"}}
    content = [{"type": "text", "text": "x"}]
    message = {"id": "m", "model": MODEL, "content": content, "usage": usage}

    assert hear(
        api(begins("m", **usage)),
        line(type="assistant", message=message),
        api(ends(**usage)),
        result(result="x", model_usage_since_last_result=since),
    ) == [
        Text("x", "m"),
        Usage(f"anthropic:{MODEL}", call_id="m"),
        Usage(f"anthropic:{MODEL}", output_tokens=9, scope="total"),
        TurnEnd("x"),
    ]


@pytest.mark.parametrize("half", [b'{"type":"result","usage":\n', b'{"duration_api_ms":7,"usage\n'])
def test_a_result_that_nobody_can_read_may_have_told_of_hidden_calls(half: bytes) -> None:
    note, usage, _ = hear(half)

    assert isinstance(note, Note)
    assert usage == Usage("anthropic:unknown")


def test_a_result_that_nobody_can_read_ends_the_turn_at_once() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash"}
    driver = ClaudeCodeDriver()
    driver.receive(line(type="assistant", message={"id": "a", "content": [call]}))

    *_, closed, end = driver.receive(b'{"type":"result","subtype":"succ\n')

    assert closed == ToolResult("t", "Bash", "interrupted", is_error=True)
    assert isinstance(end, TurnFailed)
    assert end.kind is FailureKind.INDETERMINATE
    assert isinstance(driver.receive(result(result="x"))[-1], Note)


def test_a_result_that_is_too_long_ends_the_turn_at_once() -> None:
    long = b'{"type":"result","result":"' + b"x" * LINE_BYTES + b'"}\n'

    events = replay_events(ClaudeCodeDriver(), io.BytesIO(long + result()), Exit(0, None))

    (end,) = [event for event in events if isinstance(event, TurnEnd | TurnFailed)]
    assert isinstance(end, TurnFailed)
    assert end.kind is FailureKind.INDETERMINATE


def test_a_result_that_nobody_can_read_ends_no_run_while_words_wait() -> None:
    driver = ClaudeCodeDriver()
    driver.steer("st_1", "and then")

    said = driver.receive(b'{"type":"result","subtype":"succ\n')

    assert not [item for item in said if isinstance(item, TurnFailed)]


@pytest.mark.parametrize("name", [{"uuid": "a"}, {}])
def test_a_result_that_is_said_twice_counts_once(name: dict[str, Any]) -> None:
    since = {MODEL: {"inputTokens": 5, "outputTokens": 9, "costUSD": 0.5}}
    end = result(**name, result="done", model_usage_since_last_result=since)

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
