"""A conversation with an ACP agent, from our side: what is sent, and what strange agents cost."""

from __future__ import annotations

import json
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
        TurnFailed(FailureKind.OTHER, "the agent cancelled the turn"),
    ]


def test_before_the_prompt_there_is_nothing_to_interrupt() -> None:
    driver = AcpDriver()
    driver.launch(request())

    assert driver.interrupt() is None


def test_words_wait_for_the_end_of_the_turn_and_get_a_turn_of_their_own() -> None:
    driver = prompted()

    waiting = driver.steer("w1", "and now?")
    first = hear(driver, words("one"), line(id=3, result={"stopReason": "end_turn"}))
    (prompt,) = sent(first)
    second = hear(driver, words("two"))
    third = hear(driver, line(id=prompt["id"], result={"stopReason": "end_turn"}))

    assert waiting == Send(b"")
    assert events(first) == [TextDelta("one"), Text("one")]
    assert prompt["params"]["prompt"] == [{"type": "text", "text": "and now?"}]
    assert second == [Steered("w1"), TextDelta("two")]
    assert third == [Text("two"), TurnEnd("two")]
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
            call_id="s1/0",
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
