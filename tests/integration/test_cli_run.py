"""`capsule run` on pipes: what goes where in each format, and what is left at the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from capsule_runtime.leavings import list_out_files
from support.command import ADVISORY, HELLO, ON_CUE, PROGRAM, STUBBORN, Command, saying

NARRATING = saying(
    r"""
{"type":"text-delta","text":"I look "}
{"type":"text-delta","text":"at it."}
{"type":"tool-call","id":"1","name":"Bash","input":{"command":"make test","cwd":"/x"}}
{"type":"tool-result","id":"1","content":"no rule\nat all","is_error":true,"exit_code":2}
{"type":"usage","model":"m","input_tokens":1200,"output_tokens":34}
{"type":"text","text":"It is fine."}
{"type":"tool-call","id":"2","name":"List","input":null}
{"type":"tool-result","id":"2","content":"x"}
{"type":"text-delta","text":"All "}
{"type":"text-delta","text":"done."}
{"type":"turn-end","result":"All done."}
"""
)
FAILING = saying(
    r"""
{"type":"text-delta","text":"half of it"}
{"type":"turn-failed","kind":"quota","message":"no credit\u001b[2J left"}
"""
)
ECHOING = r"""
read -r task
printf '%s\n' "$task" > "$CAPSULE_OUT/task.json"
echo '{"type":"turn-end","result":"noted"}'
"""
LEAVING_LAST = r"""
read -r task
echo '{"type":"turn-end","result":"done"}'
cat
echo "stdin has ended" > "$CAPSULE_OUT/left.txt"
"""
HOSTILE = saying(
    r"""
{"type":"turn-end","result":"a\u001b[31m\r\n::error::b\n##[group]c\u202e\u2028"}
"""
)


def _can_mount() -> bool:
    probe = ["sh", "-c", "unshare -rm mount -t tmpfs none /tmp"]
    return subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0


needs_mounts = pytest.mark.skipif(not _can_mount(), reason="no mount namespace to be had")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_text_prints_the_answer_once_and_the_rest_on_stderr(command: Command) -> None:
    done = command.run(HELLO)

    assert done.status == 0
    assert done.out == "hello world\n"
    assert done.err.splitlines()[0].startswith("run_")
    assert done.err.splitlines()[-1].startswith("✓ completed")


def test_text_on_pipes_shows_narration_and_tool_calls_on_stderr(command: Command) -> None:
    done = command.run(NARRATING)
    said = done.err.splitlines()[3:]

    assert done.out == "All done.\n"
    assert said[0] == "I look at it."
    assert said[1].startswith("● Bash  make test  ✗ 0.")
    assert said[1].endswith("exit 2")
    assert said[2] == "  no rule"
    assert said[3] == "It is fine."
    assert said[4].startswith("● List  ✓ 0.")
    assert said[5].startswith("✓ completed  0.")
    assert said[5].endswith(" · 2 turns · 2 tool calls · 1.2k tokens · cost —")
    assert len(said) == 6


def test_text_writes_plain_lines_on_pipes(command: Command) -> None:
    done = command.run(NARRATING)

    assert "\x1b" not in done.out + done.err


def test_jsonl_prints_frames_and_nothing_else(command: Command) -> None:
    done = command.run(HELLO, "--format", "jsonl")
    frames = done.frames

    assert done.status == 0
    assert done.err == ""
    assert frames[0]["run"].startswith("run_")
    assert [frame["prev"] for frame in frames] == [0, *(frame["seq"] for frame in frames[:-1])]
    assert frames[-1]["final"] is True
    assert frames[-1]["response"] == "hello world"


def test_jsonl_is_the_log_byte_for_byte(command: Command) -> None:
    done = command.run(NARRATING, "--format", "jsonl")
    log = command("logs", "@last", "--json")

    assert log.out == done.out


def test_quiet_prints_the_answer_alone(command: Command) -> None:
    done = command.run(NARRATING, "--format", "quiet")

    assert (done.status, done.out, done.err) == (0, "All done.\n", "")


@pytest.mark.parametrize("format", ["text", "quiet"])
def test_a_failure_is_told_on_stderr(command: Command, format: str) -> None:
    done = command.run(FAILING, "--format", format)

    assert done.status == 1
    assert done.out == ""
    assert "error[E-RUN-033]: no credit\u241b[2J left" in done.err


def test_a_failure_does_not_hide_what_was_said(command: Command) -> None:
    done = command.run(FAILING)

    assert "half of it\n" in done.err


def test_text_of_a_run_steers_no_terminal_and_no_runner(command: Command) -> None:
    done = command.run(HOSTILE)

    assert done.out == "a\u241b[31m\n: :error::b\n## [group]c<U+202E><U+2028>\n"


def test_the_task_and_its_inputs_reach_the_harness(command: Command) -> None:
    (command.folder / "numbers.json").write_text("[1, 2]")
    (command.folder / "notes.txt").write_text("as I said")
    words = ["run", command.capsule(ECHOING), "-", *ADVISORY]
    inputs = ["--input", "numbers.json", "--input", "notes.txt"]
    done = command(*words, *inputs, "--context", "talk", stdin="größer".encode())
    result = json.loads(command("show", "@last", "--json").out)
    task = json.loads((Path(result["out_folder"]) / "task.json").read_text())

    assert done.status == 0
    assert task["context"] == "talk"
    assert task["message"]["parts"] == [
        {"type": "text", "text": "größer"},
        {"type": "data", "data": [1, 2], "name": "numbers.json"},
        {"type": "text", "text": "as I said", "name": "notes.txt"},
    ]


def test_variables_and_words_reach_the_harness(command: Command) -> None:
    harness = """
    read task
    echo "{\\"type\\":\\"turn-end\\",\\"result\\":\\"$GIVEN $OWN ${HIDDEN:-no} $*\\"}"
    """
    words = ["--env", "GIVEN=1=2", "--env", "OWN", "--", "-x", "y z"]
    done = command.run(harness, *words, env={"OWN": "mine", "HIDDEN": "yes"})

    assert done.out == "1=2 mine no -x y z\n"


def test_the_result_file_tells_how_it_ended(command: Command) -> None:
    done = command.run(HELLO, "--result", "result.json", "--context", "talk")
    result = json.loads((command.folder / "result.json").read_text())

    assert done.status == result["exit_code"] == 0
    assert result["run"] == done.err.split()[0]
    assert result["context"] == "talk"
    assert result["outcome"] == result["reason"] == "completed"
    assert result["response"] == "hello world"
    assert result["turns"] == 0 and result["tool_calls"] == 0
    assert result["out"] == [{"path": "result.txt", "size": 11}]
    assert result["created_at"] < result["ended_at"]
    assert result == json.loads(command("show", "@last", "--json").out)


def test_the_result_file_is_written_for_a_failure_too(command: Command) -> None:
    command.run(FAILING, "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())

    assert result["outcome"] == "failed"
    assert result["reason"] == "quota"
    assert result["exit_code"] == 1
    assert result["response"] is None


REFUSALS = [
    (("--task-file", "nowhere"), 2),
    (("--task", "go", "--model", "acme:new", "--max-usd", "1"), 2),
    (("--task", "go", "--max-turns", "0"), 3),
]


@pytest.mark.parametrize(("words", "status"), REFUSALS, ids=["no task", "no price", "no turn"])
@pytest.mark.parametrize("more", [(), ("--detach",)], ids=["here", "detached"])
def test_a_run_that_was_refused_leaves_a_result_too(
    command: Command, words: tuple[str, ...], status: int, more: tuple[str, ...]
) -> None:
    (command.folder / "result.json").write_text("of the run before")
    run = ("run", command.capsule(HELLO), *ADVISORY, "--result", "result.json")
    done = command(*run, *words, *more)
    result = json.loads((command.folder / "result.json").read_text())

    assert (done.status, result["exit_code"]) == (status, status)
    assert (result["run"], result["outcome"], result["reason"]) == (None, "refused", None)
    assert f"error[{result['code']}]: {result['message']}" in done.err
    assert result["hint"] in done.err


def test_what_cannot_be_parsed_leaves_no_result(command: Command) -> None:
    done = command.run(HELLO, "--result", "result.json", "--max-turns", "many")

    assert done.status == 2
    assert not (command.folder / "result.json").exists()


@pytest.mark.parametrize("before", ["old", None], ids=["target", "dangling"])
def test_the_result_goes_where_a_link_leads(command: Command, before: str | None) -> None:
    target, link = command.folder / "far" / "result.json", command.folder / "link"
    target.parent.mkdir()
    if before is not None:
        target.write_text(before)
    link.symlink_to("far/result.json")
    done = command.run(HELLO, "--result", "link")

    assert done.status == 0
    assert json.loads(target.read_text())["outcome"] == "completed"
    assert link.is_symlink()
    assert os.listdir(target.parent) == ["result.json"]


def test_the_longest_name_is_good_enough_for_a_result(command: Command) -> None:
    name = "n" * 255
    done = command.run(HELLO, "--result", name)

    assert done.status == 0
    assert json.loads((command.folder / name).read_text())["outcome"] == "completed"


def test_the_result_does_not_take_the_place_of_the_answer(command: Command) -> None:
    words = ["run", command.capsule(HELLO), "--task", "go", *ADVISORY, "--result", "both"]
    with (command.folder / "both").open("wb") as file:
        done = subprocess.run(
            [PROGRAM, *words],
            stdout=file,
            stderr=subprocess.PIPE,
            cwd=command.folder,
            env=command.env,
        )

    assert done.returncode == 2
    assert b"error[E-USE-028]: " in done.stderr
    assert b"stdout or stderr goes there" in done.stderr


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("mkfifo result", "it is not a regular file"),
        ("rm -r ../far && : > ../far", "Not a directory"),
    ],
    ids=["pipe", "gone"],
)
def test_a_place_for_the_result_that_the_harness_spoils_is_told(
    command: Command, deed: str, why: str
) -> None:
    place = command.folder / "far"
    place.mkdir()
    done = command.run(
        f'cd "$PLACE" && {deed}\n{HELLO}', "--result", "far/result", "--env", f"PLACE={place}"
    )

    assert done.status == 2
    assert f"far/result: {why}" in done.err
    assert "Traceback" not in done.err
    assert place.is_file() or os.listdir(place) == ["result"]


def test_files_too_deep_to_open_do_not_spoil_the_result(command: Command) -> None:
    script = (
        "import os; os.chdir(os.environ['CAPSULE_OUT'])\n"
        "for _ in range(150): os.mkdir('d' * 200); os.chdir('d' * 200); open('file', 'w').close()"
    )
    done = command.run(f'python3 -c "{script}"\n{HELLO}', "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())
    shown = command("show", "@last")

    assert done.status == 0
    assert result["out_is_cut"] is True
    assert max(len(file["path"]) for file in result["out"]) < 4096
    assert len(result["out"]) == 21
    assert "and what is not listed" in shown.out


def test_what_the_harness_says_that_it_cost_stands_beside_our_account(command: Command) -> None:
    report = (
        '{"type":"usage","model":"mock:model-1","input_tokens":9,"cost_usd":0.13,"call_id":"a"}'
    )
    command.run(f"echo '{report}'\necho '{report}'\n{HELLO}", "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())
    shown = command("show", "@last").out

    assert (result["harness_microusd"], result["harness_is_partial"]) == (130_000, False)
    assert result["cost"]["least_microusd"] == 0
    assert re.search(r"the harness says +\$0\.13", shown)


def test_a_harness_that_tells_dollars_of_some_calls_says_the_least_that_it_cost(
    command: Command,
) -> None:
    untold = '{"type":"usage","model":"mock:model-1","input_tokens":9,"call_id":"a"}'
    told = untold.replace('"a"', '"b","cost_usd":0.13')
    done = command.run(f"echo '{untold}'\necho '{told}'\n{HELLO}", "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())
    shown = command("show", "@last").out

    assert (result["harness_microusd"], result["harness_is_partial"]) == (130_000, True)
    assert re.search(r"the harness says +≥ \$0\.13", shown)
    assert done.err.splitlines()[-1].endswith("the harness says ≥ $0.13")


def test_only_regular_files_of_the_run_are_listed(command: Command) -> None:
    (command.folder / "foreign").mkdir()
    (command.folder / "foreign" / "secret").write_text("x")
    make = 'cd "$CAPSULE_OUT"; ln -s "$FOREIGN" link; ln -s "$FOREIGN/secret" file; mkfifo pipe'
    words = ("--env", f"FOREIGN={command.folder / 'foreign'}", "--result", "result.json")
    command.run(f"{make}\n{HELLO}", *words)
    listed = json.loads((command.folder / "result.json").read_text())
    command.run(f'rm -r "$CAPSULE_OUT"; ln -s "$FOREIGN" "$CAPSULE_OUT"\n{HELLO}', *words)
    instead = json.loads((command.folder / "result.json").read_text())

    assert [file["path"] for file in listed["out"]] == ["result.txt"]
    assert listed["out_is_cut"] is False
    assert instead["out"] == []


def test_no_more_than_10_000_files_are_listed(command: Command) -> None:
    make = 'cd "$CAPSULE_OUT"; seq 10001 | xargs touch'
    command.run(f"{make}\n{HELLO}", "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())

    assert len(result["out"]) == 10_000
    assert result["out_is_cut"] is True


def test_files_may_come_and_go_while_they_are_listed(tmp_path: Path) -> None:
    churn = "while :; do mkdir a a/b; touch a/b/1 2 3 4; echo; rm -r a 2 3 4; done"
    with subprocess.Popen(["sh", "-c", churn], cwd=tmp_path, stdout=subprocess.PIPE) as churning:
        assert churning.stdout is not None
        # Each line is one round of theirs, so the two go on side by side.
        listed = [list_out_files(tmp_path) for _ in range(100) if churning.stdout.readline()]
        churning.kill()

    assert {file.path for one in listed for file in one.files} <= {"a/b/1", "2", "3", "4"}
    assert not any(one.is_cut for one in listed)


@pytest.mark.parametrize("verb", ["kill", "interrupt", "show"])
def test_an_empty_word_means_no_run(command: Command, verb: str) -> None:
    cue = command.cue()
    words = ("run", command.capsule(ON_CUE), "--task", "go", *ADVISORY, "--env", f"CUE={cue}")
    with command.started(*words, "--format", "jsonl") as process:
        process.frame("text")
        done = command(verb, "")
        cue.write_text("now\n")
        run = process.done()

    assert done.status == 2
    assert done.err.startswith("error[E-USE-001]: ")
    assert run.status == 0


def test_deep_json_that_is_not_called_so_is_text(command: Command) -> None:
    (command.folder / "deep").write_text("[" * 1100 + "]" * 1100)
    done = command.run(HELLO, "--input", "deep")

    assert done.status == 0


@pytest.mark.parametrize(
    ("limit", "reason", "sentence"),
    [
        ('wall = "200ms"', "wall", "the run took longer than its wall limit of 0.2s"),
        ('output = "1KiB"', "output", "the harness wrote more than its limit of 1.0 KiB"),
    ],
    ids=["wall", "output"],
)
def test_a_limit_is_told_once_with_its_reason(
    command: Command, limit: str, reason: str, sentence: str
) -> None:
    folder = Path(command.capsule(f"{STUBBORN.replace('while', 'seq 1000; while')}"))
    with (folder / "capsule.toml").open("a") as file:
        file.write(limit)
    done = command("run", str(folder), "--task", "go", *ADVISORY)
    waited = command("wait", "@last")

    assert done.err.count(sentence) == 1
    assert f"■ stopping: {reason}\n" in done.err
    assert done.err.splitlines()[-1].startswith(f"✗ {sentence}  {reason} · ")
    assert waited.status == done.status
    assert waited.err == f"{done.err.split()[0]} has ended: {reason}: {sentence}\n"


@needs_mounts
def test_a_full_disk_keeps_nobody_from_reading(command: Command) -> None:
    """A dead owner's run cannot be ended then, but it can be seen."""
    script = """
    capsule=$1 folder=$2 room=$3
    mount -t tmpfs -o size=8m none "$room"
    mkfifo "$room/frames"
    "$capsule" run "$folder" --task go --containment advisory --format jsonl > "$room/frames" &
    exec 3< "$room/frames"
    read frame <&3
    kill -9 $!
    wait $!
    cat /dev/zero > "$room/fill"
    "$capsule" ps && "$capsule" ps --all && "$capsule" show @last
    """
    command.state.mkdir()
    done = subprocess.run(
        [
            "unshare",
            "-rm",
            "sh",
            "-c",
            script,
            "sh",
            PROGRAM,
            command.capsule(STUBBORN),
            command.state,
        ],
        capture_output=True,
        text=True,
        env=command.env,
    )

    assert done.returncode == 0
    assert done.stdout.count("running") == 3
    assert done.stderr.count("has no room left") == 3


def test_a_harness_that_waits_for_the_end_of_its_stdin_may_leave(command: Command) -> None:
    capsule = command.capsule(LEAVING_LAST, grace="30s")
    done = command("run", capsule, "--task", "go", *ADVISORY, "--result", "result.json")
    result = json.loads((command.folder / "result.json").read_text())

    assert done.status == 0
    assert [file["path"] for file in result["out"]] == ["left.txt", "result.txt"]


def test_a_timeout_ends_the_run(command: Command) -> None:
    done = command.run(STUBBORN, "--timeout", "200ms", "--format", "quiet")

    assert done.status == 124
    assert "wall limit of 0.2s" in done.err


def test_a_busy_context_is_refused_naming_the_run(command: Command) -> None:
    cue = command.cue()
    words = ("--context", "talk", "--env", f"CUE={cue}")
    first = ("run", command.capsule(ON_CUE), "--task", "go", *ADVISORY, *words)
    with command.started(*first, "--format", "jsonl") as process:
        run = process.frame("working")["run"]
        refused = command.run(ON_CUE, *words)
        cue.write_text("now\n")
        done = process.done()

    assert done.status == 0
    assert refused.status == 2
    assert refused.err.startswith("error[E-USE-010]: ")
    assert run in refused.err


def test_wait_starts_once_the_context_is_free(command: Command) -> None:
    cue = command.cue()
    words = ("--context", "talk", "--env", f"CUE={cue}")
    first = ("run", command.capsule(ON_CUE), "--task", "go", *ADVISORY, *words)
    with command.started(*first, "--format", "jsonl") as process:
        run = process.frame("inference")["run"]
        with command.started(*first, "--wait", "--format", "quiet") as waiting:
            notice = waiting.said("waiting for")
            cue.write_text("now\n")
            first_done = process.done()
            cue.write_text("now\n")
            second_done = waiting.done()

    assert run in notice
    assert first_done.status == 0
    assert (second_done.status, second_done.out) == (0, "done\n")


def test_both_streams_on_one_pipe_keep_their_order(command: Command) -> None:
    words = ["run", command.capsule(NARRATING), "--task", "go", *ADVISORY]
    done = subprocess.run(
        [PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=command.env
    )
    lines = done.stdout.decode().splitlines()

    assert lines[-3:-1] == ["All done.", ""]
    assert lines[-1].startswith("✓ completed")


def test_a_harness_that_is_not_there_is_refused(command: Command) -> None:
    folder = Path(command.capsule(HELLO))
    manifest = (folder / "capsule.toml").read_text()
    (folder / "capsule.toml").write_text(manifest.replace('"sh"', '"no-such-program"'))
    done = command("run", str(folder), "--task", "go", *ADVISORY)

    assert done.status == 8
    assert done.err.startswith("error[E-HAR-001]: ")


def test_what_init_writes_runs(command: Command) -> None:
    command("init", "agent")
    done = command("run", "agent", "--task", "go", "--workdir", ".", *ADVISORY)

    assert done.status == 0
    # It lies in what it works on, so that is a copy, without the state directory.
    assert done.out == "The work directory holds 1 files and folders.\n"


def test_a_full_disk_behind_stdout_interrupts_the_run(command: Command) -> None:
    words = ["run", command.capsule(STUBBORN), "--task", "go", *ADVISORY, "--format", "jsonl"]
    full = os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, env=command.env)
    os.close(full)

    assert done.returncode == 10
    assert b"E-HOST-021" in done.stderr
    assert "No space left" in command("logs", "@last", "--facts").out
