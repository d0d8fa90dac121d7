"""The pi driver: what is launched, what is sent, and what no recorded run shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capsule_drivers.pi import PiDriver
from capsule_drivers.pi_launch import PiConfig
from capsule_runtime import (
    Exit,
    FailureKind,
    HarnessError,
    Note,
    Retrying,
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

KEY = {"ANTHROPIC_API_KEY": "sk-secret"}


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def answer(stop: str = "stop", **fields: Any) -> dict[str, Any]:
    usage = {"input": 10, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}
    said = {"role": "assistant", "provider": "anthropic", "model": "m", "responseId": "r1"}
    return {**said, "content": list[Any](), "usage": usage, "stopReason": stop, **fields}


def ended(stop: str = "error", message: str = "500 broken") -> bytes:
    said = answer(stop, errorMessage=message)
    return line(type="agent_end", messages=[said])


def state(**data: Any) -> bytes:
    return line(id="capsule-verdict", type="response", command="get_state", success=True, data=data)


# The launch.


def test_the_task_goes_by_stdin_behind_the_question_for_the_session() -> None:
    plan = PiDriver().launch(request_of(PiDriver, env=KEY))

    assert plan.argv == ("pi", "--mode", "rpc", "-v")
    assert plan.keep_stdin is True
    assert [json.loads(one)["type"] for one in plan.stdin.splitlines()] == ["get_state", "prompt"]
    assert json.loads(plan.stdin.splitlines()[1])["message"] == "fix the test"


def test_a_session_and_a_model_are_flags() -> None:
    asked = request_of(
        PiDriver, env=KEY, session="s-1", model="openai:gpt-5", config=PiConfig(thinking="low")
    )

    plan = PiDriver().launch(asked)

    assert plan.argv[3:-1] == (
        *("--provider", "openai", "--model", "gpt-5"),
        *("--thinking", "low", "--session", "s-1"),
    )


def test_the_first_key_that_is_given_says_whose_model_it_is() -> None:
    plan = PiDriver().launch(
        request_of(PiDriver, env={"GEMINI_API_KEY": "k"}, model="gemini-2.5-pro")
    )

    assert plan.argv[3:5] == ("--provider", "google")


def test_base_urls_are_written_into_home_and_keys_are_not() -> None:
    urls = {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1/",
    }

    plan = PiDriver().launch(request_of(PiDriver, env={**KEY, **urls}))

    models = json.loads(plan.files[".pi/agent/models.json"])
    assert models["providers"] == {
        "anthropic": {"baseUrl": "http://127.0.0.1:1"},
        "openai": {"baseUrl": "http://127.0.0.1:1/v1"},
        "google": {"baseUrl": "http://127.0.0.1:1/v1beta"},
    }
    assert b"sk-secret" not in b"".join(plan.files.values())


def test_a_server_of_your_own_is_spoken_to_as_you_say() -> None:
    env = {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    config = PiConfig(api="openai-completions")

    plan = PiDriver().launch(request_of(PiDriver, env=env, model="llama", config=config))

    assert json.loads(plan.files[".pi/agent/models.json"])["providers"]["openai"] == {
        "baseUrl": "http://127.0.0.1:1/v1",
        "api": "openai-completions",
        "apiKey": "OPENAI_API_KEY",
        "models": [{"id": "llama"}],
    }


def test_telemetry_update_checks_and_silent_retries_are_off() -> None:
    plan = PiDriver().launch(request_of(PiDriver, env=KEY))

    assert (plan.env["PI_OFFLINE"], plan.env["PI_TELEMETRY"]) == ("1", "0")
    settings = json.loads(plan.files[".pi/agent/settings.json"])
    assert settings["enableInstallTelemetry"] is False
    assert settings["retry"]["provider"]["maxRetries"] == 0


def test_a_system_prompt_of_an_earlier_run_does_not_stay() -> None:
    first = PiDriver().launch(request_of(PiDriver, env=KEY, system_prompt="Be brief."))
    second = PiDriver().launch(request_of(PiDriver, env=KEY))

    assert first.files[".pi/agent/APPEND_SYSTEM.md"] == b"Be brief."
    assert second.files[".pi/agent/APPEND_SYSTEM.md"] == b""


def test_a_provider_that_nobody_knows_is_refused() -> None:
    with pytest.raises(HarnessError, match="no provider 'acme'"):
        PiDriver().launch(request_of(PiDriver, env=KEY, config=PiConfig(provider="acme")))


# Talking to it.


def test_an_interrupt_is_an_abort() -> None:
    assert PiDriver().interrupt() == Send(b'{"id":"capsule-abort","type":"abort"}\n')


def test_words_are_taken_when_they_are_a_message_of_the_user() -> None:
    driver = PiDriver()
    sent = driver.steer("st_1", "stop now")
    user = {"role": "user", "content": [{"type": "text", "text": "stop now"}]}

    queued = driver.receive(line(type="queue_update", steering=["stop now"]))
    taken = driver.receive(line(type="message_end", message=user))
    again = driver.receive(line(type="message_end", message=user))

    assert sent == Send(b'{"id":"st_1","type":"steer","message":"stop now"}\n')
    assert (queued, taken, again) == ([], [Steered("st_1")], [])


def test_the_task_itself_is_no_steer() -> None:
    driver = PiDriver()
    driver.steer("st_1", "stop now")

    assert driver.receive(line(type="message_end", message={"role": "user", "content": "go"})) == []


def test_a_dialog_of_an_extension_is_left() -> None:
    said = PiDriver().receive(line(type="extension_ui_request", id="d1", method="confirm"))

    assert isinstance(said[0], Note)
    assert said[1] == Send(b'{"type":"extension_ui_response","id":"d1","cancelled":true}\n')


# What it says.


def test_an_answer_that_is_told_twice_counts_once() -> None:
    whole = line(type="message_end", message=answer())
    driver = PiDriver()

    assert driver.receive(whole) == [
        Usage("anthropic:m", 10, 2, 3, 4, 0, cost_usd=0.5, call_id="r1")
    ]
    assert driver.receive(whole) == []


def test_an_answer_that_comes_again_behind_another_is_not_said_again() -> None:
    def spoken(id: str) -> bytes:
        said = answer(responseId=id, content=[{"type": "text", "text": id}])
        return line(type="message_end", message=said)

    said = PiDriver().receive(spoken("a") + spoken("b") + spoken("a"))

    assert [one.text for one in said if isinstance(one, Text)] == ["a", "b"]


def test_two_answers_that_a_server_names_alike_are_two() -> None:
    first = line(type="message_end", message=answer(timestamp=1))
    second = line(type="message_end", message=answer(timestamp=2))

    said = PiDriver().receive(first + second + first)

    assert [one.call_id for one in said if isinstance(one, Usage)] == ["r1", "r1-2"]


def test_two_answers_without_a_name_are_two() -> None:
    nameless = line(type="message_end", message=answer(responseId=""))

    said = PiDriver().receive(nameless + nameless)

    assert said == [Usage("anthropic:m", 10, 2, 3, 4, 0, cost_usd=0.5)] * 2


def called(id: str, answered_by: str) -> bytes:
    block = {"type": "toolCall", "id": id, "name": "bash", "arguments": dict[str, Any]()}
    said = answer("toolUse", responseId=answered_by, content=[block])
    return line(type="message_end", message=said)


def started(id: str) -> bytes:
    return line(type="tool_execution_start", toolCallId=id, toolName="bash", args={})


def gave(id: str) -> bytes:
    return line(type="tool_execution_end", toolCallId=id, toolName="bash", result="r")


def test_what_a_tool_gave_is_told_once_and_its_call_too() -> None:
    driver = PiDriver()
    driver.receive(called("t1", "a"))

    said = driver.receive(started("t1") + gave("t1") + started("t1") + gave("t1"))

    assert said == [ToolResult("t1", "bash", "r", False)]


def test_a_call_whose_id_was_used_before_is_another_call() -> None:
    round = started("t1") + gave("t1")

    said = PiDriver().receive(called("t1", "a") + round + called("t1", "b") + round)

    spoken = [type(one) for one in said if not isinstance(one, Usage)]
    assert spoken == [ToolCall, ToolResult, ToolCall, ToolResult]


def update(delta: str = "a") -> bytes:
    change = {"type": "text_delta", "delta": delta}
    return line(type="message_update", assistantMessageEvent=change, message=answer(timestamp=1))


WHOLE = answer(timestamp=1)
COUNTED = Usage("anthropic:m", 10, 2, 3, 4, 0, cost_usd=0.5, call_id="r1")


def test_an_answer_whose_end_was_lost_is_counted_at_the_end_of_its_turn() -> None:
    over = line(type="turn_end", message=WHOLE)

    said = PiDriver().receive(update() + over + over)

    assert [one for one in said if not isinstance(one, Send)] == [TextDelta("a"), COUNTED]


def test_an_answer_whose_end_cannot_be_read_is_counted_once() -> None:
    broken = b'{"type":"message_end","message":{"role":"assistant","usa\n'

    said = PiDriver().receive(
        update() + broken + line(type="turn_end", message=WHOLE) + ended("aborted")
    )

    # The second report replaces the first: they name the same call.
    used = [one for one in said if isinstance(one, Usage)]
    assert used == [Usage("unknown:unknown", call_id="r1"), COUNTED]


def test_a_line_that_comes_again_behind_its_answer_begins_no_other() -> None:
    whole = line(type="message_end", message=WHOLE)

    said = PiDriver().receive(update() + whole + update() + ended("aborted"))

    assert [one for one in said if isinstance(one, Usage)] == [COUNTED]


def test_a_shortening_that_is_told_twice_counts_once() -> None:
    done = line(type="compaction_end", result={"summary": "s"})

    said = PiDriver().receive(done + done)

    assert said == [Usage("unknown:unknown", call_id="compaction-1")]


def test_a_shortening_that_cannot_be_read_is_a_call_all_the_same() -> None:
    said = PiDriver().receive(b'{"type":"compaction_end","result":{"summ\n')

    assert [type(one) for one in said] == [Note, Usage]


def test_writes_for_an_hour_are_unknown_where_they_are_asked_for() -> None:
    driver = PiDriver()
    driver.launch(request_of(PiDriver, env={**KEY, "PI_CACHE_RETENTION": "long"}))

    (used,) = driver.receive(line(type="message_end", message=answer()))

    assert isinstance(used, Usage)
    assert used.cache_write_1h_tokens is None


@pytest.mark.parametrize(
    ("usage", "content", "expected"),
    [
        ({"input": 9, "output": 1}, [], [Usage("anthropic:m", 9, call_id="r1")]),
        ({"input": 0, "output": 0}, [], []),
        (
            {"input": 0, "output": 0},
            [{"type": "text", "text": ""}],
            [Usage("anthropic:m", call_id="r1")],
        ),
    ],
    ids=["begun", "never begun", "begun and not counted"],
)
def test_what_a_broken_answer_used(
    usage: dict[str, int], content: list[object], expected: list[Usage]
) -> None:
    message = answer("error", usage=usage, content=content)

    assert PiDriver().receive(line(type="message_end", message=message)) == expected


def test_an_answer_that_cannot_be_read_is_one_of_unknown_usage() -> None:
    broken = b'{"type":"message_end","message":{"role":"assistant","usage":{"input":"x"}}}\n'

    said = PiDriver().receive(b'{"type":"agent_start"}\n' + broken + b"junk\n")

    assert [type(one) for one in said] == [Note, Usage, Note]
    assert said[1] == Usage("unknown:unknown")


def test_a_line_that_is_too_deep_costs_no_neighbour() -> None:
    deep = b'{"type":"tool_execution_start","toolCallId":"t","toolName":"x","args":'
    deep += b"[" * 200 + b"]" * 200 + b"}\n"
    delta = line(type="message_update", assistantMessageEvent={"type": "text_delta", "delta": "a"})

    said = PiDriver().receive(deep + delta)

    assert said == [ToolCall("t", "x", "(it nests too deep to be shown)"), TextDelta("a")]


def test_half_a_character_costs_nothing_else() -> None:
    halved = b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"a\\ud83d"}}\n'

    assert PiDriver().receive(halved) == [TextDelta("a\ufffd")]


# How it ends.


def test_an_error_is_not_the_end_while_pi_tries_again() -> None:
    driver = PiDriver()

    asked = driver.receive(ended())
    retry = driver.receive(
        line(type="auto_retry_start", attempt=1, maxAttempts=3, delayMs=1000, errorMessage="500")
    )
    verdict = driver.receive(state(isCompacting=False))

    assert asked == [Send(b'{"id":"capsule-verdict","type":"get_state"}\n')]
    assert retry == [Retrying(1, "500", 3, 1.0)]
    assert verdict == []


def test_an_error_is_the_end_when_pi_does_not_try_again() -> None:
    driver = PiDriver()
    driver.receive(ended(message="401 nope"))

    assert driver.receive(state()) == [TurnFailed(FailureKind.AUTH, "401 nope")]
    assert driver.receive(state()) == []


def test_an_error_is_the_end_when_pi_gives_up() -> None:
    driver = PiDriver()
    driver.receive(ended(message="429 slow down"))

    assert driver.receive(line(type="auto_retry_end", success=False, finalError="429")) == [
        TurnFailed(FailureKind.RATE_LIMIT, "429 slow down")
    ]


def test_a_conversation_that_is_too_long_is_made_shorter_and_goes_on() -> None:
    driver = PiDriver()
    driver.receive(ended(message="prompt is too long"))

    busy = driver.receive(state(isCompacting=True))
    done = driver.receive(line(type="compaction_end", willRetry=True, result={"summary": "s"}))

    assert busy == []
    assert done == [Usage("unknown:unknown", call_id="compaction-1")]  # a call nobody counts


def test_a_turn_ends_once() -> None:
    end = line(type="agent_end", messages=[answer()])

    assert PiDriver().receive(end + end + ended("aborted")) == [TurnEnd("")]


def idle(id: str, **data: Any) -> bytes:
    told = {"isStreaming": False, **data}
    return line(id=id, type="response", command="get_state", success=True, data=told)


OVER = line(type="turn_end", message=answer(content=[{"type": "text", "text": "done"}]))


def asks(id: str) -> list[Send]:
    return [Send(b'{"id":"%s","type":"get_state"}\n' % id.encode())]


def test_a_turn_ends_though_the_line_that_says_so_is_too_long_to_be_read() -> None:
    driver = PiDriver()
    driver.receive(line(type="message_end", message=answer()))

    asked = [driver.receive(OVER), driver.receive(idle("capsule-over"))]
    end = driver.receive(idle("capsule-surely"))

    assert asked == [asks("capsule-over"), asks("capsule-surely")]
    assert end == [TurnEnd("done")]
    assert driver.receive(line(type="agent_end", messages=[answer()])) == []


CUT = b'{"type":"agent_end","messages":[{"role":"user"\n'


def test_an_end_that_cannot_be_read_is_told_by_the_last_answer() -> None:
    driver = PiDriver()
    driver.receive(OVER)

    said = driver.receive(CUT + line(type="agent_end", messages=[answer()]))

    assert [event for event in said if not isinstance(event, Note)] == [TurnEnd("done")]


def test_an_error_whose_end_cannot_be_read_is_the_end_unless_pi_tries_again() -> None:
    failed = line(
        type="turn_end", message=answer(stopReason="error", errorMessage="401 nope", timestamp=9)
    )
    driver = PiDriver()
    driver.receive(failed)

    note, *asked = driver.receive(CUT)

    assert isinstance(note, Note)
    assert asked == asks("capsule-verdict")
    assert driver.receive(state()) == [TurnFailed(FailureKind.AUTH, "401 nope")]


def test_an_end_that_cannot_be_read_of_an_answer_that_nobody_heard_is_indeterminate() -> None:
    _, end = PiDriver().receive(CUT)

    assert isinstance(end, TurnFailed)
    assert end.kind is FailureKind.INDETERMINATE


@pytest.mark.parametrize(
    "then",
    [
        line(type="turn_start"),
        line(type="agent_end", messages=[answer()]),
        idle("capsule-over", isStreaming=True),
        idle("capsule-over", isCompacting=True),
    ],
    ids=["another turn", "its end", "at work", "making room"],
)
def test_a_pi_that_goes_on_or_said_so_is_not_ended_by_us(then: bytes) -> None:
    driver = PiDriver()
    driver.receive(OVER)
    driver.receive(then)

    assert driver.receive(idle("capsule-over")) in ([], asks("capsule-surely"))
    if b"response" not in then:
        assert driver.receive(idle("capsule-surely")) == []


def test_an_error_that_is_told_again_while_pi_tries_again_is_no_end() -> None:
    driver = PiDriver()
    driver.receive(ended())
    driver.receive(line(type="auto_retry_start", attempt=1, errorMessage="500"))

    again = driver.receive(ended())
    verdict = driver.receive(state(isCompacting=False))

    assert (again, verdict) == ([], [])


@pytest.mark.parametrize(
    ("odd", "terminal"),
    [
        ({"role": "custom", "timestamp": "today"}, TurnEnd("")),
        ({"role": 7}, TurnEnd("")),
        (
            answer(usage={"input": "x"}),
            TurnFailed(FailureKind.INDETERMINATE, "pi ended with an answer that cannot be read"),
        ),
        (
            answer(content=7),
            TurnFailed(FailureKind.INDETERMINATE, "pi ended with an answer that cannot be read"),
        ),
    ],
    ids=["of an extension", "of nobody", "the answer itself", "the words of the answer"],
)
def test_an_odd_message_costs_no_end(odd: dict[str, Any], terminal: TurnEnd | TurnFailed) -> None:
    (said,) = PiDriver().receive(line(type="agent_end", messages=[answer(), odd]))

    if isinstance(said, TurnFailed):
        said = TurnFailed(said.kind, said.message.partition(" (")[0])
    assert said == terminal


def test_calls_that_are_open_at_the_end_are_closed() -> None:
    driver = PiDriver()
    driver.receive(line(type="tool_execution_start", toolCallId="t", toolName="bash", args={}))

    said = driver.receive(ended("aborted", ""))

    assert said == [
        ToolResult("t", "bash", "interrupted", True),
        TurnFailed(FailureKind.OTHER, "the turn was interrupted"),
    ]


def test_a_task_that_is_refused_at_once() -> None:
    refused = line(
        id="capsule-task", type="response", command="prompt", success=False, error="No API key"
    )

    assert PiDriver().receive(refused) == [TurnFailed(FailureKind.AUTH, "No API key")]


@pytest.mark.parametrize(
    ("exit", "kind"),
    [
        (Exit(1, None, b"No session found matching 's-1'\n"), FailureKind.SESSION_GONE),
        (Exit(1, None, b"No API key found for anthropic\n"), FailureKind.AUTH),
        (Exit(1, None, b"Error: Unknown option\n"), FailureKind.HARNESS_ERROR),
        (Exit(None, 9), FailureKind.HARNESS_ERROR),
        (Exit(0, None), FailureKind.INDETERMINATE),
    ],
)
def test_a_pi_that_left_without_an_end(exit: Exit, kind: FailureKind) -> None:
    (failed,) = PiDriver().ended(exit)

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind


def test_an_error_that_waits_for_its_verdict_is_the_end_of_a_pi_that_left() -> None:
    driver = PiDriver()
    driver.receive(ended(message="400 bad"))

    assert driver.ended(Exit(0, None)) == [TurnFailed(FailureKind.OTHER, "400 bad")]


def test_a_session_is_told_once() -> None:
    driver = PiDriver()
    told = state(sessionId="s-1", model={"id": "m", "provider": "p"}).replace(b"verdict", b"state")

    assert driver.receive(told) == [Session("s-1", "p:m")]
    assert driver.receive(told) == []


def test_the_answer_is_the_text_of_the_last_message() -> None:
    content = [{"type": "text", "text": "do"}, {"type": "text", "text": "ne"}]
    said = answer(content=content)

    assert PiDriver().receive(line(type="agent_end", messages=[said])) == [TurnEnd("done")]
