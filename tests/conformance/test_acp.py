"""A conversation with an ACP agent, from our side: what is sent, and what strange agents cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capsule_drivers.acp import AcpConfig, AcpDriver
from capsule_runtime import (
    Answer,
    DataPart,
    Decision,
    Event,
    Exit,
    FailureKind,
    HarnessError,
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
    TextDelta,
    TextPart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)

TOOL = Path(__file__).parent / "transcripts/acp/tool.jsonl"
ABLE = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
OPENED = {"sessionId": "s1", "models": {"currentModelId": "big"}}
OPTIONS = [
    {"optionId": "always", "kind": "allow_always"},
    {"optionId": "once", "kind": "allow_once"},
    {"optionId": "no", "kind": "reject_once"},
]


def request(**given: object) -> LaunchRequest:
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("count"), DataPart({"depth": 2}, "input.json"))),
        "command": ("agent", "--acp"),
        "args": ("-v",),
        "config": AcpConfig(),
        "home": "/private",
        "workdir": "/src",
        "tmp": "/tmp",
        "out": "/out",
        "agent_path": "/agent",
        "limits": {},
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields


def line(**said: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **said}).encode() + b"\n"


def update(kind: str, **said: object) -> bytes:
    given = {"sessionId": "s1", "update": {"sessionUpdate": kind, **said}}
    return line(method="session/update", params=given)


def words(text: str) -> bytes:
    return update("agent_message_chunk", content={"type": "text", "text": text})


def asked(id: object = 0) -> bytes:
    call = {"toolCallId": "c1", "title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}
    return line(
        id=id,
        method="session/request_permission",
        params={"sessionId": "s1", "toolCall": call, "options": OPTIONS},
    )


def sent(said: Sequence[Said] | Send | None) -> list[dict[str, Any]]:
    """Return the messages in all `Send`s of *said*."""
    items = said if isinstance(said, Sequence) else [said]
    data = b"".join(item.data for item in items if isinstance(item, Send))
    return [json.loads(one) for one in data.splitlines()]


def events(said: list[Said]) -> list[Said]:
    return [item for item in said if not isinstance(item, Send)]


def prompted(**given: object) -> AcpDriver:
    """Return a driver whose agent has its prompt."""
    driver = AcpDriver()
    driver.launch(request(**given))
    driver.receive(line(id=1, result=ABLE))
    driver.receive(line(id=2, result=OPENED))
    return driver


def uncounted(call_id: str) -> Usage:
    """Return the report of a call of which the agent told no numbers."""
    return Usage("unknown:big", call_id=call_id)


def hear(driver: AcpDriver, *lines: bytes) -> list[Said]:
    return list(driver.receive(b"".join(lines)))


def test_a_conversation_is_opened_step_by_step() -> None:
    driver = AcpDriver()

    plan = driver.launch(request(system_prompt="be short"))
    opening = driver.receive(line(id=1, result=ABLE))
    prompting = driver.receive(line(id=2, result=OPENED))

    assert plan.argv == ("agent", "--acp", "-v")
    assert plan.keep_stdin
    (first,) = [json.loads(one) for one in plan.stdin.splitlines()]
    assert first["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    assert sent(opening)[0]["method"] == "session/new"
    assert events(list(prompting)) == [Session("s1", "big")]
    (prompt,) = sent(prompting)
    assert [block["text"] for block in prompt["params"]["prompt"]] == [
        "be short",
        "count",
        'input.json:\n\n{"depth":2}',
    ]


def test_mode_and_model_are_set_before_the_prompt() -> None:
    driver = AcpDriver()
    driver.launch(request(config=AcpConfig(mode="yolo"), model="small"))
    driver.receive(line(id=1, result=ABLE))

    setting = sent(driver.receive(line(id=2, result=OPENED)))
    first = sent(driver.receive(line(id=setting[0]["id"], result={})))
    second = sent(driver.receive(line(id=setting[1]["id"], error={"code": -32601})))

    assert [one["method"] for one in setting] == ["session/set_mode", "session/set_model"]
    assert first == []
    assert [one["method"] for one in second] == ["session/prompt"]


def test_a_session_is_loaded_and_its_past_is_not_told_again() -> None:
    driver = AcpDriver()
    driver.launch(request(session="s1"))

    loading = sent(driver.receive(line(id=1, result=ABLE)))
    past = driver.receive(words("I said this before"))
    opened = list(driver.receive(line(id=2, result=None)))

    assert loading[0]["method"] == "session/load"
    assert loading[0]["params"]["sessionId"] == "s1"
    assert list(past) == []
    assert events(opened) == [Session("s1")]


@pytest.mark.parametrize(
    ("own", "wanted", "is_set"),
    [
        ("small", "small", False),
        ("$runtime|openai|small(openai)", "openai:small", False),
        ("openai/small", "small", False),
        ("small-mini", "small", True),
        (None, "small", True),
    ],
)
def test_a_model_that_answers_already_is_not_set(own: str, wanted: str, is_set: bool) -> None:
    driver = AcpDriver()
    driver.launch(request(model=wanted))
    driver.receive(line(id=1, result=ABLE))

    opened = {"sessionId": "s1", "models": {"currentModelId": own}}
    methods = [one["method"] for one in sent(driver.receive(line(id=2, result=opened)))]

    assert methods == (["session/set_model"] if is_set else ["session/prompt"])


def test_a_new_session_that_is_refused_is_not_gone() -> None:
    driver = AcpDriver()
    driver.launch(request())
    driver.receive(line(id=1, result=ABLE))

    failed = driver.receive(line(id=2, error={"code": -32603, "message": "no session for you"}))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.OTHER


@pytest.mark.parametrize(
    "answer",
    [
        line(id=2, error={"code": -32002, "message": "Resource not found"}),
        line(id=2, error={"code": -32603, "message": "x", "data": {"details": "no session"}}),
    ],
)
def test_a_session_that_cannot_be_loaded_is_gone(answer: bytes) -> None:
    driver = AcpDriver()
    driver.launch(request(session="s1"))
    driver.receive(line(id=1, result=ABLE))

    failed = driver.receive(answer)[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.SESSION_GONE


def test_an_agent_that_loads_no_sessions_is_not_given_a_new_one() -> None:
    driver = AcpDriver()
    driver.launch(request(session="s1"))

    (failed,) = driver.receive(line(id=1, result={"protocolVersion": 1}))

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.SESSION_GONE


@pytest.mark.parametrize(
    ("decision", "option"), [(Answer("allow"), "once"), (Refused("E-1", "no"), "no")]
)
def test_a_question_is_answered_by_one_of_its_options(decision: Decision, option: str) -> None:
    driver = prompted(config=AcpConfig(permissions="ask"))

    call, permission = driver.receive(asked())
    answer = driver.answer("0", decision)

    assert call == ToolCall("c1", "ls", {"command": "ls"})
    assert permission == Permission("0", "ls", {"command": "ls"}, ["always", "once", "no"])
    assert sent(answer)[0] == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {"outcome": {"outcome": "selected", "optionId": option}},
    }
    assert driver.answer("0", decision) is None


def test_a_question_is_said_yes_to_where_everything_is_allowed() -> None:
    said = list(prompted().receive(asked("q")))

    assert not any(isinstance(item, Permission) for item in said)
    assert sent(said)[0]["result"]["outcome"] == {"outcome": "selected", "optionId": "once"}


def test_what_we_never_offered_is_refused_and_notifications_are_not_answered() -> None:
    driver = prompted()

    said = sent(list(driver.receive(line(id=7, method="fs/read_text_file", params={}))))
    quiet = driver.receive(line(method="_vendor/news", params={}))

    assert (said[0]["id"], said[0]["error"]["code"]) == (7, -32601)
    assert list(quiet) == []


def test_an_interrupt_cancels_the_turn_and_withdraws_questions() -> None:
    driver = prompted(config=AcpConfig(permissions="ask"))
    driver.receive(asked())

    cancel, withdrawn = sent(driver.interrupt())
    said = hear(driver, line(id=3, result={"stopReason": "cancelled"}))

    assert (cancel["method"], cancel["params"]) == ("session/cancel", {"sessionId": "s1"})
    assert withdrawn["result"]["outcome"] == {"outcome": "cancelled"}
    assert said == [
        ToolResult("c1", "ls", "interrupted", is_error=True),
        uncounted("s1/0/0"),
        TurnFailed(FailureKind.OTHER, "the agent cancelled the turn"),
    ]


def test_before_the_prompt_there_is_nothing_to_interrupt_and_then_no_prompt() -> None:
    driver = AcpDriver()
    driver.launch(request())

    stopped = driver.interrupt()
    said = hear(driver, line(id=1, result=ABLE), line(id=2, result=OPENED))

    assert stopped is None
    assert [one["method"] for one in sent(said)] == ["session/new"]
    assert isinstance(said[-1], TurnFailed)


def test_words_wait_for_the_end_of_the_turn_and_get_a_turn_of_their_own() -> None:
    driver = prompted()

    waiting = driver.steer("w1", "and now?")
    first = hear(driver, words("one"), line(id=3, result={"stopReason": "end_turn"}))
    (prompt,) = sent(first)
    second = hear(driver, words("two"))
    third = hear(driver, line(id=prompt["id"], result={"stopReason": "end_turn"}))

    assert waiting == Send(b"")
    assert events(first) == [TextDelta("one"), Text("one"), uncounted("s1/0/0")]
    assert prompt["params"]["prompt"] == [{"type": "text", "text": "and now?"}]
    assert second == [Steered("w1"), TextDelta("two")]
    assert third == [Text("two"), uncounted("s1/1/0"), TurnEnd("two")]
    assert driver.steer("w2", "late") is None


def test_an_answer_that_comes_twice_ends_one_turn_and_not_the_next() -> None:
    driver = prompted()
    driver.steer("w1", "and now?")
    answer = line(id=3, result={"stopReason": "end_turn"})

    first, second = hear(driver, answer), hear(driver, answer)

    assert sent(first)[0]["method"] == "session/prompt"
    assert [type(item) for item in second] == [Note]


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("refusal", FailureKind.DECLINED),
        ("max_tokens", FailureKind.TRUNCATED),
        ("max_turn_requests", FailureKind.MAX_TURNS),
        ("cancelled", FailureKind.OTHER),
        ("never heard of", FailureKind.OTHER),
    ],
)
def test_only_end_turn_is_an_end(stop: str, kind: FailureKind) -> None:
    failed = hear(prompted(), line(id=3, result={"stopReason": stop}))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": -32000, "message": "Authentication required"}, FailureKind.AUTH),
        ({"code": 401, "message": "{}"}, FailureKind.AUTH),
        ({"code": 429, "message": "slow down"}, FailureKind.RATE_LIMIT),
        ({"code": -32603, "message": "API Error: 429 quota exceeded"}, FailureKind.QUOTA),
        ({"code": -32603, "message": "prompt is too long"}, FailureKind.CONTEXT_LENGTH),
        ({"code": -32603, "message": "Internal error"}, FailureKind.OTHER),
        ({"code": 403, "message": "no"}, FailureKind.AUTH),
        ({"code": -32603, "message": 'x {"error":{"code":402,"m":1}}'}, FailureKind.QUOTA),
        ({"code": -32603, "message": "blocked by the content filter"}, FailureKind.DECLINED),
        ({"code": -32603, "message": "connect ECONNREFUSED 1.2.3.4:443"}, FailureKind.OTHER),
        ({"code": -32603, "message": "it refused to connect"}, FailureKind.OTHER),
        ({"code": -32603, "message": "parse error in line 14012 (4.290 s)"}, FailureKind.OTHER),
    ],
)
def test_an_error_is_told_by_its_kind(error: dict[str, object], kind: FailureKind) -> None:
    failed = hear(prompted(), line(id=3, error=error))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind


def test_what_the_turn_used_is_told_once() -> None:
    used = {"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 3, "thoughtTokens": 2}
    answer = line(id=3, result={"stopReason": "end_turn", "usage": used})

    said = hear(prompted(), answer, answer)

    assert said == [
        Usage(
            "unknown:big",
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=3,
            reasoning_tokens=2,
            call_id="s1/0/0",
        ),
        TurnEnd(""),
    ]


def test_an_answer_that_cannot_be_read_used_nobody_knows_how_much() -> None:
    note, usage = hear(prompted(), b'{"id":3,"result":{"stopReason":"end_turn","usage":{"inp\n')

    assert isinstance(note, Note)
    assert usage == Usage("unknown:unknown")


def test_a_tool_call_is_told_once_its_input_is_known() -> None:
    driver = prompted()
    call = {"toolCallId": "c1", "title": "bash"}

    first = hear(driver, update("tool_call", **call, status="pending", rawInput={"cwd": "/"}))
    second = hear(driver, update("tool_call_update", **call, rawInput={"command": "ls"}))
    third = hear(driver, update("tool_call_update", toolCallId="c1", status="failed", rawOutput=7))

    assert first == []
    assert second == [ToolCall("c1", "bash", {"command": "ls"})]
    assert third == [ToolResult("c1", "bash", 7, is_error=True)]
    assert hear(driver, update("tool_call", **call, status="pending")) == []


def test_half_a_character_costs_a_character() -> None:
    (delta,) = hear(prompted(), words("a").replace(b'"a"', b'"a\\ud83d"'))

    assert delta == TextDelta("a\ufffd")


def test_a_value_that_nests_too_deep_is_a_note_and_its_neighbours_live() -> None:
    deep = b"[" * 500 + b"]" * 500
    call = update("tool_call", toolCallId="c1", status="in_progress", rawInput="#")

    first, note, last = hear(prompted(), words("a"), call.replace(b'"#"', deep), words("b"))

    assert (first, last) == (TextDelta("a"), TextDelta("b"))
    assert isinstance(note, Note)


def test_nothing_comes_after_the_end() -> None:
    driver = prompted()

    said = hear(driver, line(id=3, result={"stopReason": "end_turn"}), words("late"))

    assert said == [TurnEnd("")]


def test_an_agent_that_is_gone_leaves_no_call_open() -> None:
    driver = AcpDriver()
    lines = TOOL.read_bytes().splitlines(keepends=True)
    driver.receive(b"".join(lines[:10]))

    *closed, failed = driver.ended(Exit(None, 9))

    left: list[Event] = [event for event in closed if isinstance(event, ToolResult)]
    assert left == [ToolResult("toolu_0002_2", "Bash", "interrupted", is_error=True)]
    assert failed == TurnFailed(
        FailureKind.HARNESS_ERROR, "the harness was ended by signal 9 before it ended its turn"
    )


def test_a_capsule_without_a_command_is_refused() -> None:
    with pytest.raises(HarnessError) as caught:
        AcpDriver().launch(request(command=()))

    assert caught.value.code == "E-HAR-003"


# Agents that are many at once, late, silent or early.


def test_thousands_of_calls_that_never_end_are_told_in_time() -> None:
    """Whoever speaks looks at the calls that were not told yet, not at all that are open."""
    number = 1_000
    lines = [
        one
        for n in range(number)
        for one in (update("tool_call", toolCallId=f"c{n}", title="ls"), words("."))
    ]
    half, whole = b"".join(lines[:number]), b"".join(lines)

    steps = [steps_of(prompted(), block) for block in (half, whole)]

    assert steps[1] < 2.5 * steps[0]


def steps_of(driver: AcpDriver, block: bytes) -> int:
    """Count the lines of Python that *driver* takes to hear *block*."""
    steps = 0

    def trace(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        driver.receive(block)
    finally:
        sys.settrace(before)
    return steps


def test_several_questions_at_once_are_answered_each_by_itself() -> None:
    driver = prompted(config=AcpConfig(permissions="ask"))

    said = hear(driver, asked(0), asked("q"), asked(0))
    answers = sent(driver.answer("q", Refused("E-1", "no"))) + sent(driver.answer("0", Answer("y")))
    again = hear(driver, asked("q"))

    assert [item.id for item in said if isinstance(item, Permission)] == ["0", "q"]
    assert [(one["id"], one["result"]["outcome"]["optionId"]) for one in answers] == [
        ("q", "no"),
        (0, "once"),
    ]
    assert again == []


@pytest.mark.parametrize("permissions", ["ask", "bypass"])
def test_what_is_asked_after_an_interrupt_is_not_allowed(permissions: str) -> None:
    driver = prompted(config=AcpConfig(permissions=permissions))  # type: ignore[arg-type]  # either
    driver.interrupt()

    said = hear(driver, asked(7))

    assert not any(isinstance(item, Permission) for item in said)
    assert sent(said)[0]["result"]["outcome"] == {"outcome": "cancelled"}


def test_a_question_about_a_call_without_a_name_is_told_as_far_as_it_goes() -> None:
    driver = prompted(config=AcpConfig(permissions="ask"))
    call = {"title": "rm", "rawInput": {"command": "rm -r"}}
    params = {"sessionId": "s1", "toolCall": call, "options": [{"name": "no id"}, *OPTIONS]}

    (permission,) = hear(driver, line(id=1, method="session/request_permission", params=params))

    assert isinstance(permission, Permission)
    assert (permission.tool, permission.input) == ("rm", {"command": "rm -r"})
    assert sent(driver.answer("1", Answer("y")))[0]["result"]["outcome"]["optionId"] == "once"


def test_an_agent_that_never_answers_a_cancel_is_counted_as_far_as_it_got() -> None:
    driver = prompted()
    driver.interrupt()
    hear(driver, words("and so on"))

    said = driver.ended(Exit(None, 9))

    assert [type(event) for event in said] == [Text, Usage, TurnFailed]
    assert said[1] == uncounted("s1/0/0")


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_turn_that_is_stopped_before_its_first_word_is_not_free(is_killed: bool) -> None:
    driver = prompted()

    said: list[Said] = []
    if is_killed:
        said += driver.ended(Exit(None, 9))
    else:
        driver.interrupt()
        said += hear(driver, line(id=3, result={"stopReason": "cancelled"}))

    assert said[0] == uncounted("s1/0/0")
    assert isinstance(said[1], TurnFailed)


@pytest.mark.parametrize(("is_done", "unknown"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_call_behind_a_tool_that_is_done_is_not_free(
    is_done: bool, unknown: int, is_killed: bool
) -> None:
    driver = prompted()
    ended = line(id=3, result={"stopReason": "cancelled"})
    aborted = update("tool_call_update", toolCallId="c1", status="failed")
    status = "completed" if is_done else "in_progress"
    said = hear(driver, words("a"), update("tool_call", toolCallId="c1", status=status))
    driver.interrupt()

    said += driver.ended(Exit(None, 9)) if is_killed else hear(driver, aborted, ended)

    assert len(used_of(said)) == unknown


def test_an_agent_that_leaves_with_words_unanswered_has_not_done_its_task() -> None:
    driver = prompted()
    driver.steer("w1", "and now?")
    hear(driver, words("one"), line(id=3, result={"stopReason": "end_turn"}))

    said = driver.ended(Exit(0, None))

    assert isinstance(said[-1], TurnFailed)
    assert not any(isinstance(event, Steered) for event in said)


def test_what_an_agent_says_after_the_end_of_its_turn_changes_nothing() -> None:
    driver = prompted()

    said = hear(
        driver,
        update("tool_call", toolCallId="c1", title="ls", status="in_progress"),
        line(id=3, result={"stopReason": "end_turn"}),
        update("tool_call_update", toolCallId="c1", status="completed", rawOutput="late"),
        asked(9),
    )

    assert [type(item) for item in said] == [ToolCall, ToolResult, Usage, TurnEnd]


def test_an_answer_that_does_not_say_how_the_turn_ended_ends_it() -> None:
    failed = hear(prompted(), words("a"), line(id=3, result={}))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.INDETERMINATE


def test_an_agent_that_gives_numbers_back_as_words_is_understood() -> None:
    said = hear(prompted(), line(id="3", result={"stopReason": "end_turn"}))

    assert said == [TurnEnd("")]


def test_a_number_that_is_longer_than_any_of_ours_is_nobodys() -> None:
    said = hear(prompted(), line(id="9" * 5000, result={"stopReason": "end_turn"}))

    assert [type(item) for item in said] == [Note]


def test_answers_that_come_twice_open_one_session_and_prompt_once() -> None:
    driver = AcpDriver()
    driver.launch(request())
    able, opened = line(id=1, result=ABLE), line(id=2, result=OPENED)

    said = hear(driver, able, able, opened, opened)

    assert [one["method"] for one in sent(said)] == ["session/new", "session/prompt"]


def test_a_mode_that_is_refused_is_not_done_without() -> None:
    driver = AcpDriver()
    driver.launch(request(config=AcpConfig(mode="read-only")))
    driver.receive(line(id=1, result=ABLE))
    (setting,) = sent(driver.receive(line(id=2, result=OPENED)))

    said = hear(driver, line(id=setting["id"], error={"code": -32602, "message": "no such mode"}))

    assert sent(said) == []
    assert isinstance(said[-1], TurnFailed)


def test_words_that_come_after_a_stop_are_not_taken() -> None:
    driver = prompted()
    driver.interrupt()

    assert driver.steer("w1", "and now?") is None


def test_an_error_that_nobody_waits_for_ends_nothing() -> None:
    driver = prompted()
    error = {"code": -32603, "message": "busy"}

    noted = hear(driver, line(id=2, error=error), line(id=77, error=error))
    said = hear(driver, line(id=3, result={"stopReason": "end_turn"}))

    assert [type(item) for item in noted] == [Note, Note]
    assert isinstance(said[-1], TurnEnd)


def test_a_tool_that_is_done_after_the_last_words_takes_none_of_them() -> None:
    call = {"toolCallId": "c1", "title": "ls"}
    said = hear(
        prompted(),
        update("tool_call", **call, status="in_progress"),
        words("all done"),
        update("tool_call_update", **call, status="completed"),
        line(id=3, result={"stopReason": "end_turn"}),
    )

    assert said[-1] == TurnEnd("all done")


def test_a_model_that_is_refused_is_not_what_is_counted() -> None:
    driver = AcpDriver()
    driver.launch(request(model="acme:small"))
    driver.receive(line(id=1, result=ABLE))
    (setting,) = sent(driver.receive(line(id=2, result=OPENED)))
    hear(driver, line(id=setting["id"], error={"code": -32602, "message": "no such model"}))

    said = hear(driver, words("a"), line(id=3, result={"stopReason": "end_turn"}))

    assert setting["params"]["modelId"] == "small"
    assert uncounted("s1/0/0") in said


# What agents tell of what they used, each in its own way.


def used_of(said: list[Said]) -> list[Usage]:
    return [item for item in said if isinstance(item, Usage)]


@pytest.mark.parametrize(
    ("used", "input", "output"),
    [
        # The total has each token once: what is beside, and what is part of what, follows.
        ({"totalTokens": 15, "cachedReadTokens": 3, "thoughtTokens": 2}, 7, 5),
        ({"totalTokens": 17, "cachedReadTokens": 3, "thoughtTokens": 2}, 7, 7),
        ({"totalTokens": 18, "cachedReadTokens": 3, "thoughtTokens": 2}, 10, 5),
        ({"totalTokens": 20, "cachedReadTokens": 3, "thoughtTokens": 2}, 10, 7),
        ({"totalTokens": 19, "cachedReadTokens": 3, "cachedWriteTokens": 4}, 7, 5),
        ({"totalTokens": 99, "cachedReadTokens": 3, "thoughtTokens": 2}, 10, 5),
        ({"cachedReadTokens": 3, "thoughtTokens": 2}, 10, 5),
    ],
)
def test_the_total_tells_what_is_part_of_what(
    used: dict[str, int], input: int, output: int
) -> None:
    told = {"inputTokens": 10, "outputTokens": 5, **used}
    said = hear(
        prompted(), words("a"), line(id=3, result={"stopReason": "end_turn", "usage": told})
    )

    (report,) = used_of(said)
    assert (report.input_tokens, report.output_tokens) == (input, output)


def test_numbers_of_one_call_leave_the_calls_before_it_unknown() -> None:
    told = {"inputTokens": 10, "outputTokens": 5}
    done = {"toolCallId": "c1", "title": "ls", "status": "completed"}

    said = hear(
        prompted(),
        update("tool_call", **done),
        words("a"),
        line(id=3, result={"stopReason": "end_turn", "usage": told}),
    )

    assert [report.input_tokens for report in used_of(said)] == [None, 10]


def test_numbers_of_each_call_are_counted_at_once_and_each_once() -> None:
    def counts(number: object) -> bytes:
        usage = {"inputTokens": number, "outputTokens": 5}
        empty = {"type": "text", "text": ""}
        return update("agent_message_chunk", content=empty, _meta={"usage": usage})

    done = {"toolCallId": "c1", "title": "ls", "status": "completed"}
    driver = prompted()

    first = hear(driver, words("a"), counts(10), counts(10), update("tool_call", **done))
    second = hear(driver, words("b"), counts(10), words("c"), counts("many"))
    third = hear(driver, words("d"), update("tool_call", toolCallId="c2", status="completed"))
    last = hear(driver, words("e"), line(id=3, result={"stopReason": "cancelled"}))

    assert [report.input_tokens for report in used_of(first + second)] == [10, 10, None]
    assert used_of(third) == []
    assert used_of(last) == [uncounted("s1/0/3")]


@pytest.mark.parametrize("number", [-1, 2**70])
def test_a_number_that_can_be_none_is_unknown(number: int) -> None:
    told = {"inputTokens": number, "outputTokens": 5}
    said = hear(
        prompted(), words("a"), line(id=3, result={"stopReason": "end_turn", "usage": told})
    )

    (report,) = used_of(said)
    assert (report.input_tokens, report.output_tokens) == (None, 5)


# No agent takes a task for a command of its own.


@pytest.mark.parametrize("text", ["/compact", " \n/etc/hosts: why?", "\ufeff/help", "$x"])
@pytest.mark.parametrize("way", ["task", "steer"])
def test_a_task_is_no_command_of_the_agent(text: str, way: str) -> None:
    driver = prompted(message=Message("m1", (TextPart("" if way == "steer" else text),)))
    driver.steer("w1", text)
    said = hear(driver, line(id=3, result={"stopReason": "end_turn"}))

    (prompt,) = sent(said)
    assert prompt["params"]["prompt"] == [{"type": "text", "text": f"Task:\n\n{text}"}]


def test_only_the_beginning_of_all_words_could_be_a_command() -> None:
    message = Message("m1", (TextPart(" "), TextPart("/x"), TextPart("/y")))
    driver = AcpDriver()
    driver.launch(request(message=message))
    driver.receive(line(id=1, result=ABLE))

    (prompt,) = sent(driver.receive(line(id=2, result=OPENED)))

    texts = [block["text"] for block in prompt["params"]["prompt"]]
    assert texts == [" ", "Task:\n\n/x", "/y"]
