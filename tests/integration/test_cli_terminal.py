"""`capsule run` on a real terminal: streamed text, a status line, and Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import ADVISORY, HELLO, ON_CUE, PATIENT, STUBBORN, Command, saying

TOOLS_ON_CUE = """
read task
echo '{"type":"text-delta","text":"I look at it."}'
echo '{"type":"tool-call","id":"1","name":"Bash","input":{"command":"%s"}}'
read cue < "$CUE"
echo '{"type":"tool-result","id":"1","content":"fine"}'
echo '{"type":"text","text":"It is fine."}'
echo '{"type":"turn-end","result":"It is fine."}'
"""
ESCAPES = saying(
    r"""
{"type":"text-delta","text":"a\u001b"}
{"type":"text-delta","text":"[31mred\r"}
{"type":"text-delta","text":"\nb\r"}
{"type":"tool-call","id":"1","name":"\u001b[1mBash","input":"[red]x[/red]\u202e"}
{"type":"tool-result","id":"1","content":"\u001b[2J","is_error":true}
{"type":"activity","text":"\u001b]0;title\u0007"}
{"type":"turn-failed","kind":"other","message":"\u009b31m"}
"""
)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def words(command: Command, harness: str, *more: str) -> list[str]:
    return ["run", command.capsule(harness), "--task", "go", *ADVISORY, *more]


def test_text_is_streamed_to_a_terminal(command: Command) -> None:
    cue = command.cue()
    with command.in_terminal(*words(command, ON_CUE, "--env", f"CUE={cue}")) as terminal:
        terminal.shows("working")
        cue.write_text("now\n")
        status = terminal.status()

    assert status == 0
    assert terminal.rows().count("working") == 1


def test_a_tool_call_shows_while_it_runs_and_one_row_when_it_is_done(command: Command) -> None:
    cue = command.cue()
    harness = TOOLS_ON_CUE % "make test"
    with command.in_terminal(*words(command, harness, "--env", f"CUE={cue}")) as terminal:
        terminal.shows('Bash: "make test"')
        cue.write_text("now\n")
        terminal.status()
    rows = terminal.rows()
    [call] = [row for row in rows if row.startswith("●")]

    assert call.startswith("● Bash  make test  ✓ ")
    report, said = rows[: rows.index("")], rows[rows.index("") :]
    assert "spend: after-call, by what the driver reports; no ceilings" in report
    assert any(row.startswith("containment: advisory (") for row in report)
    assert said[:3] == ["", "I look at it.", ""]
    assert said[4:7] == ["", "It is fine.", ""]
    assert said[7].startswith("✓ completed  ")
    assert said[8:] == [""]


def test_a_long_tool_call_keeps_its_mark_on_the_row(command: Command) -> None:
    cue = command.cue()
    harness = TOOLS_ON_CUE % ("make " * 40)
    with command.in_terminal(*words(command, harness, "--env", f"CUE={cue}")) as terminal:
        terminal.shows('Bash: "make')
        cue.write_text("now\n")
        terminal.status()
    [call] = [row for row in terminal.rows() if row.startswith("●")]

    assert "…  ✓ " in call
    assert len(call) < 80


def test_an_answer_that_was_not_streamed_is_shown_once(command: Command) -> None:
    with command.in_terminal(
        *words(command, saying('{"type":"turn-end","result":"only this"}'))
    ) as it:
        status = it.status()

    assert status == 0
    assert it.rows().count("only this") == 1


def test_nothing_of_a_run_steers_the_terminal(command: Command) -> None:
    with command.in_terminal(*words(command, ESCAPES)) as terminal:
        terminal.status()

    for theirs in (
        "\x1b[31mred",
        "\x1b[2J",
        "\x1b]0;title",
        "\x9b",
        "\u202e",
        "\x1b[1mBash\x1b[1m",
    ):
        assert theirs not in terminal.text
    assert "a␛[31mred" in terminal.rows()
    assert any("[red]x[/red]<U+202E>" in row for row in terminal.rows())


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_a_plain_terminal_gets_plain_lines(command: Command, env: dict[str, str]) -> None:
    with command.in_terminal(*words(command, HELLO), env=env) as terminal:
        terminal.status()

    assert "\x1b" not in terminal.text
    assert "hello world" in terminal.rows()


def test_ctrl_c_interrupts(command: Command) -> None:
    with command.in_terminal(*words(command, PATIENT)) as terminal:
        terminal.shows("working")
        terminal.press("\x03")
        status = terminal.status()

    assert status == 130
    assert "interrupting the run; Ctrl-C again kills it" in terminal.rows()
    assert terminal.rows()[-2].startswith("■ task canceled")


def test_ctrl_c_twice_kills(command: Command) -> None:
    given = ["run", command.capsule(STUBBORN, grace="1h"), "--task", "go", *ADVISORY]
    with command.in_terminal(*given) as terminal:
        terminal.shows("working")
        terminal.press("\x03")
        terminal.shows("Ctrl-C again")
        terminal.press("\x03")
        status = terminal.status()

    assert status == 137
    assert "killing the run" in terminal.rows()


def test_a_terminal_that_is_closed_hangs_up(command: Command) -> None:
    with command.in_terminal(*words(command, PATIENT)) as terminal:
        terminal.shows("working")
        terminal.hang_up()
        status = terminal.status()
    result = json.loads(command("show", "@last", "--json").out)

    assert status == 129
    assert result["reason"] == "hang-up"


def test_a_file_beside_a_terminal_gets_the_answer_alone(command: Command) -> None:
    cue = command.cue()
    harness = TOOLS_ON_CUE % "make test"
    given = words(command, harness, "--env", f"CUE={cue}")
    with command.in_terminal(*given, redirect="> answer") as terminal:
        terminal.shows('Bash: "make test"')
        cue.write_text("now\n")
        terminal.status()

    assert (command.folder / "answer").read_text() == "It is fine.\n"
    assert "I look at it." in terminal.rows()
    assert "It is fine." not in terminal.text
