"""The helper that Python harnesses import: events out, the runtime's lines in."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capsule_runtime.agent import capsule_agent
from capsule_runtime.agent.capsule_agent import Agent, Interrupted, ProtocolError

SOURCE = Path(capsule_agent.__file__)
TASK: dict[str, Any] = {
    "type": "task",
    "protocol": 1,
    "run": "run_1",
    "message": {
        "id": "m1",
        "parts": [
            {"type": "text", "text": "first"},
            {"type": "data", "data": {"top": 3}, "name": "options"},
            {"type": "text", "text": "second"},
        ],
    },
    "context": "c1",
    "workdir": "/work",
    "out": "/out",
    "limits": {"wall": 900},
    "metadata": {"from": "test"},
}


class Wire:
    """An agent on pipes, and the runtime's ends of them."""

    def __init__(self) -> None:
        self._stdin, self._to_agent = os.pipe()
        self._from_agent, self._stdout = os.pipe()
        self.agent = Agent(self._stdin, self._stdout)
        self.open = {self._stdin, self._to_agent, self._from_agent, self._stdout}

    def say(self, *messages: object) -> None:
        for message in messages:
            self.say_raw(json.dumps(message).encode() + b"\n")

    def say_raw(self, raw: bytes) -> None:
        os.write(self._to_agent, raw)

    def hang_up(self) -> None:
        self._close(self._to_agent)

    def stop_reading(self) -> None:
        self._close(self._from_agent)

    def raw_lines(self, count: int) -> bytes:
        """Read *count* lines while the agent goes on."""
        with open(self._from_agent, "rb", closefd=False) as stream:
            return b"".join(stream.readline() for _ in range(count))

    def raw(self) -> bytes:
        """Close the agent's end and read all it said."""
        self._close(self._stdout)
        with open(self._from_agent, "rb", closefd=False) as stream:
            return stream.read()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw().splitlines()]

    def close(self) -> None:
        for end in list(self.open):
            self._close(end)

    def _close(self, end: int) -> None:
        self.open.remove(end)
        os.close(end)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_the_task_is_the_first_line(wire: Wire) -> None:
    wire.say(TASK)

    task = wire.agent.read_task()

    assert (task.run, task.id, task.context, task.session) == ("run_1", "m1", "c1", None)
    assert task.text == "first\n\nsecond"
    assert task.data == [{"top": 3}]
    assert task.parts[1]["name"] == "options"
    assert (task.workdir, task.out) == ("/work", "/out")
    assert (task.limits, task.metadata) == ({"wall": 900}, {"from": "test"})


@pytest.mark.parametrize("step", [1, 7, 64])
def test_lines_may_come_in_any_pieces(wire: Wire, step: int) -> None:
    steer = {"type": "steer", "id": "s1", "text": "größer"}
    stream = json.dumps(TASK).encode() + b"\n" + json.dumps(steer).encode() + b"\n"

    def send() -> None:
        for at in range(0, len(stream), step):
            wire.say_raw(stream[at : at + step])

    sender = threading.Thread(target=send)
    sender.start()
    task = wire.agent.read_task()
    sender.join()

    assert task.run == "run_1"
    assert [(steer.id, steer.text) for steer in wire.agent.steers()] == [("s1", "größer")]


def test_a_task_larger_than_a_pipe_arrives_whole(wire: Wire) -> None:
    text = "x" * 1_000_000
    message = {**TASK, "message": {"id": "m", "parts": [{"type": "text", "text": text}]}}
    sender = threading.Thread(target=wire.say, args=(message,))
    sender.start()

    task = wire.agent.read_task()
    sender.join()

    assert task.text == text


def test_stdin_that_ends_before_the_task_is_an_error(wire: Wire) -> None:
    wire.hang_up()

    with pytest.raises(ProtocolError, match="before a task"):
        wire.agent.read_task()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"type":"interrupt"}\n', "'interrupt'; a task is due"),
        (b'{"type":"task","protocol":2}\n', "protocol 2, not 1"),
        (b'{"type":"task","protocol":1}\n', "malformed"),
        (b"[]\n", "not a JSON object"),
        (b"hello\n", "not JSON"),
    ],
)
def test_a_first_line_that_is_no_task_is_refused(wire: Wire, line: bytes, complaint: str) -> None:
    wire.say_raw(line)

    with pytest.raises(ProtocolError, match=complaint):
        wire.agent.read_task()


def test_an_interrupt_is_seen_without_waiting(wire: Wire) -> None:
    wire.say(TASK)
    wire.agent.read_task()

    before = wire.agent.interrupted()
    wire.say({"type": "interrupt"})

    assert not before
    assert wire.agent.interrupted()
    assert wire.agent.interrupted(), "it stays"


def test_the_end_of_stdin_is_an_interrupt(wire: Wire) -> None:
    wire.say(TASK)
    wire.agent.read_task()
    wire.hang_up()

    assert wire.agent.interrupted()


def test_a_checkpoint_passes_broad_handlers(wire: Wire) -> None:
    wire.say(TASK, {"type": "interrupt"})
    wire.agent.read_task()

    assert not issubclass(Interrupted, Exception)
    with pytest.raises(Interrupted):
        wire.agent.checkpoint()


def test_steers_are_taken_once_and_answers_are_passed_over(wire: Wire) -> None:
    wire.say(TASK, {"type": "steer", "id": "s1", "text": "a"}, {"type": "ack", "id": "x"})
    wire.say({"type": "steer", "id": "s2", "text": "b"})
    wire.agent.read_task()

    assert [steer.id for steer in wire.agent.steers()] == ["s1", "s2"]
    assert wire.agent.steers() == []


SAID: list[tuple[Callable[[Agent], object], dict[str, Any]]] = [
    (lambda a: a.session("s"), {"type": "session", "id": "s"}),
    (
        lambda a: a.session("s", model="m", auth="key"),
        {"type": "session", "id": "s", "model": "m", "auth": "key"},
    ),
    (lambda a: a.delta("d"), {"type": "text-delta", "text": "d"}),
    (lambda a: a.say("t", answer="1"), {"type": "text", "text": "t", "answer": "1"}),
    (lambda a: a.think_delta("d"), {"type": "thinking-delta", "text": "d"}),
    (lambda a: a.think("t"), {"type": "thinking", "text": "t"}),
    (
        lambda a: a.tool_call("ls", None),
        {"type": "tool-call", "id": "call_1", "name": "ls", "input": None},
    ),
    (
        lambda a: a.tool_result("call_1", [1], is_error=True, exit_code=0),
        {
            "type": "tool-result",
            "id": "call_1",
            "content": [1],
            "is_error": True,
            "exit_code": 0,
        },
    ),
    (
        lambda a: a.usage("m", input_tokens=0, cost_usd=0.1, call_id="c"),
        {"type": "usage", "model": "m", "input_tokens": 0, "cost_usd": 0.1, "call_id": "c"},
    ),
    (
        lambda a: a.retrying(2, "busy", max=3),
        {"type": "retrying", "attempt": 2, "reason": "busy", "max": 3},
    ),
    (lambda a: a.activity("…"), {"type": "activity", "text": "…"}),
    (lambda a: a.note("n"), {"type": "note", "text": "n"}),
    (lambda a: a.turn_end("r"), {"type": "turn-end", "result": "r"}),
    (
        lambda a: a.turn_end("r", data={"n": None}),
        {"type": "turn-end", "result": "r", "data": {"n": None}},
    ),
    (
        lambda a: a.turn_failed("quota", "no more"),
        {"type": "turn-failed", "kind": "quota", "message": "no more"},
    ),
    (lambda a: a.send("handoff", id="h", to="x"), {"type": "handoff", "id": "h", "to": "x"}),
]


@pytest.mark.parametrize(("say", "event"), SAID)
def test_events_as_the_protocol_spells_them(
    wire: Wire, say: Callable[[Agent], object], event: dict[str, Any]
) -> None:
    say(wire.agent)

    assert wire.events() == [event]


def test_a_tool_block_sends_the_call_and_its_result(wire: Wire) -> None:
    with wire.agent.tool("count", {"in": "/"}) as call:
        call.result("3", exit_code=0)

    sent, result = wire.events()
    assert sent == {"type": "tool-call", "id": "call_1", "name": "count", "input": {"in": "/"}}
    assert result == {
        "type": "tool-result",
        "id": "call_1",
        "name": "count",
        "content": "3",
        "exit_code": 0,
    }


def test_a_tool_block_without_a_word_still_has_a_result(wire: Wire) -> None:
    with wire.agent.tool("touch", {}):
        pass

    assert wire.events()[1]["content"] == ""


def test_what_a_tool_block_raises_is_its_result_and_goes_on(wire: Wire) -> None:
    with pytest.raises(ValueError, match="odd"), wire.agent.tool("guess", {}):
        raise ValueError("odd")

    result = wire.events()[1]
    assert (result["content"], result["is_error"]) == ("ValueError: odd", True)


def test_a_result_given_before_the_exception_stands(wire: Wire) -> None:
    with pytest.raises(ValueError, match="late"), wire.agent.tool("guess", {}) as call:
        call.result("7")
        raise ValueError("late")

    assert [event.get("content") for event in wire.events()] == [None, "7"]


def test_a_name_that_is_not_utf8_becomes_a_line_that_every_reader_takes(wire: Wire) -> None:
    wire.agent.note("name: " + os.fsdecode(b"a\xffb"))
    wire.agent.note("pair: " + "\ud83d\ude00")

    assert wire.raw().decode().splitlines() == [
        '{"type":"note","text":"name: a\ufffdb"}',
        '{"type":"note","text":"pair: 😀"}',
    ]


def test_line_breaks_of_any_kind_stay_inside_the_line(wire: Wire) -> None:
    wire.agent.note("a\nb\rc\u2028d\x00")

    assert wire.raw().count(b"\n") == 1


UNSAYABLE: list[Callable[[Agent], object]] = [
    lambda a: a.turn_failed("tired", "x"),
    lambda a: a.usage("m", tokens=1),
    lambda a: a.usage("m", scope="week"),
    lambda a: a.tool_call("x", float("nan")),
]


@pytest.mark.parametrize("say", UNSAYABLE)
def test_what_the_protocol_does_not_know_is_refused_here(
    wire: Wire, say: Callable[[Agent], object]
) -> None:
    with pytest.raises(ValueError, match=r"choose from|Out of range"):
        say(wire.agent)

    assert wire.events() == []


def test_nothing_follows_the_terminal_event(wire: Wire) -> None:
    wire.agent.turn_end("done")

    with pytest.raises(ProtocolError, match="the turn has ended"):
        wire.agent.note("late")

    assert wire.agent.ended
    assert [event["type"] for event in wire.events()] == ["turn-end"]


def test_a_reader_that_left_ends_the_program(wire: Wire) -> None:
    wire.stop_reading()

    with pytest.raises(SystemExit):
        wire.agent.note("anyone?")


def test_threads_do_not_tear_lines(wire: Wire) -> None:
    text = "x" * 10_000

    def talk() -> None:
        for _ in range(50):
            wire.agent.note(text)

    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(wire.raw_lines(200)))
    talkers = [threading.Thread(target=talk) for _ in range(4)]
    for thread in (reader, *talkers):
        thread.start()
    for thread in (*talkers, reader):
        thread.join()

    assert [json.loads(line)["text"] for line in received[0].splitlines()] == [text] * 200


def _served(work: str, *lines: object) -> tuple[list[Any], int, str]:
    """Run a harness whose `work` has the given body; return its events, exit code, stderr."""
    program = f"import capsule_agent\ndef work(task, agent):\n    {work}\ncapsule_agent.serve(work)"
    stdin = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        timeout=30,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return events, done.returncode, done.stderr.decode()


def test_serve_ends_the_turn_with_what_work_returns() -> None:
    events, code, stderr = _served("return task.text.upper()", TASK)

    assert events == [{"type": "turn-end", "result": "FIRST\n\nSECOND"}]
    assert (code, stderr) == (0, "")


def test_serve_lets_work_end_the_turn_itself() -> None:
    events, code, _ = _served("agent.turn_failed('declined', 'not mine')", TASK)

    assert events == [{"type": "turn-failed", "kind": "declined", "message": "not mine"}]
    assert code == 0


def test_serve_fails_the_turn_with_what_work_raises() -> None:
    events, code, stderr = _served("1 / 0", TASK)

    assert [(event["type"], event["kind"]) for event in events] == [
        ("turn-failed", "harness-error")
    ]
    assert events[0]["message"] == "ZeroDivisionError: division by zero"
    assert code == 1
    assert "Traceback" in stderr


def test_serve_ends_an_interrupted_turn() -> None:
    body = "\n    ".join(["while True:", "    agent.checkpoint()"])

    events, code, stderr = _served(body, TASK, {"type": "interrupt"})

    assert events == [{"type": "turn-failed", "kind": "other", "message": "interrupted"}]
    assert (code, stderr) == (0, "")


def test_serve_reports_a_missing_task() -> None:
    events, code, _ = _served("return 'never'")

    assert events[0]["kind"] == "harness-error"
    assert code == 1


def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    readme = (SOURCE.parents[3] / "capsules" / "README.md").read_text()
    program = readme.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "file").write_text("")

    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        input=json.dumps({**TASK, "workdir": str(tmp_path)}) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        timeout=30,
        check=True,
    )

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1] == {"type": "turn-end", "result": "This folder holds 1 names."}


def test_the_helper_is_light_and_stands_alone() -> None:
    """No slow module, nothing of ours, and a grammar that Python 3.9 reads."""
    probe = f"""
import sys
sys.path.insert(0, {str(SOURCE.parent)!r})
import capsule_agent
print(*sorted(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", probe],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    loaded = set(done.stdout.split())

    assert loaded.isdisjoint({"typing", "dataclasses", "threading", "inspect", "asyncio"})
    assert not any(name.startswith("capsule_runtime") for name in loaded)
    assert ast.parse(SOURCE.read_text(), feature_version=(3, 9))
