"""opencode: how it is started in both modes, and what its exits and numbers mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capsule_drivers.opencode import Memory, OpencodeConfig, OpencodeDriver
from capsule_runtime import (
    Exit,
    FailureKind,
    HarnessError,
    LaunchPlan,
    LaunchRequest,
    Message,
    Remember,
    Said,
    Send,
    TextPart,
    TurnFailed,
    Usage,
)

TRANSCRIPTS = Path(__file__).parent / "transcripts/opencode"
KEY = {"ANTHROPIC_API_KEY": "sk-secret", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1/"}
RUN = OpencodeConfig(mode="run")
SETTINGS = ".config/opencode/opencode.json"


def request(**given: object) -> LaunchRequest:
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("count"),)),
        "command": (),
        "args": (),
        "config": OpencodeConfig(),
        "home": "/private",
        "workdir": "/src",
        "tmp": "/tmp",
        "out": "/out",
        "agent_path": "/agent",
        "limits": {},
        "env": KEY,
        "model": "claude-sonnet-4-5",
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields


def settings(plan: LaunchPlan) -> Any:
    return json.loads(plan.files[SETTINGS])


def case(name: str) -> bytes:
    return (TRANSCRIPTS / f"{name}.jsonl").read_bytes()


def test_it_is_started_quiet_and_its_key_is_written_nowhere() -> None:
    plan = OpencodeDriver().launch(request(system_prompt="be short"))

    assert plan.argv == ("opencode", "acp")
    assert plan.keep_stdin
    assert all(plan.env[name] == "1" for name in plan.env)
    assert {"OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"} <= plan.env.keys()
    options = settings(plan)["provider"]["anthropic"]["options"]
    assert options == {"apiKey": "{env:ANTHROPIC_API_KEY}", "baseURL": "http://127.0.0.1:1/v1"}
    assert b"sk-secret" not in b"".join(plan.files.values()) + plan.stdin
    assert settings(plan)["agent"]["title"] == {"disable": True}
    assert plan.files[".config/opencode/AGENTS.md"] == b"be short"


def test_run_reads_the_task_from_stdin() -> None:
    plan = OpencodeDriver().launch(request(config=RUN, session="ses_1"))

    assert plan.argv == (
        *("opencode", "run", "--format", "json", "--thinking"),
        *("-m", "anthropic/claude-sonnet-4-5", "--auto", "--session", "ses_1"),
    )
    assert (plan.stdin, plan.keep_stdin) == (b"count", False)


@pytest.mark.parametrize(
    ("model", "env", "wanted"),
    [
        ("gpt-5", {"OPENAI_API_KEY": "k"}, "openai/gpt-5"),
        ("groq/llama", KEY, "groq/llama"),
        ("gemini-2.5-pro", {"GEMINI_API_KEY": "k"}, "google/gemini-2.5-pro"),
    ],
)
def test_a_bare_model_is_of_the_provider_whose_key_is_given(
    model: str, env: dict[str, str], wanted: str
) -> None:
    plan = OpencodeDriver().launch(request(model=model, env=env))

    assert settings(plan)["model"] == wanted


@pytest.mark.parametrize(("permissions", "word"), [("ask", "ask"), ("bypass", "allow")])
def test_what_may_be_done_without_asking(permissions: str, word: str) -> None:
    config = msgspec.convert({"permissions": permissions}, OpencodeConfig)

    plan = OpencodeDriver().launch(request(config=config))

    assert settings(plan)["permission"] == {"edit": word, "bash": word, "webfetch": word}


def resumed(memory: bytes | None) -> list[Said]:
    driver = OpencodeDriver()
    driver.launch(request(session="ses_dd705a125ffeEsPDNgM5lJx8AC", memory=memory))
    return list(driver.receive(case("load-2")))


def test_dollars_of_a_resumed_session_are_what_came_to_those_before() -> None:
    said = resumed(msgspec.json.encode(Memory(0.0084803)))

    (usage,) = [item for item in said if isinstance(item, Usage)]
    (kept,) = [item for item in said if isinstance(item, Remember)]
    assert usage.cost_usd == pytest.approx(0.004207)
    assert msgspec.json.decode(kept.data, type=Memory).cost == pytest.approx(0.0126873)


@pytest.mark.parametrize("memory", [None, b"{", b"{}"])
def test_dollars_since_nobody_knows_when_are_not_told(memory: bytes | None) -> None:
    (usage,) = [item for item in resumed(memory) if isinstance(item, Usage)]

    assert usage.input_tokens == 1001
    assert usage.cost_usd is None


def test_words_go_into_the_turn_at_work() -> None:
    driver = OpencodeDriver()
    driver.launch(request())
    lines = case("steer").splitlines(keepends=True)
    driver.receive(b"".join(lines[:4]))  # "Step 1." is said

    send = driver.steer("w1", "STEER stop now")
    said = driver.receive(b"".join(lines[4:]))

    assert isinstance(send, Send)
    assert json.loads(send.data)["method"] == "session/prompt"
    kinds = [type(item).__name__ for item in said]
    assert kinds.count("Steered") == 1
    assert kinds[-1] == "TurnEnd"
    # Both prompts are answered together, with the numbers of one and the same call.
    assert len([item for item in said if isinstance(item, Usage) and item.input_tokens]) == 1


def test_a_session_that_run_does_not_find_is_gone() -> None:
    driver = OpencodeDriver()
    driver.launch(request(config=RUN, session="ses_1"))

    failed = driver.ended(Exit(1, None, b"Error: Session not found\n"))[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.SESSION_GONE


def test_what_it_can_do_is_known_by_its_mode_before_it_is_launched() -> None:
    driver = OpencodeDriver()
    by_protocol = driver.describe()

    driver.configure(RUN)

    assert (by_protocol.usage, driver.describe().usage) == ("final", "per-call")
    assert (by_protocol.steers, driver.describe().steers) == (True, False)


def test_run_can_be_stopped_by_a_signal_alone() -> None:
    driver = OpencodeDriver()
    driver.launch(request(config=RUN))

    assert driver.interrupt() is None
    assert driver.steer("w1", "words") is None
    assert driver.describe().interrupt_signal == 15
    assert driver.describe().usage == "per-call"


def test_no_model_of_its_own_choice_gets_the_task() -> None:
    with pytest.raises(HarnessError) as refused:
        OpencodeDriver().launch(request(model=None))

    assert refused.value.code == "E-HAR-010"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("openrouter:qwen/qwen3-coder:free", "openrouter/qwen/qwen3-coder:free"),
        ("mock/m:1", "mock/m:1"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ],
)
def test_a_model_is_named_as_we_do_or_as_it_does(name: str, model: str) -> None:
    plan = OpencodeDriver().launch(request(config=RUN, model=name))

    assert plan.argv[plan.argv.index("-m") + 1] == model


def test_dollars_of_an_earlier_session_are_none_of_a_new_one() -> None:
    memory = msgspec.json.encode(Memory(5.0))
    driver = prompted(memory=memory)
    cost = {"amount": 0.25, "currency": "USD"}
    spent = {"sessionId": "s1", "update": {"sessionUpdate": "usage_update", "cost": cost}}
    used = {"inputTokens": 10, "outputTokens": 5}

    events = [
        *driver.receive(said(method="session/update", params=spent)),
        *driver.receive(said(id=3, result={"stopReason": "end_turn", "usage": used})),
    ]

    assert [event.cost_usd for event in events if isinstance(event, Usage)] == [0.25]


TOOL_CALL = {"sessionUpdate": "tool_call", "toolCallId": "c1", "rawInput": {"command": "ls"}}
TOOL_DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}


@pytest.mark.parametrize(
    ("last", "dollars"),
    [
        ({"inputTokens": 10, "outputTokens": 5}, [0.0, 0.25]),
        # It was cut off, and what it used is not in the sum.
        ({"inputTokens": 0, "outputTokens": 0}, [0.25, None]),
    ],
)
def test_the_dollars_of_a_turn_are_those_of_all_its_calls(
    last: dict[str, int], dollars: list[float | None]
) -> None:
    driver = prompted()
    for update in (words("one", "m1"), TOOL_CALL, TOOL_DONE, words("two", "m2"), spent(0.25)):
        driver.receive(told(update))

    ended = driver.receive(said(id=3, result={"stopReason": "end_turn", "usage": last}))

    assert [event.cost_usd for event in ended if isinstance(event, Usage)] == dollars


def test_what_comes_again_behind_its_answer_begins_no_other() -> None:
    driver = prompted()
    for update in (words("one", "m1"), TOOL_CALL, TOOL_DONE, words("one", "m1")):
        driver.receive(told(update))

    ended = driver.receive(said(id=3, result={"stopReason": "cancelled"}))

    assert len([event for event in ended if isinstance(event, Usage)]) == 1


def test_a_call_of_the_past_that_comes_again_is_none_of_this_turn() -> None:
    driver = OpencodeDriver()
    driver.launch(request(session="s1"))
    driver.receive(said(id=1, result={"agentCapabilities": {"loadSession": True}}))
    driver.receive(told(TOOL_CALL) + told(TOOL_DONE))
    driver.receive(said(id=2, result={}))

    again = driver.receive(told(TOOL_CALL) + told(TOOL_DONE))

    assert again == []


def test_a_step_that_run_does_not_end_is_not_free() -> None:
    driver = OpencodeDriver()
    driver.launch(request(config=RUN))

    events = driver.receive(
        step("step_start", "p1") + step("text", "p2") + step("step_start", "p3")
    )

    assert [event for event in events if isinstance(event, Usage)] == [
        Usage("anthropic:claude-sonnet-4-5")
    ]


def test_a_step_whose_end_cannot_be_read_counts_once() -> None:
    driver = OpencodeDriver()
    driver.launch(request(config=RUN))
    broken = b'{"type":"step_finish","part":{"tokens":{"input":\n'

    events = driver.receive(step("step_start", "p1") + broken + step("step_start", "p3"))

    assert len([event for event in events if isinstance(event, Usage)]) == 1


def step(type: str, id: str) -> bytes:
    return json.dumps({"type": type, "sessionID": "s1", "part": {"id": id}}).encode() + b"\n"


def told(update: dict[str, Any]) -> bytes:
    return said(method="session/update", params={"sessionId": "s1", "update": update})


def words(text: str, answer: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "messageId": answer, "content": content}


def spent(dollars: float) -> dict[str, Any]:
    return {"sessionUpdate": "usage_update", "cost": {"amount": dollars, "currency": "USD"}}


def prompted(**given: object) -> OpencodeDriver:
    """Return a driver whose agent has its prompt."""
    driver = OpencodeDriver()
    driver.launch(request(**given))
    driver.receive(said(id=1, result={"agentCapabilities": {}}))
    driver.receive(said(id=2, result={"sessionId": "s1"}))
    return driver


def said(**words: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **words}).encode() + b"\n"


def test_thoughts_that_are_counted_beside_the_answer_are_part_of_it() -> None:
    used = {"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 7, "totalTokens": 22}

    events = prompted().receive(said(id=3, result={"stopReason": "end_turn", "usage": used}))

    (usage,) = [event for event in events if isinstance(event, Usage)]
    assert (usage.output_tokens, usage.reasoning_tokens) == (12, 7)


def test_an_answer_without_a_word_is_counted_all_the_same() -> None:
    used = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}

    events = prompted().receive(said(id=3, result={"stopReason": "refusal", "usage": used}))

    assert [type(event) for event in events] == [Usage, Remember, TurnFailed]


@pytest.mark.parametrize(("exit", "unknown"), [(Exit(None, 9), 1), (Exit(1, None), 0)])
def test_one_that_is_killed_before_its_first_word_is_not_free(exit: Exit, unknown: int) -> None:
    driver = OpencodeDriver()
    driver.launch(request(config=RUN))

    assert len([event for event in driver.ended(exit) if isinstance(event, Usage)]) == unknown


def test_a_task_is_no_command_of_its_own() -> None:
    driver = OpencodeDriver()

    plan = driver.launch(request(config=RUN, message=Message("m1", (TextPart("/init"),))))

    assert plan.stdin == b"Task:\n\n/init"
