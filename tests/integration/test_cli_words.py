"""What the command line takes, what it refuses, and how it says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_runtime.cli import main
from capsule_runtime.cli.failures import ReaderGone, exit_status_of
from capsule_runtime.cli.verbs import capsule
from capsule_runtime.codes import load_codes
from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.manifest import parse_manifest
from support.command import ADVISORY, HELLO, PROGRAM, Command

LONG = "n" * 256
"""One more than a name may have."""

VERBS = capsule.list_commands(capsule.make_context("capsule", [], resilient_parsing=True))


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_the_version_loads_nothing_that_a_run_needs() -> None:
    code = (
        "import sys, capsule_runtime, click; before = set(sys.modules)\n"
        "from capsule_runtime.cli import main; assert main(['--version']) == 0\n"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('capsule_runtime')))\n"
        "print(*{'anyio', 'rich', 'sqlite3'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    version, ours, heavy = shown.stdout.split("\n")[:3]

    assert version.startswith("capsule 0.")
    assert ours.split() == [
        "capsule_runtime.cli",
        "capsule_runtime.cli.failures",
        "capsule_runtime.cli.interrupts",
        "capsule_runtime.cli.output",
        "capsule_runtime.cli.printer",
        "capsule_runtime.cli.verbs",
        "capsule_runtime.cli.words",
        "capsule_runtime.errors",
    ]
    assert heavy == ""


@pytest.mark.parametrize("number", ["1_000", "+1", " 1", "1e3", "\u0661"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "x", "--max-tokens"),
        ("run", "x", "--max-turns"),
        ("run", "x", "--max-tool-calls"),
        ("run", "x", "--processes"),
        ("ps", "--limit"),
        ("logs", "@last", "--after"),
    ],
    ids=lambda words: words[-1],
)
def test_a_number_is_written_in_plain_digits(
    words: tuple[str, ...], number: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, number]) == 2
    assert f"{number!r} is not a whole number in plain digits" in capfd.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_does_with_an_example(
    verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0
    shown = capfd.readouterr().out

    assert shown.startswith(f"Usage: capsule {verb}")
    assert shown.count("Example: ") == 1


@pytest.mark.parametrize("words", [[], ["store"]], ids=["capsule", "store"])
def test_a_group_alone_says_what_there_is(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert capfd.readouterr().out.startswith("Usage: capsule")


def test_python_can_run_it_as_a_module() -> None:
    words = [sys.executable, "-m", "capsule_runtime", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("capsule 0.")


def test_help_lists_every_verb(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capfd.readouterr().out

    assert all(f"\n  {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["rum"], "E-USE-020", "there is no verb 'rum'; did you mean 'run'?"),
        (["run"], "E-USE-020", "missing argument 'CAPSULE'"),
        (["run", "x", "--taks", "y"], "E-USE-020", "--taks"),
        (["run", "x", "--task", "y", "--timeout", "soon"], "E-USE-020", "15m"),
        (["run", "x", "--task", "y", "--timeout", "0s"], "E-USE-020", "no time at all"),
        (["run", "x", "--task", "y", "--format", "xml"], "E-USE-020", "'jsonl'"),
        (["run", "x", "go"], "E-USE-020", "--task"),
        (["run", "x", "-", "--task", "y"], "E-USE-020", "twice"),
        (["run", "x", "--task", "y", "--wait"], "E-USE-020", "--context"),
        (["run", "x"], "E-USE-021", "no task was given"),
        (["run", "x", "--task", "y", "--task-file", "z"], "E-USE-021", "twice"),
        (["run", "x", "--task", "  "], "E-USE-021", "empty"),
        (["run", "x", "-"], "E-USE-021", "empty"),
        (["run", "x", "--task-file", "absent"], "E-USE-022", "absent cannot be read"),
        (["run", "x", "--task", "y", "--input", "."], "E-USE-022", ". cannot be read"),
        (["run", "x", "--task", "y", "--input", "binary"], "E-USE-023", "binary is neither JSON"),
        (["run", "x", "--task-file", "binary"], "E-USE-023", "binary is neither JSON"),
        (["run", "x", "--task", "y", "--input", "bad.json"], "E-USE-023", "bad.json is not JSON"),
        (["run", "x", "--task", "y", "--input", "huge"], "E-USE-025", "16.0 MiB"),
        (["run", "x", "--task", "y", "--env", "ABSENT"], "E-USE-026", "ABSENT is not set"),
        (["run", "x", "--task", "y", "--env", "A-B=1"], "E-USE-026", "'A-B'"),
        (["run", "x", "--task", b"\xff"], "E-USE-027", "not UTF-8"),
        (["run", "x", "--task", "y", "--result", "no/file"], "E-USE-028", "no/file"),
        (["run", "x", "--task", "y"], "E-USE-003", "there is no capsule.toml"),
        (["run", "x", "--task", "y", "--detach"], "E-USE-003", "there is no capsule.toml"),
        (["run", "x", "--task", "y", "--result", LONG], "E-USE-028", "File name too long"),
        (["run", "x", "--task", "y", "--result", "/proc/result"], "E-USE-028", "/proc/result"),
        (["run", "x", "--task", "y", "--result", "."], "E-USE-028", "not a regular file"),
        (["run", "x", "--task", "y", "--result", "fifo"], "E-USE-028", "not a regular file"),
        (["run", "x", "--task", "y", "--result", "to-fifo"], "E-USE-028", "not a regular file"),
        (["run", "x", "--task", "y", "--result", "loop"], "E-USE-028", "symbolic links"),
        (
            ["run", "sample", "--task", "y", "--workdir", LONG, *ADVISORY],
            "E-USE-011",
            "the work directory",
        ),
        (["run", "", "--task", "y"], "E-USE-020", "'CAPSULE': it is empty"),
        (["run", "x", "-", "--task", ""], "E-USE-020", "twice"),
        (["run", "x", "--task-file", ""], "E-USE-020", "'--task-file': it is empty"),
        (["run", "x", "--task", "y", "--input", ""], "E-USE-020", "'--input': it is empty"),
        (["run", "x", "--task", "y", "--workdir", ""], "E-USE-020", "'--workdir': it is empty"),
        (["run", "x", "--task", "y", "--context", ""], "E-USE-020", "'--context': it is empty"),
        (["run", "x", "--task", "y", "--model", ""], "E-USE-020", "'--model': it is empty"),
        (["run", "x", "--task", "y", "--result", ""], "E-USE-020", "'--result': it is empty"),
        (["run", "x", "--task", "y", "--input", "deep.json"], "E-USE-023", "more than 100 deep"),
        (["run", "x", "--task", "y", "--input", "deeper.json"], "E-USE-023", "more than 100 deep"),
        (["explain", ""], "E-USE-020", "it is empty"),
        (["explain", LONG], "E-USE-001", "no run is called"),
        (["explain", "E-USE-999"], "E-USE-030", "E-USE-999"),
        (["init", ""], "E-USE-020", "it is empty"),
        (["ps", "--limit", "99999999999999999999"], "E-USE-020", "'--limit'"),
        (["logs", "@last", "--after", "99999999999999999999"], "E-USE-020", "'--after'"),
        (["replay", "--driver", "jsonl", "absent"], "E-USE-022", "absent"),
        (["replay", "--driver", "jsonl", "x", "--exit", "256"], "E-USE-020", "256"),
        (["show", "@last"], "E-USE-001", "@last"),
        (["show", b"\xff"], "E-USE-027", "not UTF-8"),
    ],
)
def test_what_cannot_be_is_refused(
    command: Command, words: list[str], code: str, part: str
) -> None:
    (command.folder / "binary").write_bytes(b"\x80\x00")
    (command.folder / "bad.json").write_bytes(b'{"a": ')
    Path(command.capsule(HELLO)).rename(command.folder / "sample")
    (command.folder / "deep.json").write_text("[" * 102 + "]" * 102)
    (command.folder / "deeper.json").write_text("[" * 1100 + "]" * 1100)
    os.mkfifo(command.folder / "fifo")
    (command.folder / "to-fifo").symlink_to("fifo")
    (command.folder / "loop").symlink_to("loop")
    with (command.folder / "huge").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    done = command(*words)

    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith(f"error[{code}]: ")
    assert part in done.err
    assert list(command.state.glob("runs/*")) == []


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x", "--task", "y"],
        ["run", "/x", "--task", "y", "--result", "result"],
        ["explain", "/x"],
        ["init", "agent"],
    ],
    ids=" ".join,
)
def test_a_removed_current_folder_is_told(command: Command, words: list[str]) -> None:
    script = 'mkdir gone; cd gone; rmdir ../gone; exec "$0" "$@"'
    done = subprocess.run(
        ["sh", "-c", script, PROGRAM, *words],
        capture_output=True,
        cwd=command.folder,
        env=command.env,
    )

    assert done.returncode == 2
    assert done.stderr.startswith(b"error[E-USE-031]: the current folder was removed\n")


def test_a_name_that_is_too_long_cannot_be_written(command: Command) -> None:
    done = command("init", LONG)

    assert done.status == 10
    assert done.err.startswith("error[E-HOST-022]: ")
    assert "File name too long" in done.err


def test_a_full_disk_behind_stdout_is_told_by_a_group_too(command: Command) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [PROGRAM, "store"], stdout=full, stderr=subprocess.PIPE, env=command.env
        )

    assert done.returncode == 10
    assert done.stderr.startswith(b"error[E-HOST-021]: stdout cannot be written")


def test_stdin_is_read_once(command: Command) -> None:
    done = command("run", "x", "-", "--input", "-", stdin=b"go")

    assert done.err.startswith("error[E-USE-024]: stdin was asked for twice: for the task and --in")


def test_json_alone_is_not_a_format_of_runs(command: Command) -> None:
    done = command("run", "x", "--task", "y", "--json")

    assert json.loads(done.err)["error"]["code"] == "E-USE-020"


def test_a_program_reads_errors_as_json(command: Command) -> None:
    done = command("show", "nothing", "--json")
    error = json.loads(done.err)["error"]

    assert done.status == error["exit_status"] == 2
    assert error["code"] == "E-USE-001"
    assert error["message"] and error["hint"]


def test_words_after_two_dashes_are_not_ours(command: Command) -> None:
    done = command("run", "x", "--task", "y", "--", "--json")

    assert done.err.startswith("error[E-USE-003]: ")


def test_explain_prints_the_plan_and_starts_nothing(command: Command) -> None:
    words = ("run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--explain", "--json")
    done = command(*words, "--env", "A=secret", "--", "--fast")
    plan = json.loads(done.out)

    assert plan["argv"][-1] == "--fast"
    assert plan["containment"] == "advisory"
    assert "secret" not in done.out
    assert not command.state.exists()


def test_stdin_is_not_read_unless_asked(command: Command) -> None:
    reader, writer = os.pipe()  # never written to, never closed: a read of it would not return
    words = ["run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--explain"]
    done = subprocess.run([PROGRAM, *words], stdin=reader, capture_output=True, env=command.env)
    os.close(reader)
    os.close(writer)

    assert done.returncode == 0


@pytest.mark.parametrize("code", ["E-USE-010", "e-run-033"])
def test_explain_prints_the_long_form_of_a_code(
    code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", code]) == 0
    known = load_codes()[code.upper()]

    title, meaning, remedy = capfd.readouterr().out.split("\n\n")

    assert title == f"{code.upper()}: {known.title}"
    assert " ".join(meaning.split()) == known.meaning
    assert " ".join(remedy.split()) == known.remedy


@pytest.mark.parametrize("subject", ["manifest", "config", "events", "frames", "facts", "result"])
def test_schemas_are_json_schemas(subject: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", subject]) == 0
    schema = json.loads(capfd.readouterr().out)

    assert schema["title"] == subject
    assert {"$schema", "$defs"} <= set(schema)


def test_drivers_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["drivers", "--json"]) == 0
    drivers = json.loads(capfd.readouterr().out)

    assert drivers["jsonl"]["streams_text"] is True


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_the_shell(
    shell: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["completions", shell]) == 0
    script = capfd.readouterr().out

    assert f"_CAPSULE_COMPLETE={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("capsule int", "interrupt"),
        ("capsule run x --form", "--format"),
        ("capsule run x --format js", "jsonl"),
        ("capsule show @", "@last"),
    ],
)
def test_a_shell_completes_our_words(command: Command, words: str, expected: str) -> None:
    asked = {
        "_CAPSULE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = command(env=asked)

    assert expected in [line.partition(",")[2] for line in done.out.splitlines()]


def test_init_writes_a_capsule_once(command: Command) -> None:
    done = command("init", "My Agent!")
    again = command("init", "My Agent!")
    folder = command.folder / "My Agent!"

    assert done.status == 0
    assert parse_manifest((folder / "capsule.toml").read_text(), "capsule.toml").name == "my-agent"
    assert again.status == 2
    assert again.err.startswith("error[E-USE-029]: ")


@pytest.mark.parametrize("name", ["my agent é", "-y", "it's; $HOME", "."])
def test_the_command_that_init_prints_works(
    command: Command, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    said = command("init", "--", name).out.splitlines()[-1]
    path = f"{Path(PROGRAM).parent}:{command.env['PATH']}"
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        ["sh", "-c", said],
        capture_output=True,
        cwd=command.folder,
        env={"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"},
    )

    assert said.startswith("  capsule run ")
    assert (done.returncode, done.stdout[:23]) == (0, b"The work directory hold")


def test_what_init_comments_out_is_all_there_is_to_say(command: Command) -> None:
    command("init", "agent")
    text = (command.folder / "agent" / "capsule.toml").read_text()
    wanted = [
        line.removeprefix("# ")
        for line in text.splitlines()
        if not line.startswith("# system_prompt_file")
    ]
    said = "\n".join(line for line in wanted if "=" in line or line.startswith("["))
    manifest = parse_manifest(said, "capsule.toml")

    assert manifest.limits.idle.tool == "30m"
    assert manifest.harness.config == {"interrupt": "line"}
    assert manifest.harness.system_prompt == "You are brief."


RECORDED = b'{"type":"text-delta","text":"a"}\n{"type":"turn-end","result":"a"}\n'


def test_replay_prints_the_events_of_a_recording(command: Command) -> None:
    done = command("replay", "--driver", "jsonl", "-", stdin=RECORDED)

    assert [frame["type"] for frame in done.frames] == ["text-delta", "turn-end"]


def test_replay_prints_the_frames_of_a_recording(command: Command) -> None:
    (command.folder / "recorded").write_bytes(RECORDED)
    done = command("replay", "--driver", "jsonl", "recorded", "--format", "frames")

    assert [frame["type"] for frame in done.frames] == ["status", "text", "text", "status"]
    assert done.frames[-1]["final"] is True
    assert done.frames[-1]["response"] == "a"


@pytest.mark.parametrize("format", ["events", "frames"])
def test_replay_of_what_another_harness_wrote_is_an_error(command: Command, format: str) -> None:
    stdin = b'{"method":"turn/started"}\n{"type":"usage","input_tokens":"x"}\nwords\n'

    done = command("replay", "--driver", "jsonl", "-", "--format", format, stdin=stdin)

    assert done.status == 2
    assert "error[E-USE-038]: no line of - is an event to the driver 'jsonl'" in done.err
    assert "hint: Name the driver of the harness that wrote it: acp, claude-code, codex" in done.err
    assert done.out


@pytest.mark.parametrize("stdin", [b"", b" \n\n"])
def test_replay_of_nothing_tells_how_it_ended(command: Command, stdin: bytes) -> None:
    done = command("replay", "--driver", "jsonl", "-", "--exit", "1", stdin=stdin)

    assert done.status == 0
    assert '"turn-failed"' in done.out


def test_replay_knows_how_the_harness_ended(command: Command) -> None:
    done = command("replay", "--driver", "jsonl", "-", "--exit", "-9", stdin=RECORDED[:33])

    assert done.frames[-1]["kind"] == "harness-error"
    assert "signal 9" in done.frames[-1]["message"]


def _fails_with(error: Exception) -> int:
    def command() -> None:
        raise error

    return exit_status_of(command, as_json=False)


def test_a_bug_exits_with_70_and_shows_where(capfd: pytest.CaptureFixture[str]) -> None:
    assert _fails_with(ZeroDivisionError("\x1b[2J")) == 70
    shown = capfd.readouterr().err

    assert "test_cli_words.py" in shown
    assert "ZeroDivisionError: \u241b[2J" in shown
    assert "This is a bug in capsule" in shown


def test_an_error_of_a_group_of_tasks_is_reported_as_itself(
    capfd: pytest.CaptureFixture[str],
) -> None:
    inner = ExceptionGroup("inner", [UsageError("E-USE-010", "busy", "wait"), ReaderGone()])

    assert _fails_with(ExceptionGroup("outer", [inner])) == 2
    assert capfd.readouterr().err == "error[E-USE-010]: busy\nhint: wait\n"


def test_a_bug_beside_an_error_is_a_bug(capfd: pytest.CaptureFixture[str]) -> None:
    both = ExceptionGroup("both", [HostError("E-HOST-001", "no"), ZeroDivisionError()])

    assert _fails_with(both) == 70
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_nobody_reading_is_no_failure(command: Command) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PROGRAM, "schema", "facts"], stdout=writer, stderr=subprocess.PIPE, env=command.env
    )
    os.close(writer)

    assert done.returncode == 0
    assert done.stderr == b""


def test_closed_descriptors_do_not_become_ours(command: Command) -> None:
    """A store opened as descriptor 1 would be written over by the answer."""
    script = f"{PROGRAM} ps --all >&- 2>&- <&-; {PROGRAM} store check"
    done = subprocess.run(["sh", "-c", script], capture_output=True, env=command.env)

    assert done.returncode == 0
    assert done.stdout == b"nothing is wrong\n"
