"""The driver of Qwen Code: what is launched, what is sent, and what no recorded run shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from capsule_drivers.qwen_code import QwenCodeDriver
from capsule_drivers.qwen_launch import QwenCodeConfig
from capsule_runtime import (
    Answer,
    Exit,
    FailureKind,
    Note,
    Permission,
    Refused,
    Remember,
    Retrying,
    Said,
    Send,
    Session,
    Steered,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from support.launches import request_of

KEY = {"OPENAI_API_KEY": "sk-secret"}
MODEL = "openai:qwen3"


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def begun(session: str = "s-1") -> bytes:
    return line(type="system", subtype="init", session_id=session, model="qwen3")


def counts(whole: int, output: int, cached: int) -> dict[str, int]:
    return {"input_tokens": whole, "output_tokens": output, "cache_read_input_tokens": cached}


def block(name: str, usage: dict[str, int], **fields: Any) -> bytes:
    content = [{"type": "text", "text": "x", **fields}]
    return line(type="assistant", message={"id": name, "content": content, "usage": usage})


def result(usage: dict[str, int] | None = None, **fields: Any) -> bytes:
    return line(type="result", usage=usage or counts(0, 0, 0), **fields)


def of(kind: type, said: Sequence[Said]) -> list[Said]:
    return [one for one in said if isinstance(one, kind)]


def driver() -> QwenCodeDriver:
    """Return a driver whose harness has begun its turn."""
    fresh = QwenCodeDriver()
    fresh.launch(request_of(QwenCodeDriver, env=KEY, model="qwen3"))
    fresh.receive(begun())
    return fresh


# The launch.


def test_the_task_goes_by_stdin_behind_the_greeting() -> None:
    plan = QwenCodeDriver().launch(request_of(QwenCodeDriver, env=KEY))

    hello, task = map(json.loads, plan.stdin.splitlines())
    assert hello["request"] == {"subtype": "initialize"}
    assert task["message"] == {"role": "user", "content": "fix the test"}
    assert plan.keep_stdin is True
    assert "fix the test" not in plan.argv
    assert plan.argv[-3:] == ("--auth-type", "openai", "-v")


def test_flags_are_built_of_what_is_asked() -> None:
    config = QwenCodeConfig(permissions="ask", max_turns=4)
    asked = request_of(
        QwenCodeDriver, env=KEY, session="s-1", model="openrouter:qwen/qwen3", config=config
    )

    plan = QwenCodeDriver().launch(asked)

    assert plan.argv[6:-1] == (
        *("--approval-mode", "default", "--auth-type", "openai"),
        *("--model", "qwen/qwen3", "--resume", "s-1", "--max-session-turns", "4"),
    )


@pytest.mark.parametrize(
    ("variable", "auth", "model"),
    [
        ("OPENAI_API_KEY", "openai", "openai:m"),
        ("ANTHROPIC_API_KEY", "anthropic", "anthropic:m"),
        ("GEMINI_API_KEY", "gemini", "google:m"),
    ],
)
def test_the_key_that_is_given_says_which_api_is_spoken(
    variable: str, auth: str, model: str
) -> None:
    one = QwenCodeDriver()
    plan = one.launch(request_of(QwenCodeDriver, env={variable: "k"}))

    session, *_ = one.receive(line(type="system", subtype="init", session_id="s", model="m"))

    assert auth in plan.argv
    assert session == Session("s", model)


def test_telemetry_updates_and_hidden_calls_are_off_and_no_key_is_written() -> None:
    plan = QwenCodeDriver().launch(request_of(QwenCodeDriver, env=KEY, system_prompt="Be brief."))

    settings = json.loads(plan.files[".qwen/settings.json"])
    assert plan.env["QWEN_TELEMETRY_ENABLED"] == "false"
    assert settings["general"]["disableAutoUpdate"] is True
    assert settings["memory"]["enableManagedAutoMemory"] is False
    assert settings["ui"]["enableFollowupSuggestions"] is False
    assert settings["model"]["generationConfig"]["maxRetries"] == 0
    assert plan.files[".qwen/QWEN.md"] == b"Be brief."
    assert b"sk-secret" not in b"".join(plan.files.values())


# Talking to it.


def test_an_interrupt_is_a_request() -> None:
    sent = QwenCodeDriver().interrupt()

    assert sent is not None
    assert json.loads(sent.data)["request"] == {"subtype": "interrupt"}


def test_a_turn_that_ends_while_words_wait_ends_nothing() -> None:
    one = driver()
    waits = one.steer("st_1", "stop now")
    one.steer("st_2", "and then")

    first = one.receive(result(result="first"))
    second = one.receive(begun() + result(result="second"))
    third = one.receive(begun() + result(result="third"))

    assert waits == Send(b"")
    assert words_given(first) == ["stop now"]
    assert of(TurnEnd, first) == []
    assert (of(Steered, second), of(TurnEnd, second)) == ([Steered("st_1")], [])
    assert words_given(second) == ["and then"]
    assert (of(Steered, third), of(TurnEnd, third)) == ([Steered("st_2")], [TurnEnd("third")])


def test_words_that_wait_when_it_is_stopped_are_not_given_to_it() -> None:
    one = driver()
    one.steer("st_1", "stop now")
    one.interrupt()

    said = one.receive(result(is_error=True, error={"message": "Operation cancelled."}))

    assert words_given(said) == []
    assert said[-1] == TurnFailed(FailureKind.OTHER, "the turn was interrupted")


def words_given(said: Sequence[Said]) -> list[str]:
    """Return the words that are written to it."""
    lines = [json.loads(one.data) for one in said if isinstance(one, Send)]
    return [given["message"]["content"] for given in lines]


def spoken(words: str, id: str) -> list[bytes]:
    """Return the lines of an answer, each with a name."""
    start = {"type": "message_start", "message": {"id": id}}
    content = [{"type": "text", "text": words}]
    message = {"id": f"{id}-1", "content": content, "usage": counts(100, 10, 40)}
    stop = {"type": "message_stop"}
    return [
        line(type="stream_event", uuid=f"{id}-start", event=start),
        line(type="assistant", uuid=f"{id}-1", message=message),
        line(type="stream_event", uuid=f"{id}-stop", event=stop),
    ]


TWO_TURNS = (
    *spoken("Done.", "a1"),
    result(counts(100, 10, 40), uuid="r1", result="Done."),
    begun(),
    *spoken("I saw.", "a2"),
    result(counts(200, 20, 80), uuid="r2", result="I saw."),
)


def test_a_result_is_not_lost_for_another_line_that_is() -> None:
    for place, missing in enumerate(TWO_TURNS[:-1]):
        halves = [missing[: len(missing) // 2] + b"\n"]
        for rest in halves if b'"r1"' in missing else [b"", *halves]:
            one = driver()
            one.steer("st_1", "look")

            said = one.receive(b"".join([*TWO_TURNS[:place], rest, *TWO_TURNS[place + 1 :]]))

            assert words_given(said) == ["look"]
            assert of(Steered, said) == [Steered("st_1")], missing
            assert [*of(TurnEnd, said), *of(TurnFailed, said)] == [TurnEnd("I saw.")], missing


@pytest.mark.parametrize(
    ("exit", "is_done"), [(Exit(0, None), True), (Exit(1, None), False), (Exit(None, 9), False)]
)
def test_it_left_when_a_turn_was_done_and_the_next_had_not_begun(
    exit: Exit, *, is_done: bool
) -> None:
    one = driver()
    one.steer("st_1", "look")
    one.receive(b"".join(TWO_TURNS[:4]))

    assert (one.ended(exit)[-1] == TurnEnd("Done.")) is is_done


def test_a_turn_that_another_followed_does_not_decide() -> None:
    one = driver()
    one.steer("st_1", "look")
    one.receive(b"".join(TWO_TURNS[:-1]))

    failed = one.ended(Exit(0, None))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.INDETERMINATE


def test_there_is_one_end() -> None:
    said = driver().receive(b"".join(TWO_TURNS))

    assert [*of(TurnEnd, said), *of(TurnFailed, said)] == [TurnEnd("Done.")]
    assert isinstance(said[-1], Note)


def test_a_line_that_comes_twice_says_nothing_twice() -> None:
    call = {"type": "tool_use", "id": "t", "name": "shell", "input": 7}
    gave = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
    lines = [
        begun(),
        line(type="assistant", message={"id": "a1", "content": [call]}),
        line(type="user", uuid="u1", message={"content": [gave]}),
        line(type="stream_event", uuid="e1", event=delta),
        block("c1", counts(100, 10, 40)),
        *TWO_TURNS[-4:],
    ]
    once, twice = driver(), driver()
    for one in (once, twice):
        one.steer("st_1", "look")

    said = twice.receive(b"".join(each for one in lines for each in (one, one)))

    assert said == once.receive(b"".join(lines))


def test_a_session_whose_beginning_was_lost_is_told_by_what_follows() -> None:
    one = QwenCodeDriver()
    one.launch(request_of(QwenCodeDriver, env=KEY, model="qwen3"))
    message = {"id": "a1", "model": "qwen3", "content": [{"type": "text", "text": "x"}]}

    said = one.receive(line(type="assistant", session_id="s-1", message=message))

    assert of(Session, said) == [Session("s-1", MODEL)]
    assert len(of(Remember, said)) == 1


def test_a_turn_that_failed_is_not_the_end_either_while_words_wait() -> None:
    one = driver()
    one.steer("st_1", "stop now")

    said = one.receive(result(is_error=True, error={"message": "loop"}))

    assert of(TurnFailed, said) == []
    assert [isinstance(note, Note) and "loop" in note.text for note in of(Note, said)] == [True]


def test_an_interrupt_ends_it_whatever_waits() -> None:
    one = driver()
    one.steer("st_1", "stop now")
    one.interrupt()

    said = one.receive(result(is_error=True, error={"message": "Operation cancelled."}))

    assert said[-1] == TurnFailed(FailureKind.OTHER, "the turn was interrupted")


def test_a_question_for_permission_and_both_answers() -> None:
    question = {"subtype": "can_use_tool", "tool_name": "shell", "input": {"command": "ls"}}
    one = driver()

    said = [
        one.receive(line(type="control_request", request_id=id, request=question))
        for id in ("q1", "q1", "q2")
    ]
    yes = one.answer("q1", Answer("allow"))
    no = one.answer("q2", Refused("E-RUN-040", "no"))

    asked = [Permission(id, "shell", {"command": "ls"}) for id in ("q1", "q2")]
    assert said == [asked[:1], [], asked[1:]]
    assert yes is not None
    assert no is not None
    assert json.loads(yes.data)["response"]["response"] == {"behavior": "allow"}
    assert json.loads(no.data)["response"] == {
        "subtype": "success",
        "request_id": "q2",
        "response": {"behavior": "deny", "message": "no"},
    }


def test_what_else_it_asks_for_is_refused_at_once() -> None:
    said = driver().receive(
        line(type="control_request", request_id="q1", request={"subtype": "mcp_message"})
    )

    assert isinstance(said[0], Note)
    assert isinstance(said[1], Send)
    assert json.loads(said[1].data)["response"]["subtype"] == "error"


def again(uuid: str, **data: object) -> bytes:
    return line(type="system", subtype="retry", uuid=uuid, session_id="s-1", data=data)


def test_a_call_that_is_tried_again_is_told_once() -> None:
    before = again("u1", reason="retry", attempt=2, maxRetries=3, delayMs=1500)
    after = again("u2", reason="retry", preserveText=False)

    assert driver().receive(before + before + after) == [Retrying(2, "retry", 3, 1.5)]


def test_an_answer_that_is_given_up_for_another_try_was_a_call() -> None:
    start = {"type": "message_start", "message": {"id": "a1"}}

    said = driver().receive(line(type="stream_event", event=start) + again("u1", attempt=1))

    assert said == [Usage(MODEL, call_id="a1"), Retrying(1, "unknown")]


# Usage.


def test_a_hidden_call_is_what_the_sum_has_beyond_the_calls() -> None:
    one = driver()

    calls = one.receive(block("c1", counts(0, 0, 0)) + block("c2", counts(100, 10, 40)))
    end = one.receive(result(counts(250, 30, 90), result="done"))

    assert of(Usage, calls) == [Usage(MODEL, 60, 10, 40, call_id="c2")]
    assert of(Usage, end) == [Usage(MODEL, 100, 20, 50, call_id="hidden-1")]


def test_thoughts_that_are_counted_outside_the_output_are_put_into_it() -> None:
    used = {**counts(100, 10, 40), "total_tokens": 130}

    said = driver().receive(block("c1", used) + result(used, result="done"))

    assert of(Usage, said) == [Usage(MODEL, 60, 30, 40, call_id="c1")]


def test_a_line_that_comes_twice_counts_once() -> None:
    one = driver()
    call = block("c1", counts(100, 10, 40))

    said = one.receive(call + call + result(counts(100, 10, 40)) + result(counts(100, 10, 40)))

    assert len(of(Usage, said)) == 1


def test_a_session_that_is_resumed_counts_only_what_is_new() -> None:
    one = driver()
    (*_, kept) = of(
        Remember, one.receive(block("c1", counts(100, 10, 40)) + result(counts(150, 15, 40)))
    )
    assert isinstance(kept, Remember)
    again = QwenCodeDriver()
    again.launch(request_of(QwenCodeDriver, env=KEY, session="s-1", memory=kept.data))

    said = again.receive(
        begun() + block("c2", counts(100, 10, 40)) + result(counts(250, 25, 80), result="done")
    )

    assert of(Usage, said) == [Usage(MODEL, 60, 10, 40, call_id="c2")]


def test_calls_of_a_process_that_was_killed_are_not_counted_again() -> None:
    killed = driver()
    (kept,) = of(Remember, killed.receive(block("c1", counts(100, 10, 40))))
    assert isinstance(kept, Remember)
    again = QwenCodeDriver()
    again.launch(request_of(QwenCodeDriver, env=KEY, session="s-1", memory=kept.data))

    assert of(Usage, again.receive(begun() + result(counts(100, 10, 40)))) == []


IMPOSSIBLE = (-1, 1.5, 2**41, 10**30, "9", True)


def kept(input: object, output: int = 0, cached: int = 0) -> bytes:
    counted = {"input": input, "output": output, "cached": cached}
    return json.dumps({"session": "s-1", "sum": counted}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "memory", [None, b"junk", b'{"session":"another"}', *map(kept, (None, *IMPOSSIBLE))]
)
def test_without_a_memory_the_hidden_calls_of_the_first_turn_are_unknown(
    memory: bytes | None,
) -> None:
    again = QwenCodeDriver()
    again.launch(request_of(QwenCodeDriver, env=KEY, session="s-1", memory=memory))
    again.steer("st_1", "more")

    first = again.receive(begun() + result(counts(900, 90, 0), uuid="r1"))
    second = again.receive(begun() + result(counts(1000, 100, 0), uuid="r2", result="done"))

    (unknown,) = of(Usage, first)
    assert isinstance(unknown, Usage)
    assert (unknown.call_id, unknown.input_tokens) == ("hidden-1", None)
    assert of(Usage, second) == [Usage(MODEL, 100, 10, 0, call_id="hidden-2")]


@pytest.mark.parametrize("count", IMPOSSIBLE)
def test_a_count_that_cannot_be_is_unknown_and_costs_no_line(count: object) -> None:
    usage = {**counts(100, 10, 40), "input_tokens": count}
    content = [{"type": "text", "text": "x"}]
    one = driver()

    said = one.receive(
        line(type="assistant", message={"id": "c1", "content": content, "usage": usage})
        + line(type="result", result="done", usage=usage)
    )

    assert said == [
        Text("x", "c1"),
        Usage(MODEL, None, 10, 40, call_id="c1"),
        Remember(kept(0, 10, 40)),
        Remember(kept(0, 10, 40)),
        Usage(MODEL, call_id="hidden-1"),
        TurnEnd("done"),
    ]


def test_what_a_call_did_not_tell_is_in_the_sum() -> None:
    said = driver().receive(
        block("c1", {"output_tokens": 10}) + result(counts(100, 10, 40), result="done")
    )

    assert of(Usage, said) == [
        Usage(MODEL, None, 10, None, call_id="c1"),
        Usage(MODEL, 60, 0, 40, call_id="hidden-1"),
    ]


def test_more_from_the_cache_than_there_was_input_is_no_input_of_nothing() -> None:
    assert of(Usage, driver().receive(block("c1", counts(100, 10, 400)))) == [
        Usage(MODEL, None, 10, 400, call_id="c1")
    ]


@pytest.mark.parametrize("sum_so_far", [{}, counts(0, 0, 0), counts(50, 5, 0)])
def test_a_last_sum_that_says_nothing_leaves_hidden_calls_unknown(
    sum_so_far: dict[str, int],
) -> None:
    said = driver().receive(
        block("c1", counts(100, 10, 40)) + line(type="result", result="done", usage=sum_so_far)
    )

    assert of(Usage, said)[1:] == [Usage(MODEL, call_id="hidden-1")]


def test_a_sum_that_cannot_be_read_leaves_hidden_calls_unknown() -> None:
    one = driver()
    said = one.receive(b'{"type":"result","usage":\n')

    assert [type(event) for event in said] == [Note, Usage, TurnFailed]
    assert said[1] == Usage(MODEL, call_id="hidden-1")


def test_a_sum_that_comes_after_one_that_cannot_be_read_tells_what_was_unknown() -> None:
    one = driver()
    one.receive(b'{"type":"result","usage":\n')

    said = one.receive(result(counts(100, 10, 40)))

    assert of(Usage, said) == [Usage(MODEL, 60, 10, 40, call_id="hidden-1")]


def test_a_result_that_nobody_can_read_ends_the_turn_at_once() -> None:
    said = driver().receive(b'{"type":"result","subtype":"succ\n' + result(result="x"))

    (failed,) = of(TurnFailed, said)
    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.INDETERMINATE
    assert of(TurnEnd, said) == []


def test_a_result_that_nobody_can_read_ends_no_run_while_words_wait() -> None:
    one = driver()
    one.steer("st_1", "look")

    said = one.receive(b'{"type":"result","subtype":"succ\n')

    assert words_given(said) == ["look"]
    assert of(TurnFailed, said) == []


def test_the_empty_sum_of_a_turn_that_broke_off_takes_nothing_back() -> None:
    one = driver()
    one.receive(block("c1", counts(100, 10, 40)))
    one.steer("st_1", "more")
    one.receive(result(counts(0, 0, 0), is_error=True))

    assert of(Usage, one.receive(begun() + result(counts(100, 10, 40)))) == []


def test_an_answer_that_was_cut_off_has_an_unknown_usage() -> None:
    start = {"type": "message_start", "message": {"id": "a1"}}
    one = driver()

    said = one.receive(
        line(type="stream_event", event=start)
        + result(is_error=True, error={"message": "Operation cancelled."})
    )

    assert of(Usage, said) == [Usage(MODEL, call_id="a1")]


def test_what_it_says_of_an_error_is_no_answer() -> None:
    start = {"type": "message_start", "message": {"id": "a1"}}
    text = "[API Error: 401 no]"
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    one = driver()

    said = one.receive(
        line(type="stream_event", event=start)
        + line(type="stream_event", event=delta)
        + block("a1", counts(0, 0, 0), text=text)
        + result(is_error=True, error={"message": text})
    )

    assert of(Usage, said) == []
    assert of(TextDelta, said) == []
    assert said[-1] == TurnFailed(FailureKind.AUTH, text)


def test_a_sub_agent_is_counted_and_says_nothing() -> None:
    usage = counts(100, 10, 40)
    content = [{"type": "text", "text": "aside"}]
    message = {"id": "c1", "content": content, "usage": usage}

    said = driver().receive(line(type="assistant", parent_tool_use_id="t1", message=message))

    assert [type(one) for one in said] == [Usage, Remember]


def test_a_call_counts_for_the_model_that_answered_it() -> None:
    message: dict[str, Any] = {"id": "c1", "model": "qwen3-small", "content": []}
    message["usage"] = counts(100, 10, 40)

    said = driver().receive(line(type="assistant", parent_tool_use_id="t1", message=message))

    assert of(Usage, said) == [Usage("openai:qwen3-small", 60, 10, 40, call_id="c1")]


def test_an_answer_that_cannot_be_read_is_one_of_unknown_usage() -> None:
    said = driver().receive(b'{"type":"assistant","message":7}\njunk\n')

    assert [type(one) for one in said] == [Note, Usage, Note]


# How it ends.


def test_calls_that_are_open_at_the_end_are_closed() -> None:
    content = [{"type": "tool_use", "id": "t1", "name": "shell", "input": 7}]
    one = driver()
    said = one.receive(line(type="assistant", message={"id": "a1", "content": content}))

    assert said == [ToolCall("t1", "shell", 7, "a1")]
    assert ToolResult("t1", "shell", "interrupted", True) in one.receive(result(is_error=True))


@pytest.mark.parametrize(
    ("exit", "kind"),
    [
        (Exit(53, None, b"Reached max session turns\n"), FailureKind.MAX_TURNS),
        (Exit(1, None, b"No saved session found with ID s-1.\n"), FailureKind.SESSION_GONE),
        (Exit(1, None), FailureKind.HARNESS_ERROR),
        (Exit(None, 9), FailureKind.HARNESS_ERROR),
        (Exit(0, None), FailureKind.INDETERMINATE),
    ],
)
def test_one_that_left_without_an_end(exit: Exit, kind: FailureKind) -> None:
    (failed,) = QwenCodeDriver().ended(exit)

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind
