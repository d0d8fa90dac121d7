"""The driver of mini-swe-agent: what is launched, and what its trajectory says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capsule_drivers.mini_swe_agent import TRAJECTORY, MiniSweAgentConfig, MiniSweAgentDriver
from capsule_runtime import (
    Activity,
    Event,
    Exit,
    FailureKind,
    HarnessError,
    Note,
    Text,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from support.launches import request_of

SETTINGS = ".mini-swe-agent/capsule.yaml"
MODEL = "openai:gpt-5"
SPENT = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def answer(id: str = "r1", *, call: bool = True, cost: float = 0.0) -> dict[str, Any]:
    reply = {"message": {"content": "I look."}}
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    return {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": f"t-{id}", "function": function}] if call else None,
        "extra": {"response": {"id": id, "usage": SPENT, "choices": [reply]}, "cost": cost},
    }


def gave(id: str = "r1", code: int = 0) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": f"t-{id}",
        "content": "{}",
        "extra": {"raw_output": "a b", "returncode": code},
    }


def ended(*messages: dict[str, Any], exit: Exit | None = None, **info: object) -> list[Event]:
    """Return what a driver says of a trajectory of *messages*."""
    driver = MiniSweAgentDriver()
    driver.launch(request_of(MiniSweAgentDriver, model="openai/gpt-5"))
    written = json.dumps({"info": info, "messages": messages}).encode()
    left = exit or Exit(0, None)
    return list(driver.ended(Exit(left.code, left.signal, left.stderr_tail, {TRAJECTORY: written})))


# The launch.


def test_the_task_goes_by_file() -> None:
    plan = MiniSweAgentDriver().launch(request_of(MiniSweAgentDriver, model="openai/gpt-5"))

    assert plan.argv == (
        *("mini", "-y", "--exit-immediately"),
        *("-c", "mini.yaml", "-c", f"/private/{SETTINGS}"),
        *("-o", f"/private/{TRAJECTORY}", "-v"),
    )
    assert json.loads(plan.files[SETTINGS])["run"] == {"task": "fix the test"}
    assert (plan.stdin, plan.keep_stdin) == (b"", False)
    assert plan.collect == (TRAJECTORY,)


def test_the_trajectory_of_an_earlier_run_is_emptied() -> None:
    plan = MiniSweAgentDriver().launch(request_of(MiniSweAgentDriver, model="openai/gpt-5"))

    assert plan.files[TRAJECTORY] == b""


def test_the_base_url_of_the_models_provider_is_passed_on_and_its_key_is_not() -> None:
    env = {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "OPENAI_BASE_URL": "http://127.0.0.1:2/v1",
        "ANTHROPIC_API_KEY": "sk-secret",
    }

    plan = MiniSweAgentDriver().launch(
        request_of(MiniSweAgentDriver, env=env, model="anthropic:claude-sonnet-4-5")
    )

    model = json.loads(plan.files[SETTINGS])["model"]
    assert model["model_name"] == "anthropic/claude-sonnet-4-5"
    assert model["model_kwargs"] == {"max_retries": 0, "api_base": "http://127.0.0.1:1"}
    assert b"sk-secret" not in b"".join(plan.files.values())


def test_limits_and_retries_are_those_of_the_capsule() -> None:
    config = MiniSweAgentConfig(step_limit=7, retries=1, model_kwargs={"temperature": 0})

    plan = MiniSweAgentDriver().launch(request_of(MiniSweAgentDriver, model="m", config=config))

    settings = json.loads(plan.files[SETTINGS])
    assert settings["agent"] == {"step_limit": 7, "cost_limit": 0}
    assert settings["model"]["model_kwargs"]["temperature"] == 0
    assert plan.env["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] == "2"


def test_a_system_prompt_is_no_template() -> None:
    asked = request_of(MiniSweAgentDriver, model="m", system_prompt="Say {{ this }}.")

    settings = json.loads(MiniSweAgentDriver().launch(asked).files[SETTINGS])

    assert settings["agent"]["system_template"] == "{% raw %}Say {{ this }}.{% endraw %}"


def test_without_a_model_there_is_no_launch() -> None:
    with pytest.raises(HarnessError, match="no model is named"):
        MiniSweAgentDriver().launch(request_of(MiniSweAgentDriver))


def test_it_takes_nothing_while_it_works_but_a_signal() -> None:
    driver = MiniSweAgentDriver()

    assert driver.interrupt() is None
    assert driver.steer("st_1", "stop") is None
    assert driver.describe().interrupt_signal == 2


# What it prints.


def test_what_it_prints_of_its_steps_is_shown_live_and_its_prompt_is_not() -> None:
    printed = (
        b"System:\nYou are a helpful assistant\n\xe2\x94\x80\xe2\x94\x80\xe2\x94\x80\n"
        b"\x1b[31mmini-swe-agent (step 1, $0.00):\x1b[0m\nI look.\r\n\nTool:\na b\nUser:\nno tool\n"
        b"Exit:\ndone\nSaved trajectory to 'x'\n"
    )

    said = MiniSweAgentDriver().receive(printed)

    shown = ["mini-swe-agent (step 1, $0.00):", "I look.", "a b", "done"]
    assert said == [Activity(text) for text in shown]


# The trajectory.


def test_a_task_that_was_done() -> None:
    said = ended(answer(cost=0.25), gave(code=3), exit_status="Submitted", submission="It works.")

    assert said == [
        Text("I look.", "r1"),
        ToolCall("t-r1", "bash", {"command": "ls"}, "r1"),
        Usage(MODEL, 60, 10, 40, reasoning_tokens=5, cost_usd=0.25, call_id="r1"),
        ToolResult("t-r1", "bash", "a b", True, 3),
        TurnEnd("It works."),
    ]


def test_without_a_submission_the_last_words_are_the_answer() -> None:
    assert ended(answer(), gave(), exit_status="Submitted")[-1] == TurnEnd("I look.")


def test_an_answer_without_a_tool_counts_though_only_the_complaint_is_kept() -> None:
    complaint = {**answer(call=False), "role": "user", "content": "No tool calls found"}

    said = ended(complaint, exit_status="RepeatedFormatError")

    assert said[:2] == [
        Text("I look.", "r1"),
        Usage(MODEL, 60, 10, 40, reasoning_tokens=5, call_id="r1"),
    ]


def test_what_is_written_to_the_cache_stands_beside_the_input() -> None:
    spent = {
        "prompt_tokens": 100,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 20,
    }
    message = answer(call=False)
    message["extra"]["response"]["usage"] = spent

    assert Usage(MODEL, 50, None, 20, 30, call_id="r1") in ended(message)


def test_an_answer_that_says_nothing_of_its_usage_has_an_unknown_one() -> None:
    message = {"role": "assistant", "extra": {"response": "repr of an answer"}}

    assert Usage(MODEL, call_id="call-0") in ended(message)


def test_a_call_that_gave_nothing_is_closed() -> None:
    said = ended(answer(), exit=Exit(1, None), exit_status="EOFError")

    assert said[-2:] == [
        ToolResult("t-r1", "bash", "interrupted", True),
        TurnFailed(FailureKind.OTHER, "it was interrupted"),
    ]


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        ("LimitsExceeded", "", FailureKind.MAX_TURNS),
        ("AuthenticationError", "no", FailureKind.AUTH),
        ("RateLimitError", "slow down", FailureKind.RATE_LIMIT),
        ("ContextWindowExceededError", "too long", FailureKind.CONTEXT_LENGTH),
        ("BadRequestError", "insufficient_quota", FailureKind.QUOTA),
        ("RepeatedFormatError", "", FailureKind.OTHER),
    ],
)
def test_a_task_that_was_not_done(status: str, told: str, kind: FailureKind) -> None:
    last = {"role": "exit", "extra": {"exception_str": told}}

    (failed,) = ended(last, exit_status=status)

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind


def test_a_trajectory_without_an_end_is_that_of_one_that_was_stopped() -> None:
    said = ended(answer(), gave(), exit=Exit(None, 9), exit_status="")

    assert said[-1] == TurnFailed(
        FailureKind.HARNESS_ERROR, "the harness was ended by signal 9 before it ended its turn"
    )
    assert any(isinstance(event, Usage) for event in said)


def test_without_a_trajectory_only_the_exit_tells() -> None:
    (failed,) = MiniSweAgentDriver().ended(Exit(1, None, b"boom\n", {TRAJECTORY: b""}))

    assert isinstance(failed, TurnFailed)
    assert failed.message.endswith("its stderr ends: boom")


STEPS = b"mini-swe-agent (step 1, $0.00):\nI look.\nTool:\nmini-swe-agent (step 2, $0.00):\n"


@pytest.mark.parametrize(
    ("messages", "calls"),
    [([], [None]), ([answer(), gave()], ["r1", None]), ([answer(), gave(), answer("r2")], None)],
    ids=["before it wrote anything", "in its second step", "not before it wrote"],
)
def test_the_step_that_it_was_killed_in_is_one_of_unknown_usage(
    messages: list[dict[str, Any]], calls: list[str | None] | None
) -> None:
    driver = MiniSweAgentDriver()
    driver.receive(STEPS)
    written = json.dumps({"messages": messages}).encode() if messages else b""

    said = driver.ended(Exit(None, 9, b"", {TRAJECTORY: written}))

    assert [e.call_id for e in said if isinstance(e, Usage)] == (calls or ["r1", "r2"])
    assert isinstance(said[-1], TurnFailed)


# What cannot be read.


def heard(written: bytes) -> list[Event]:
    """Return what a driver says of a file that holds *written*."""
    driver = MiniSweAgentDriver()
    driver.launch(request_of(MiniSweAgentDriver, model="openai/gpt-5"))
    return list(driver.ended(Exit(0, None, b"", {TRAJECTORY: written})))


def laid_out(*messages: dict[str, Any], **info: object) -> bytes:
    """Return a file as mini-swe-agent lays it out."""
    return json.dumps({"info": info, "messages": messages, "format": "1"}, indent=2).encode()


@pytest.mark.parametrize(
    "written",
    [b"{", b"[" * 5000, b'{"messages": 7}', b"\n    {\n" * 9],
    ids=["cut", "deep", "no messages", "never closed"],
)
def test_a_trajectory_that_cannot_be_read_is_one_of_unknown_usage(written: bytes) -> None:
    assert [type(event) for event in heard(written)] == [Note, Usage, TurnFailed]


ODD: list[dict[str, Any]] = [
    {"role": 7},
    {"role": "user", "content": "half \ud83d a character", "extra": 7},
    {"role": "user", "content": float("nan")},
    {"role": "tool", "extra": {"returncode": "none", "raw_output": [1]}},
]


@pytest.mark.parametrize("odd", ODD, ids=["speaker", "half", "number", "result"])
def test_an_odd_message_costs_no_neighbour(odd: dict[str, Any]) -> None:
    whole = ended(answer(), gave(), answer("r2"), gave("r2"), exit_status="Submitted")

    said = heard(laid_out(answer(), gave(), odd, answer("r2"), gave("r2"), exit_status="Submitted"))

    assert [event for event in said if not isinstance(event, Note)] == whole
    assert len(said) == len(whole) + 1


def test_an_odd_message_in_a_file_on_one_line_costs_no_neighbour() -> None:
    said = ended(answer(), gave(), {"role": 7}, answer("r2"), gave("r2"), exit_status="Submitted")

    assert [event.call_id for event in said if isinstance(event, Usage)] == ["r1", "r2"]
    assert said[-1] == TurnEnd("I look.")


def test_what_an_odd_answer_used_counts_where_it_can_be_read() -> None:
    odd = {**answer(cost=0.25), "tool_calls": 7}

    used = Usage(MODEL, 60, 10, 40, reasoning_tokens=5, cost_usd=0.25, call_id="r1")
    assert [event for event in ended(odd) if isinstance(event, Usage)] == [used]


def test_what_an_odd_answer_used_is_unknown_where_it_cannot_be_read() -> None:
    odd = answer()
    odd["extra"]["response"]["usage"] = {"prompt_tokens": "many"}

    said = ended(odd, answer("r2"))

    used = [event for event in said if isinstance(event, Usage)]
    assert [(one.input_tokens, one.call_id) for one in used] == [(None, "call-0"), (60, "r2")]


def test_a_file_that_broke_off_tells_what_stands_before() -> None:
    whole = laid_out(answer(), gave(), answer("r2"), exit_status="")

    said = heard(whole[: whole.index(b'"r2"')])

    assert [type(event) for event in said] == [
        *(Text, ToolCall, Usage, ToolResult),
        *(Note, Usage, TurnFailed),
    ]
    assert said[5] == Usage(MODEL)


@pytest.mark.parametrize("cut", [b"\n  ],", b"  ],", b",\n    {", b'"messages"', b'"info"'])
def test_wherever_it_broke_off_something_is_unknown(cut: bytes) -> None:
    whole = laid_out(answer(), gave())

    assert Usage(MODEL) in heard(whole[: whole.index(cut)])


def test_an_odd_ending_costs_no_message() -> None:
    said = heard(json.dumps({"info": 7, "messages": [answer(), gave()]}).encode())

    assert [type(event) for event in said[-2:]] == [Note, TurnFailed]
    assert Text("I look.", "r1") in said


def test_two_answers_that_a_server_names_alike_are_two() -> None:
    said = ended(answer(), gave(), answer(), gave())

    assert [e.call_id for e in said if isinstance(e, Usage)] == ["r1", "call-1"]
