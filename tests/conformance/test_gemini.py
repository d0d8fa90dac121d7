"""Gemini CLI: how it is started in both modes, and what its exits mean."""

from __future__ import annotations

import json

import pytest

from capsule_drivers.gemini import GeminiConfig, GeminiDriver
from capsule_runtime import Exit, FailureKind, LaunchRequest, Message, TextPart, TurnFailed, Usage

STREAM = GeminiConfig(mode="stream-json")


def request(**given: object) -> LaunchRequest:
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("count"),)),
        "command": (),
        "args": (),
        "config": GeminiConfig(),
        "home": "/private",
        "workdir": "/src",
        "tmp": "/tmp",
        "out": "/out",
        "agent_path": "/agent",
        "limits": {},
        "env": {"GEMINI_API_KEY": "sk-secret"},
        "model": "gemini-2.5-pro",
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields


def test_a_model_is_named_with_its_provider_or_without() -> None:
    plan = GeminiDriver().launch(request(model="google:gemini-2.5-pro"))

    assert plan.argv[3] == "gemini-2.5-pro"


def test_it_is_started_quiet_and_without_its_launcher() -> None:
    plan = GeminiDriver().launch(request(system_prompt="be short"))

    assert plan.argv == ("gemini", "--skip-trust", "-m", "gemini-2.5-pro", "--acp")
    assert plan.keep_stdin
    assert plan.env["GEMINI_CLI_NO_RELAUNCH"] == "true"
    settings = json.loads(plan.files[".gemini/settings.json"])
    assert settings["general"]["maxAttempts"] == 2
    assert settings["privacy"] == {"usageStatisticsEnabled": False}
    assert plan.files[".gemini/GEMINI.md"] == b"be short"
    assert b"sk-secret" not in b"".join(plan.files.values()) + plan.stdin


@pytest.mark.parametrize("given", [{"config": STREAM}, {"session": "5-4"}])
def test_it_streams_where_it_is_asked_to_and_where_it_resumes(given: dict[str, object]) -> None:
    driver = GeminiDriver()

    plan = driver.launch(request(**given))

    resume = ("--resume", "5-4") if "session" in given else ()
    assert plan.argv == (
        *("gemini", "--skip-trust", "-m", "gemini-2.5-pro"),
        *("-o", "stream-json", "--yolo", *resume),
    )
    assert (plan.stdin, plan.keep_stdin) == (b"count", False)
    assert driver.describe().interrupt_signal == 2
    assert (driver.interrupt(), driver.steer("w1", "words")) == (None, None)


def test_without_leave_it_has_no_shell_where_it_cannot_ask() -> None:
    config = GeminiConfig(mode="stream-json", permissions="ask")

    assert "--yolo" not in GeminiDriver().launch(request(config=config)).argv


@pytest.mark.parametrize(
    ("exit", "kind"),
    [
        (Exit(0, None), FailureKind.INDETERMINATE),
        (Exit(1, None), FailureKind.HARNESS_ERROR),
        (Exit(41, None), FailureKind.AUTH),
        (Exit(42, None, b"Error resuming session: Invalid\n"), FailureKind.SESSION_GONE),
        (Exit(42, None, b"bad flag\n"), FailureKind.HARNESS_ERROR),
        (Exit(53, None), FailureKind.MAX_TURNS),
        (Exit(145, None), FailureKind.AUTH),
        (Exit(144, None), FailureKind.HARNESS_ERROR),
        (Exit(173, None), FailureKind.RATE_LIMIT),
        (Exit(None, 9), FailureKind.HARNESS_ERROR),
    ],
)
def test_what_its_exits_mean(exit: Exit, kind: FailureKind) -> None:
    driver = GeminiDriver()
    driver.launch(request(config=STREAM))

    failed = driver.ended(exit)[-1]

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind


@pytest.mark.parametrize(("exit", "unknown"), [(Exit(0, None), 1), (Exit(145, None), 0)])
def test_one_that_is_stopped_before_its_first_word_is_not_free(exit: Exit, unknown: int) -> None:
    driver = GeminiDriver()
    driver.launch(request(config=STREAM))
    driver.receive(b'{"type":"init","session_id":"s1","model":"gemini-2.5-pro"}\n')

    assert len([event for event in driver.ended(exit) if isinstance(event, Usage)]) == unknown


def test_numbers_that_can_be_none_are_unknown() -> None:
    counts = '{"total_tokens":-3,"input_tokens":-5,"output_tokens":9}'
    driver = GeminiDriver()
    driver.launch(request(config=STREAM))

    events = driver.receive(
        b'{"type":"result","status":"success","stats":{"models":{"m":%s}}}\n' % counts.encode()
    )

    (usage,) = [event for event in events if isinstance(event, Usage)]
    assert (usage.input_tokens, usage.output_tokens) == (None, None)
