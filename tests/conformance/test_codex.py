"""Codex: how it is started and talked to, and what its lines mean that no transcript shows."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capsule_drivers.codex import CodexConfig, CodexDriver
from capsule_drivers.codex.calls import Repeats
from capsule_runtime import (
    Ack,
    Answer,
    DataPart,
    Decision,
    Event,
    Exit,
    FailureKind,
    LaunchPlan,
    LaunchRequest,
    ManifestError,
    Message,
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
    TextPart,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.manifest import convert_config

KEY = "sk-secret"
USED = {"inputTokens": 1001, "cachedInputTokens": 201, "outputTokens": 51}
USED_EXEC = {"input_tokens": 3004, "cached_input_tokens": 604, "output_tokens": 154}
MODEL = "openai:gpt-5"
RECORDED = [
    path
    for path in sorted((Path(__file__).parent / "transcripts/codex").glob("*.jsonl"))
    if not path.stem.endswith((".events", ".frames"))
]


def request(**given: object) -> LaunchRequest:
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("count"), DataPart({"depth": 2}, "input.json"))),
        "command": ("codex",),
        "args": (),
        "config": CodexConfig(),
        "home": "/home",
        "workdir": "/src",
        "tmp": "/tmp",
        "out": "/state/out",
        "agent_path": "/runtime/agent",
        "limits": {},
        "env": {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://proxy/v1"},
        "model": "gpt-5",
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields


def planned(**given: object) -> tuple[CodexDriver, LaunchPlan]:
    driver = CodexDriver()
    return driver, driver.launch(request(**given))


def config_of(plan: LaunchPlan) -> dict[str, Any]:
    return tomllib.loads(plan.files[".codex/config.toml"].decode())


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def note(method: str, **params: object) -> bytes:
    return line({"method": method, "params": {"threadId": "t", "turnId": "u", **params}})


def item(state: str, type: str, **fields: object) -> bytes:
    return note(f"item/{state}", item={"id": "i", "type": type, **fields})


def delta(text: str) -> bytes:
    return note("item/agentMessage/delta", itemId="i", delta=text)


def message(text: str, id: str = "i") -> bytes:
    return item("completed", "agentMessage", id=id, text=text)


def used(total: dict[str, int], last: dict[str, int] | None = None, **where: object) -> bytes:
    usage = {"total": total, "last": last or total}
    return note("thread/tokenUsage/updated", tokenUsage=usage, **where)


def over(status: str, **fields: object) -> bytes:
    return note("turn/completed", turn={"id": "u", "status": status, **fields})


def retry(number: int) -> bytes:
    error = {"message": f"Reconnecting... {number}/2", "additionalDetails": "it broke"}
    return note("error", error=error, willRetry=True)


INITIALIZED = line({"id": 1, "result": {"userAgent": "codex"}})
OPENED = line({"id": 2, "result": {"thread": {"id": "t"}, "model": "gpt-5"}})
BEGUN = line({"id": 3, "result": {"turn": {"id": "u"}}})
OPENING = INITIALIZED + OPENED + BEGUN
EXEC_BEGUN = b'{"type":"thread.started","thread_id":"t"}\n'


def heard(*lines: bytes, **given: object) -> list[Said]:
    """Return what is made of *lines* once the turn has begun, but for what is remembered."""
    driver, _ = planned(**given)
    driver.receive(OPENING)
    return told(driver.receive(b"".join(lines)))


def told(said: Sequence[Said]) -> list[Said]:
    return [it for it in said if not isinstance(it, Remember)]


def remembered(said: Sequence[Said]) -> list[bytes]:
    return [it.data for it in said if isinstance(it, Remember)]


def sent(said: Event | Send | Remember | None) -> dict[str, Any]:
    assert isinstance(said, Send)
    value: dict[str, Any] = json.loads(said.data)
    return value


# How it is started.


def test_it_is_an_app_server_that_is_introduced_first() -> None:
    _, plan = planned()

    assert plan.argv == ("codex", "app-server")
    assert plan.env == {"CODEX_HOME": "/home/.codex"}
    assert json.loads(plan.stdin)["method"] == "initialize"
    assert plan.keep_stdin


def test_the_key_is_in_no_file_and_no_argument() -> None:
    _, plan = planned()

    assert KEY not in " ".join(plan.argv)
    assert KEY.encode() not in plan.stdin + b"".join(plan.files.values())
    assert config_of(plan)["model_providers"]["capsule"]["env_key"] == "OPENAI_API_KEY"


def test_its_settings_lead_to_the_callers_provider_and_nowhere_else() -> None:
    _, plan = planned(system_prompt='be "brief"\nand kind\x7f')

    config = config_of(plan)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == "http://proxy/v1"
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (0, 2)
    assert config["model"] == "gpt-5"
    assert config["developer_instructions"] == 'be "brief"\nand kind\x7f'
    assert config["features"] == {"plugins": False, "apps": False}
    assert config["analytics"] == {"enabled": False}
    assert config["check_for_update_on_startup"] is False
    assert config["sandbox_mode"] == "danger-full-access"
    assert config["shell_environment_policy"] == {"exclude": ["OPENAI_API_KEY", "CODEX_API_KEY"]}


def test_without_an_address_it_is_the_vendors_own_and_either_key_will_do() -> None:
    _, plan = planned(env={"CODEX_API_KEY": KEY}, model="openai:gpt-5")

    config = config_of(plan)
    assert config["model_providers"]["capsule"]["base_url"] == "https://api.openai.com/v1"
    assert config["model_providers"]["capsule"]["env_key"] == "CODEX_API_KEY"
    assert config["model"] == "gpt-5"


def test_a_model_that_nobody_named_is_codexs_own() -> None:
    _, plan = planned(model=None)

    assert "model" not in config_of(plan)


@pytest.mark.parametrize(
    ("session", "before", "after"),
    [
        (None, ("codex", "exec", "--json"), ("-",)),
        ("t", ("codex", "exec", "resume", "--json"), ("t", "-")),
    ],
)
def test_exec_reads_the_task_from_stdin(
    session: str | None, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    _, plan = planned(config=CodexConfig(mode="exec"), session=session, args=("--ephemeral",))

    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--ephemeral")
    assert plan.argv == (*before, *flags, *after)
    assert plan.stdin == b'count\n\ninput.json:\n{"depth":2}'
    assert not plan.keep_stdin


def test_exec_keeps_its_own_sandbox_if_it_is_to() -> None:
    _, plan = planned(config=CodexConfig(mode="exec", sandbox="read-only"))

    assert "--dangerously-bypass-approvals-and-sandbox" not in plan.argv
    assert config_of(plan)["sandbox_mode"] == "read-only"


@pytest.mark.parametrize(
    "config", [{"mode": "tui"}, {"approval": "ask"}, {"mode": "exec", "approvals": "ask"}]
)
def test_a_wrong_configuration_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ManifestError):
        convert_config(config, CodexDriver.Config, "capsule.toml")


def test_what_it_can_do_depends_on_its_mode() -> None:
    driver = CodexDriver()
    server = driver.describe()
    driver.configure(CodexConfig(mode="exec"))
    alone = driver.describe()

    assert (server.usage, server.steers, server.interrupt_signal) == ("per-call", True, None)
    assert (alone.usage, alone.steers, alone.interrupt_signal) == ("final", False, 2)
    assert driver.interrupt() is None
    assert driver.steer("s", "words") is None


# The dialogue.


def test_each_step_follows_the_answer_to_the_one_before() -> None:
    driver, _ = planned(system_prompt="be brief")

    initialized, start = driver.receive(INITIALIZED)
    session, turn = driver.receive(OPENED)

    assert sent(initialized) == {"method": "initialized"}
    assert sent(start)["method"] == "thread/start"
    assert sent(start)["params"] == {
        "cwd": "/src",
        "approvalPolicy": "never",
        "sandbox": "danger-full-access",
        "model": "gpt-5",
        "developerInstructions": "be brief",
    }
    assert session == Session("t", MODEL)
    words = 'count\n\ninput.json:\n{"depth":2}'
    assert sent(turn)["params"] == {
        "threadId": "t",
        "input": [{"type": "text", "text": words}],
    }
    assert driver.receive(BEGUN) == []


def test_a_session_is_resumed_by_its_thread() -> None:
    driver, _ = planned(session="t", config=CodexConfig(approvals="ask"))

    _, resume = driver.receive(INITIALIZED)

    assert sent(resume)["method"] == "thread/resume"
    assert sent(resume)["params"]["threadId"] == "t"
    assert sent(resume)["params"]["excludeTurns"] is True
    assert sent(resume)["params"]["approvalPolicy"] == "untrusted"


@pytest.mark.parametrize(
    ("id", "words", "kind"),
    [
        (2, "no rollout found for thread id t", FailureKind.SESSION_GONE),
        (2, "bad sandbox", FailureKind.HARNESS_ERROR),
        (1, "not now", FailureKind.HARNESS_ERROR),
        (3, "not now", FailureKind.HARNESS_ERROR),
    ],
)
def test_an_opening_that_is_refused_ends_it(id: int, words: str, kind: FailureKind) -> None:
    driver, _ = planned(session="t")
    driver.receive(INITIALIZED)

    said = driver.receive(line({"error": {"code": -32600, "message": words}, "id": id}))

    assert said == [TurnFailed(kind, words)]


def test_a_later_request_that_is_refused_is_noted() -> None:
    said = heard(line({"error": {"code": -32600, "message": "too late"}, "id": 4}))

    assert said == [Note("codex refused a request: too late")]


def test_an_interrupt_between_two_calls_is_asked_for_again() -> None:
    driver, _ = planned()
    driver.receive(OPENING)
    asked = sent(driver.interrupt())

    refused = line({"error": {"code": -32600, "message": "no active turn"}, "id": asked["id"]})
    silent = driver.receive(refused)
    again = [said for said in driver.receive(delta("a")) if isinstance(said, Send)]
    then = [said for said in driver.receive(delta("b")) if isinstance(said, Send)]

    assert list(silent) == []
    assert [sent(one)["method"] for one in again] == ["turn/interrupt"]
    assert then == []


def test_an_interrupt_names_the_turn() -> None:
    driver, _ = planned()
    driver.receive(OPENING)

    asked = sent(driver.interrupt())

    assert (asked["id"], asked["method"]) == (4, "turn/interrupt")
    assert asked["params"] == {"threadId": "t", "turnId": "u"}


def test_an_interrupt_before_the_turn_lets_none_begin() -> None:
    driver, _ = planned()

    assert driver.interrupt() == Send(b"")
    _, _, session, failed = driver.receive(INITIALIZED + OPENED)

    assert session == Session("t", MODEL)
    assert failed == TurnFailed(FailureKind.OTHER, "interrupted before its turn began")


def test_an_interrupt_that_is_due_again_is_none_before_the_turn() -> None:
    driver, _ = planned()
    driver.receive(OPENING)
    asked = sent(driver.interrupt())
    refused = line({"error": {"code": -32600, "message": "no active turn"}, "id": asked["id"]})

    assert driver.receive(refused + OPENED) == []


def test_an_interrupt_while_the_turn_begins_follows_it() -> None:
    driver, _ = planned()
    driver.receive(INITIALIZED + OPENED)

    assert driver.interrupt() == Send(b"")
    (asked,) = driver.receive(BEGUN)

    assert sent(asked)["method"] == "turn/interrupt"
    assert sent(asked)["params"]["turnId"] == "u"


def test_words_go_to_the_turn_under_the_id_by_which_they_are_known_again() -> None:
    driver, _ = planned()
    driver.receive(OPENING)
    asked = sent(driver.steer("s1", "stop"))
    mine = item("started", "userMessage", clientId="s1")
    other = item("started", "userMessage", clientId=None)

    said = driver.receive(other + mine + mine.replace(b"started", b"completed"))

    assert (asked["id"], asked["method"]) == (4, "turn/steer")
    assert asked["params"] == {
        "threadId": "t",
        "expectedTurnId": "u",
        "input": [{"type": "text", "text": "stop"}],
        "clientUserMessageId": "s1",
    }
    assert said == [Steered("s1")]


@pytest.mark.parametrize("begins", [BEGUN, note("turn/started", turn={"id": "u"})])
def test_words_that_come_before_the_turn_wait_for_it(begins: bytes) -> None:
    driver, _ = planned()

    assert driver.steer("s1", "stop") == Send(b"")
    driver.receive(INITIALIZED + OPENED)
    (steer,) = driver.receive(begins)

    assert sent(steer)["params"]["clientUserMessageId"] == "s1"


def test_without_a_launch_nothing_is_sent() -> None:
    assert CodexDriver().receive(OPENING) == [Session("t", MODEL)]


# Permission.


def asking(method: str, **params: object) -> bytes:
    return line({"method": method, "id": 7, "params": {"threadId": "t", **params}})


SHELL = asking(
    "item/commandExecution/requestApproval",
    command="make",
    cwd="/src",
    availableDecisions=["accept", {"acceptWithExecpolicyAmendment": None}, "cancel"],
)


@pytest.mark.parametrize(
    ("decision", "word"),
    [
        (Ack("j"), "accept"),
        (Answer("allow"), "accept"),
        (Answer("acceptForSession"), "acceptForSession"),
        (Answer("cancel"), "cancel"),
        (Answer(False), "decline"),
        (Refused("E-RUN-040", "no"), "decline"),
    ],
)
def test_permission_is_asked_and_the_decision_sent(decision: Decision, word: str) -> None:
    driver, _ = planned()
    driver.receive(OPENING)

    (asked,) = driver.receive(SHELL)

    wanted = {"command": "make", "cwd": "/src"}
    assert asked == Permission("7", "shell", wanted, ["accept", "cancel"])
    assert sent(driver.answer("7", decision)) == {"id": 7, "result": {"decision": word}}
    assert driver.answer("7", decision) is None


def test_a_change_of_files_and_more_rights_are_asked_for_as_well() -> None:
    driver, _ = planned()
    driver.receive(OPENING)
    rights = {"network": {"enabled": True}}

    change, more = driver.receive(
        asking("item/fileChange/requestApproval", reason="to write").replace(b":7,", b':"a",')
        + asking("item/permissions/requestApproval", permissions=rights)
    )

    assert change == Permission("a", "apply_patch", {"reason": "to write"})
    assert more == Permission("7", "permissions", {"permissions": rights})
    given = {"id": 7, "result": {"permissions": rights, "scope": "turn"}}
    assert sent(driver.answer("7", Answer("allow"))) == given


def test_what_a_change_of_files_would_change_is_shown_to_whoever_decides() -> None:
    changes = [{"path": "a", "kind": {"type": "add"}, "diff": "x"}]

    (_, asked) = heard(
        item("started", "fileChange", changes=changes),
        asking("item/fileChange/requestApproval", itemId="i", reason=None),
    )

    assert asked == Permission("7", "apply_patch", {"changes": changes})


def test_a_question_in_words_that_are_not_known_is_answered_all_the_same() -> None:
    error, noted = heard(asking("item/commandExecution/requestApproval", command=7))

    assert sent(error)["id"] == 7
    assert "error" in sent(error)
    assert isinstance(noted, Note)


def test_a_question_that_offers_nothing_is_asked() -> None:
    (asked,) = heard(asking("item/commandExecution/requestApproval", availableDecisions=None))

    assert asked == Permission("7", "shell", {})


def test_more_rights_that_are_refused_are_none() -> None:
    driver, _ = planned()
    driver.receive(asking("item/permissions/requestApproval", permissions={"network": {}}))

    answer = sent(driver.answer("7", Refused("E-RUN-040", "no")))

    assert answer == {"id": 7, "result": {"permissions": {}, "scope": "turn"}}


def test_a_question_that_nobody_can_answer_is_answered_with_an_error() -> None:
    error, noted = heard(asking("item/tool/requestUserInput"))

    assert sent(error)["error"]["code"] == -32601
    assert sent(error)["id"] == 7
    assert isinstance(noted, Note)


# What a model call used.


def test_a_call_used_what_the_total_grew_by() -> None:
    (usage,) = heard(used(USED))

    assert usage == Usage(MODEL, 800, 51, 201, 0, None, 0, call_id="t:1052")


def test_what_goes_into_the_cache_is_part_of_the_input_and_for_no_hour() -> None:
    (usage,) = heard(used({**USED, "cacheWriteInputTokens": 100}))

    assert usage == Usage(MODEL, 700, 51, 201, 100, 0, 0, call_id="t:1052")


def test_a_report_that_is_repeated_counts_once() -> None:
    assert len(heard(used(USED), used(USED))) == 1


def test_a_call_that_says_zero_of_itself_is_counted_by_the_total() -> None:
    """As it is when an answer was cut off for its length."""
    (usage,) = heard(used(USED, {"inputTokens": 0}))

    assert isinstance(usage, Usage)
    assert usage.input_tokens == 800


def test_a_total_that_shrinks_leaves_what_the_call_says_of_itself() -> None:
    _, usage = heard(used(USED), used({"inputTokens": 10, "outputTokens": 4}))

    assert usage == Usage(MODEL, 10, 4, 0, 0, None, 0, call_id="t:14")


def test_numbers_that_cannot_be_are_unknown() -> None:
    (usage,) = heard(used({"inputTokens": 1, "cachedInputTokens": 2}))

    assert usage == Usage(MODEL)


def test_a_report_without_a_number_is_not_one_of_nothing() -> None:
    assert heard(used(USED), used({}, {}))[1:] == [Usage(MODEL)]


def test_an_answer_of_which_nobody_told_the_usage_used_something() -> None:
    said = heard(message("a"), used({}, {}), over("completed"))

    assert said == [Text("a", "u:1"), Usage(MODEL), TurnEnd("a")]


def test_a_fragment_that_comes_again_when_all_is_said_is_no_call() -> None:
    said = heard(delta("a"), message("a"), used(USED), delta("a"), over("completed"))

    assert len([it for it in said if isinstance(it, Usage)]) == 1


def test_what_was_used_before_a_resume_is_not_counted_again() -> None:
    driver, _ = planned(session="t")
    driver.receive(INITIALIZED)

    before = driver.receive(used(USED) + OPENED + BEGUN)
    after = told(driver.receive(used({name: 2 * count for name, count in USED.items()})))

    assert not any(isinstance(event, Usage) for event in before)
    assert after == [Usage(MODEL, 800, 51, 201, 0, None, 0, call_id="t:2104")]


def test_what_the_thread_used_is_remembered_even_by_a_run_that_is_killed() -> None:
    killed, _ = planned()
    [kept] = remembered(killed.receive(OPENING + used(USED) + delta("a")))
    driver, _ = planned(session="t", memory=kept)
    driver.receive(OPENING)

    (usage,) = told(driver.receive(used({**USED, "inputTokens": 1101})))

    assert usage == Usage(MODEL, 100, 0, 0, 0, None, 0, call_id="t:1152")


@pytest.mark.parametrize("memory", [None, b"", b"{", b'{"thread":"other","total":{}}', b"[1]"])
def test_a_memory_that_says_nothing_of_the_thread_is_none(memory: bytes | None) -> None:
    driver, _ = planned(session="t", memory=memory)
    driver.receive(OPENING)

    assert len(told(driver.receive(used(USED)))) == 1


def test_only_a_total_that_is_new_is_remembered() -> None:
    driver, _ = planned()
    inner: dict[str, object] = {"threadId": "inner", "turnId": "v"}
    driver.receive(OPENING)

    said = driver.receive(
        delta("a") + used(USED) * 2 + used(USED, None, **inner) + over("completed")
    )

    assert len(remembered(said)) == 1


def test_a_report_that_comes_late_and_again_counts_once() -> None:
    more = {name: 2 * count for name, count in USED.items()}

    said = heard(used(USED), used(more, USED), used(USED))

    assert [it.call_id for it in said if isinstance(it, Usage)] == ["t:1052", "t:2104"]


def test_a_call_that_was_cut_off_used_something() -> None:
    said = heard(delta("a"), over("interrupted"))

    assert said[1:] == [
        Usage(MODEL),
        TurnFailed(FailureKind.OTHER, "the turn was interrupted"),
    ]


def test_an_agent_of_the_agent_is_counted_and_not_heard() -> None:
    inner: dict[str, object] = {"threadId": "inner", "turnId": "v"}
    said = heard(
        note("thread/started", thread={"id": "inner"}),
        note("item/agentMessage/delta", delta="inner", **inner),
        used(USED, None, **inner),
        used(USED),
        note("turn/completed", turn={"id": "v", "status": "completed"}, **inner),
    )

    assert [type(event) for event in said] == [Usage, Usage]


def test_an_agent_of_the_agent_has_a_model_of_its_own() -> None:
    inner: dict[str, object] = {"threadId": "inner", "turnId": "v"}
    begun = note("thread/started", thread={"id": "inner", "model": "gpt-5-mini"})

    theirs, ours = heard(begun, used(USED, None, **inner), used(USED))

    assert isinstance(theirs, Usage) and isinstance(ours, Usage)
    assert (theirs.model, ours.model) == ("openai:gpt-5-mini", MODEL)


def test_an_agent_that_is_resumed_with_its_agent_counts_its_last_call() -> None:
    inner: dict[str, object] = {"threadId": "inner", "turnId": "v"}
    total = {name: 7 * count for name, count in USED.items()}

    (begun,) = heard(used(total, USED, **inner))
    (resumed,) = heard(used(total, USED, **inner), session="t")

    assert isinstance(begun, Usage) and isinstance(resumed, Usage)
    assert (begun.output_tokens, resumed.output_tokens) == (7 * 51, 51)


@pytest.mark.parametrize(
    "broken",
    [
        used(USED)[:-20] + b"\n",
        used(USED)[:80] + b"\n",
        used(USED).replace(b"1001", b'"many"'),
        b'{"type":"turn.completed","usage":{"input_tokens":"many"}}\n',
    ],
)
def test_a_report_that_cannot_be_read_is_one_without_numbers(broken: bytes) -> None:
    before, noted, usage, after = heard(delta("a"), broken, delta("b"))

    assert (before, after) == (TextDelta("a"), TextDelta("b"))
    assert isinstance(noted, Note)
    assert isinstance(usage, Usage)
    assert usage.input_tokens is None


def test_a_model_that_was_changed_on_the_way_is_the_one_that_is_paid() -> None:
    (usage,) = heard(note("model/rerouted", toModel="gpt-5-mini"), used(USED))

    assert isinstance(usage, Usage)
    assert usage.model == "openai:gpt-5-mini"


def test_an_answer_that_comes_twice_begins_no_second_turn() -> None:
    driver, _ = planned()

    said = driver.receive(INITIALIZED * 2 + OPENED * 2 + BEGUN * 2)

    methods = [sent(it)["method"] for it in said if isinstance(it, Send)]
    assert methods == ["initialized", "thread/start", "turn/start"]


def test_a_question_that_comes_twice_is_asked_once() -> None:
    driver, _ = planned()

    first, again = driver.receive(SHELL), driver.receive(SHELL)
    driver.answer("7", Answer("allow"))

    assert (len(first), len(again), len(driver.receive(SHELL))) == (1, 0, 0)


def test_an_opening_that_is_refused_twice_ends_it_once() -> None:
    driver, _ = planned(session="t")
    refused = line({"error": {"code": -32600, "message": "not now"}, "id": 2})

    said = driver.receive(INITIALIZED + refused * 2)

    assert [type(it) for it in said if not isinstance(it, Send)] == [TurnFailed]


# What a retry says again.


def test_a_retry_that_says_the_same_is_not_heard() -> None:
    said = heard(
        delta("Hel"), delta("lo"), message("Hello"), retry(1), delta("He"), delta("llo"),
        message("Hello"), used(USED), over("completed"),
    )  # fmt: skip

    assert [event for event in said if isinstance(event, (TextDelta, Text, Retrying))] == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Text("Hello", "u:1"),
        Retrying(1, "it broke", 2),
    ]
    assert said[-1] == TurnEnd("Hello")


def test_a_retry_that_goes_on_is_heard_whole() -> None:
    said = heard(
        delta("Hel"), message("Hel"), retry(1), delta("Hel"), delta("lo"), delta("!"),
        message("Hello!"),
    )  # fmt: skip

    assert said[4:] == [TextDelta("Hello"), TextDelta("!"), Text("Hello!", "u:1")]


def test_a_text_that_was_cut_off_ends_where_it_was_cut() -> None:
    said = heard(delta("Hel"), retry(1), delta("By"), delta("e"), message("Bye"))

    assert said == [
        TextDelta("Hel"),
        Text("Hel", "u:1"),
        Usage(MODEL),
        Retrying(1, "it broke", 2),
        TextDelta("By"),
        TextDelta("e"),
        Text("Bye", "u:1"),
    ]


def test_a_retry_that_stops_short_is_heard() -> None:
    said = heard(delta("Hello"), message("Hello"), retry(1), delta("Hel"), message("Hel"))

    assert said[4:] == [TextDelta("Hel"), Text("Hel", "u:1")]


def test_a_retry_that_says_something_else_first_repeats_no_words() -> None:
    thought = item("completed", "reasoning", summary=["well"])
    said = heard(message("Hello"), retry(1), thought, delta("Hel"), message("Hello"), retry(2))

    assert [type(event) for event in said] == [Text, Usage, Retrying, Thinking, Usage, Retrying]


def test_what_is_held_back_is_kept_apart_by_its_kind() -> None:
    said = heard(
        message("Hello"),
        retry(1),
        delta("Hel"),
        note("item/reasoning/textDelta", delta="lo"),
        message("Help"),
    )

    assert said[3:] == [ThinkingDelta("lo"), Text("Help", "u:1")]


def test_a_text_that_was_streamed_anew_is_ended_though_it_was_said_before() -> None:
    """What was streamed stands until a complete text replaces it."""
    said = heard(message("Hello"), retry(1), delta("Hex"), message("Hello", "j"))

    assert said[3:] == [TextDelta("Hex"), Text("Hello", "u:1")]


def test_to_hold_back_a_long_text_takes_no_more_than_to_pass_it_on() -> None:
    """It took the square of its length once: minutes for this one."""
    repeats, fragment = Repeats(), "ten chars."
    repeats.whole(Text, fragment * 200_000, None)
    repeats.retried(1)
    begun = time.process_time()

    said = [event for _ in range(200_000) for event in repeats.delta(TextDelta, fragment)]

    assert said == []
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("case", RECORDED, ids=lambda path: path.stem)
def test_a_line_that_comes_twice_says_nothing_twice(case: Path) -> None:
    lines = case.read_bytes().splitlines(keepends=True)
    whole = lasting(lines)

    for place, again in enumerate(lines):
        if b'elta","params"' not in again:  # a fragment has no number
            assert lasting([*lines[:place], again, *lines[place:]]) == whole, f"line {place + 1}"
        assert lasting([*lines, again]) == whole, f"line {place + 1} at the end"


def lasting(lines: Sequence[bytes]) -> list[Said]:
    """Return what is said of *lines*, without what passes by: fragments, notes and retries."""
    said = CodexDriver().receive(b"".join(lines))
    return [it for it in said if not isinstance(it, TextDelta | ThinkingDelta | Note | Retrying)]


def test_thoughts_are_not_taken_for_words() -> None:
    thought = item("completed", "reasoning", summary=["same"])
    said = heard(thought, retry(1), delta("same"), message("same"))

    assert said[3:] == [TextDelta("same"), Text("same", "u:1")]


def test_a_later_answer_may_say_the_same_again() -> None:
    said = heard(message("Step"), used(USED), message("Step", "j"))

    assert [event for event in said if isinstance(event, Text)] == [
        Text("Step", "u:1"),
        Text("Step", "u:2"),
    ]


def test_retries_that_have_no_number_are_counted() -> None:
    waiting = retry(1).replace(b"1/2", b"waiting for network")

    said = heard(waiting, waiting, used(USED), waiting)

    assert [event.attempt for event in said if isinstance(event, Retrying)] == [1, 2, 1]


# Items.


def test_paragraphs_of_a_thought_stand_apart() -> None:
    said = heard(
        note("item/reasoning/summaryPartAdded", summaryIndex=0),
        note("item/reasoning/summaryTextDelta", delta="a"),
        note("item/reasoning/summaryPartAdded", summaryIndex=1),
        note("item/reasoning/textDelta", delta="b"),
        item("completed", "reasoning", summary=["a", "b"], content=[]),
    )

    assert said == [
        ThinkingDelta("a"),
        ThinkingDelta("\n\n"),
        ThinkingDelta("b"),
        Thinking("a\n\nb", "u:1"),
    ]


@pytest.mark.parametrize(
    ("fields", "name", "input", "content"),
    [
        ({"type": "commandExecution", "command": "ls", "cwd": "/", "aggregatedOutput": "x"},
         "shell", {"command": "ls", "cwd": "/"}, "x"),
        ({"type": "commandExecution", "command": "ls", "aggregatedOutput": None},
         "shell", {"command": "ls"}, ""),
        ({"type": "fileChange", "changes": [{"path": "a"}]},
         "apply_patch", {"changes": [{"path": "a"}]}, "completed"),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": [1], "result": {"a": 1}},
         "s.t", [1], {"a": 1}),
        ({"type": "dynamicToolCall", "tool": "t", "arguments": {}}, "t", {}, "completed"),
        ({"type": "webSearch", "query": "q", "action": {"type": "open"}},
         "webSearch", {"query": "q"}, {"type": "open"}),
        ({"type": "functionCallOutput", "name": "f", "output": "x"}, "f", {}, "x"),
        ({"type": "imageView", "path": "/a.png"}, "imageView", {"path": "/a.png"}, "completed"),
    ],
)  # fmt: skip
def test_a_tool_has_a_name_an_input_and_a_result(
    fields: dict[str, object], name: str, input: object, content: object
) -> None:
    said = heard(
        note("item/started", item={"id": "c", "status": "inProgress", **fields}),
        note("item/completed", item={"id": "c", "status": "completed", **fields}),
    )

    assert said == [ToolCall("c", name, input, "u:1"), ToolResult("c", name, content, False)]


@pytest.mark.parametrize("status", ["failed", "declined", "interrupted"])
def test_a_tool_that_failed_is_an_error(status: str) -> None:
    (_, result) = heard(
        item("completed", "commandExecution", command="ls", status=status, exitCode=3)
    )

    content = "declined" if status == "declined" else ""
    assert result == ToolResult("i", "shell", content, True, 3)


def test_each_call_and_each_result_is_told_once() -> None:
    started = item("started", "commandExecution", command="ls")
    completed = item("completed", "commandExecution", command="ls", status="completed")

    said = heard(started, started, completed, completed, started)

    assert [type(event) for event in said] == [ToolCall, ToolResult]


@pytest.mark.parametrize("status", ["interrupted", "failed", "completed"])
def test_a_tool_that_is_left_open_is_closed_before_the_end(status: str) -> None:
    said = heard(item("started", "commandExecution", command="sleep"), over(status))

    assert isinstance(said[1], ToolResult)
    assert said[1].is_error
    assert isinstance(said[-1], (TurnEnd, TurnFailed))


def test_a_value_that_nests_too_deep_is_not_passed_on() -> None:
    deep: object = 1
    for _ in range(129):
        deep = [deep]

    (call,) = heard(item("started", "mcpToolCall", server="s", tool="t", arguments=deep))

    assert isinstance(call, ToolCall)
    assert isinstance(call.input, str)


def test_a_hundred_thousand_brackets_crash_nothing() -> None:
    broken = item("started", "mcpToolCall", arguments=0).replace(b":0", b":" + b"[" * 100_000)

    noted, after = heard(broken, delta("a"))

    assert isinstance(noted, Note)
    assert len(noted.text) < 5_000
    assert after == TextDelta("a")


@pytest.mark.parametrize(
    "line",
    [
        b'{"params":{"threadId":"t","delta":"a"},"method":"item/agentMessage/delta"}\n',
        b' { "method" : "item/agentMessage/delta", "params": {"delta": "a"} }\r\n',
        delta("a").replace(b"\n", b"\r\n"),
        b"\n \r\n" + delta("a"),
    ],
)
def test_a_line_may_be_written_in_other_ways(line: bytes) -> None:
    assert heard(line) == [TextDelta("a")]


@pytest.mark.parametrize("junk", [b"warning: slow\n", b"[]\n", b"7\n", b"\xff\xfe\n", b"\x00\n"])
def test_junk_is_a_note_and_costs_no_neighbour(junk: bytes) -> None:
    before, noted, after = heard(delta("a"), junk, delta("b"))

    assert (before, after) == (TextDelta("a"), TextDelta("b"))
    assert isinstance(noted, Note)


def test_what_is_not_known_is_nothing() -> None:
    assert heard(note("thread/status/changed", status={"type": "idle"}), b"{}\n") == []


# How it ends.


@pytest.mark.parametrize(
    ("info", "words", "kind"),
    [
        ("unauthorized", "", FailureKind.AUTH),
        ("usageLimitExceeded", "", FailureKind.QUOTA),
        ("rateLimitExceeded", "", FailureKind.RATE_LIMIT),
        ("contextWindowExceeded", "", FailureKind.CONTEXT_LENGTH),
        ("cyberPolicy", "", FailureKind.DECLINED),
        ("tooManyDenials", "", FailureKind.PERMISSION),
        ("sandboxError", "", FailureKind.HARNESS_ERROR),
        ("internalServerError", "high demand", FailureKind.OTHER),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "", FailureKind.AUTH),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "", FailureKind.RATE_LIMIT),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, "", FailureKind.OTHER),
        ({"x": 1}, "reason: max_output_tokens", FailureKind.TRUNCATED),
        ("other", "reason: content_filter", FailureKind.DECLINED),
        (None, "Missing environment variable: `K`.", FailureKind.AUTH),
        ({"x": {"httpStatusCode": 400}}, "maximum context length", FailureKind.CONTEXT_LENGTH),
        ({"x": {"httpStatusCode": 429}}, "You exceeded your current quota", FailureKind.QUOTA),
    ],
)
def test_a_failed_turn_has_its_kind(info: object, words: str, kind: FailureKind) -> None:
    error = {"message": words, "codexErrorInfo": info}

    assert heard(over("failed", error=error)) == [TurnFailed(kind, words)]


@pytest.mark.parametrize("items", [[{"type": "agentMessage", "text": "a"}, {"type": 7}, 7], "a"])
def test_an_end_whose_words_were_lost_has_them_itself(items: object) -> None:
    said = heard(note("turn/completed", turn={"id": "u", "status": "completed", "items": items}))

    assert said == [TurnEnd("a" if isinstance(items, list) else "")]


def test_another_turn_is_not_ours_to_end() -> None:
    assert heard(note("turn/completed", turn={"id": "other", "status": "completed"})) == []


@pytest.mark.parametrize(
    ("exit", "kind", "words"),
    [
        (Exit(0, None), FailureKind.INDETERMINATE, "left with code 0 before its turn"),
        (Exit(None, None), FailureKind.INDETERMINATE, "left before its turn"),
        (Exit(1, None, b"Error: bad\n"), FailureKind.HARNESS_ERROR, "code 1 before its turn was"),
        (Exit(None, 9), FailureKind.HARNESS_ERROR, "was ended by signal 9"),
        (Exit(1, None, b"x\nno rollout found"), FailureKind.SESSION_GONE, "no rollout found"),
        (
            Exit(2, None, b"error: no such flag\n\nUsage: codex\n\nTry --help.\n"),
            FailureKind.HARNESS_ERROR,
            ": error: no such flag",
        ),
        (
            Exit(1, None, b"Reading prompt from stdin...\n"),
            FailureKind.HARNESS_ERROR,
            "left with code 1 before its turn was over",
        ),
        (Exit(2, None, b"x" * 100_000), FailureKind.HARNESS_ERROR, "xxx"),
    ],
)
def test_an_exit_without_an_end_is_a_failure(exit: Exit, kind: FailureKind, words: str) -> None:
    (failed,) = CodexDriver().ended(exit)

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind
    assert words in failed.message
    assert "stdin" not in failed.message
    assert len(failed.message) < 1_000


def test_an_exit_closes_what_was_open() -> None:
    driver, _ = planned()
    driver.receive(OPENING + item("started", "commandExecution", command="ls") + delta("a"))
    driver.receive(note("error", error={"message": "unexpected status 401"}, willRetry=False))

    usage, result, failed = driver.ended(Exit(None, 9))

    assert usage == Usage(MODEL)
    assert isinstance(result, ToolResult)
    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.AUTH


# By exec.


def exec_heard(*lines: bytes, **given: object) -> list[Said]:
    driver, _ = planned(config=CodexConfig(mode="exec"), **given)
    return list(driver.receive(EXEC_BEGUN + b"".join(lines)))[1:]


def test_exec_counts_what_the_thread_grew_by() -> None:
    completed = line({"type": "turn.completed", "usage": USED_EXEC})
    usage, kept, end = exec_heard(completed)
    assert isinstance(kept, Remember)
    later = {name: count + 10 for name, count in USED_EXEC.items()}

    again, _, _ = exec_heard(
        line({"type": "turn.completed", "usage": later}), session="t", memory=kept.data
    )

    assert usage == Usage(MODEL, 2400, 154, 604, 0, None, 0, scope="total")
    assert again == Usage(MODEL, 0, 10, 10, 0, None, 0, scope="total")
    assert end == TurnEnd("")


def test_exec_counts_what_a_resumed_thread_grew_by_though_the_line_that_names_it_is_lost() -> None:
    memory = b'{"thread":"t","total":{"inputTokens":2000,"outputTokens":144}}'
    driver, _ = planned(config=CodexConfig(mode="exec"), session="t", memory=memory)

    usage, kept, _ = driver.receive(line({"type": "turn.completed", "usage": USED_EXEC}))

    assert usage == Usage(MODEL, 400, 10, 604, 0, None, 0, scope="total")
    assert isinstance(kept, Remember)
    assert json.loads(kept.data)["thread"] == "t"


def test_exec_remembers_nothing_of_a_thread_that_nobody_named() -> None:
    driver, _ = planned(config=CodexConfig(mode="exec"))

    said = driver.receive(line({"type": "turn.completed", "usage": USED_EXEC}))

    assert [type(event) for event in said] == [Usage, TurnEnd]


def test_exec_does_not_say_its_model_but_we_know_what_was_asked_for() -> None:
    driver, _ = planned(config=CodexConfig(mode="exec"))

    assert driver.receive(EXEC_BEGUN) == [Session("t", MODEL)]
    assert CodexDriver().receive(EXEC_BEGUN) == [Session("t")]


def test_an_exec_that_fails_used_something_if_it_said_something() -> None:
    failed = line({"type": "turn.failed", "error": {"message": "status 429"}})
    words = line({"type": "item.completed", "item": {"type": "agent_message", "text": "a"}})
    warning = line({"type": "item.completed", "item": {"type": "error", "message": "w"}})
    end = TurnFailed(FailureKind.RATE_LIMIT, "status 429")

    assert exec_heard(warning, failed) == [Note("w"), end]
    assert exec_heard(words, failed) == [Text("a"), Usage(MODEL), end]


@pytest.mark.parametrize("type", ["todo_list", "agent_message", "reasoning"])
def test_what_exec_only_begins_to_say_is_no_tool(type: str) -> None:
    begun = line({"type": "item.started", "item": {"id": "i", "type": type, "items": []}})
    failed = line({"type": "turn.failed", "error": {"message": "status 429"}})

    assert exec_heard(begun, failed) == [TurnFailed(FailureKind.RATE_LIMIT, "status 429")]


def test_exec_closes_what_is_open_when_it_is_gone() -> None:
    driver, _ = planned(config=CodexConfig(mode="exec"))
    running = {"id": "c", "type": "command_execution", "command": "ls", "status": "in_progress"}
    driver.receive(EXEC_BEGUN + line({"type": "item.started", "item": running}))

    usage, result, failed = driver.ended(Exit(1, None))

    assert usage == Usage(MODEL)
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert isinstance(failed, TurnFailed)


@pytest.mark.parametrize("usage", [{}, {"usage": {"input_tokens": 0, "output_tokens": 0}}])
def test_exec_that_answered_and_told_no_usage_used_something(usage: dict[str, object]) -> None:
    words = line({"type": "item.completed", "item": {"type": "agent_message", "text": "a"}})

    said = told(exec_heard(words, line({"type": "turn.completed", **usage})))

    assert said == [Text("a"), Usage(MODEL), TurnEnd("a")]


def test_an_event_that_exec_did_not_have_is_a_note() -> None:
    (noted,) = exec_heard(b'{"type":"turn.paused"}\n')

    assert noted == Note("an event of a type that is not known: turn.paused")


def test_an_end_that_cannot_be_read_ends_the_turn_at_once() -> None:
    said = heard(delta("Hel"), CUT + b'","status":"compl\n', over("completed"))

    fragment, _, used, end = said
    assert fragment == TextDelta("Hel")
    assert used == Usage(MODEL)
    assert isinstance(end, TurnFailed)
    assert end.kind is FailureKind.INDETERMINATE


@pytest.mark.parametrize("behind", [b'v","rootTurnId":"u","status"\n', b"\n"])
def test_an_end_that_cannot_be_read_may_be_that_of_another_turn(behind: bytes) -> None:
    said = heard(CUT[:-1] + behind, over("completed"))

    assert [type(event) for event in said] == [Note, TurnEnd]


CUT = b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u'
