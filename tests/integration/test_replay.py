"""What a live run shows and what a replay of its output shows are the same bytes."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import anyio
import msgspec
import pytest

from capsule_runtime import Exit, StatusFrame, find_driver
from capsule_runtime.replay import replay_events, replay_frames
from capsule_runtime.supervisor import open_supervisor
from capsule_runtime.testing import FakeClock
from support.harness import agent_capsule
from support.logs import Log
from support.supervised import ended, request_for

_WORDS = ["", "a", "two words", "é€😀", "line\nbreak", "\x1b[31m", "x" * 5000]
_TOOLS = ["read", "make"]


def random_line(rng: random.Random) -> bytes:
    """Return one line as a harness may write it, well-formed or not."""
    word, tool = rng.choice(_WORDS), rng.choice(_TOOLS)
    event = rng.choice(
        [
            {"type": "text-delta", "text": word},
            {"type": "text-delta", "text": word},
            {"type": "text", "text": word},
            {"type": "text", "text": word, "answer": word},
            {"type": "thinking-delta", "text": word},
            {"type": "thinking", "text": word},
            {"type": "tool-call", "id": tool, "name": tool, "input": {"word": word}},
            {"type": "tool-result", "id": tool, "content": [word, None, 1.5], "exit_code": 1},
            {"type": "usage", "model": "m", "input_tokens": len(word)},
            {"type": "session", "id": word},
            {"type": "retrying", "attempt": 1, "reason": word},
            {"type": "permission", "id": tool, "tool": tool},
            {"type": "suspend", "id": tool, "reason": word, "input_schema": True},
            {"type": "activity", "text": word},
            {"type": "note", "text": word},
            "garbage",
        ]
    )
    return json.dumps(event, ensure_ascii=rng.random() < 0.5).encode() + b"\n"


def random_stream(seed: int) -> tuple[bytes, int]:
    """Return the output of a harness and the code it exits with."""
    rng = random.Random(seed)
    lines = [random_line(rng) for _ in range(rng.randrange(60))]
    result = rng.choice(_WORDS)
    end = rng.choice(
        [
            {"type": "turn-end", "result": result, "data": {"n": seed}},
            {"type": "turn-end", "result": result},
            {"type": "turn-failed", "kind": "quota", "message": result},
            None,
        ]
    )
    if end is not None:
        lines.insert(rng.randrange(len(lines) + 1), json.dumps(end).encode() + b"\n")
    stream = b"".join(lines)
    return (stream[:-1] if rng.random() < 0.2 else stream), rng.randrange(3)


async def test_a_live_run_and_a_replay_show_the_same_bytes(tmp_path: Path) -> None:
    clock = FakeClock()
    seen: list[tuple[int, str, Log]] = []

    async def play(seed: int) -> None:
        stream, code = random_stream(seed)
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(stream)
        capsule = agent_capsule(tmp_path / f"capsule-{seed}", "plays", str(path), str(code))
        run = await supervisor.start(request_for(capsule))
        seen.append((seed, run.context, await ended(run)))

    async with (
        open_supervisor(tmp_path / "state", clock=clock) as supervisor,
        anyio.create_task_group() as plays,
    ):
        for seed in range(25):
            plays.start_soon(play, seed)

    assert len(seen) == 25
    for seed, context, log in seen:
        stream, code = random_stream(seed)
        driver = find_driver("jsonl")()
        frames = replay_frames(
            driver,
            io.BytesIO(stream),
            Exit(code, None),
            run=log.final.run,
            context=context,
            moment=clock.moment(),
        )
        assert [msgspec.json.encode(frame) + b"\n" for frame in frames] == log.frame_lines


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_ends_with_one_final_status(seed: int) -> None:
    stream, code = random_stream(seed)

    frames = list(replay_frames(find_driver("jsonl")(), io.BytesIO(stream), Exit(code, None)))

    finals = [frame for frame in frames if isinstance(frame, StatusFrame) and frame.final]
    assert finals == [frames[-1]]


def test_a_replay_gives_the_events_of_the_stream_and_of_the_exit() -> None:
    stream = io.BytesIO(b'{"type":"text-delta","text":"half"}\nnot json\n')

    events = list(replay_events(find_driver("jsonl")(), stream, Exit(None, 9)))

    assert [msgspec.to_builtins(event)["type"] for event in events] == [
        "text-delta",
        "note",
        "turn-failed",
    ]


def test_a_replay_asks_no_driver_about_an_exit_that_was_announced() -> None:
    stream = io.BytesIO(b'{"type":"turn-end","result":"done"}\n')

    events = list(replay_events(find_driver("jsonl")(), stream, Exit(1, None)))

    assert [msgspec.to_builtins(event) for event in events] == [
        {"type": "turn-end", "result": "done"}
    ]


def test_a_replay_skips_a_line_that_is_too_long() -> None:
    long = b'{"type":"text-delta","text":"' + b"x" * (17 * 1024 * 1024) + b'"}\n'
    stream = io.BytesIO(long + b'{"type":"turn-end","result":"done"}\n')

    events = list(replay_events(find_driver("jsonl")(), stream, Exit(0, None)))

    assert [msgspec.to_builtins(event)["type"] for event in events] == [
        *("note", "note"),  # that it was too long, and how it began
        "turn-end",
    ]
