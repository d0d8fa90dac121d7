"""Recorded lines a second through driver -> run -> durable log -> JSONL sink, driver by driver.

Claude Code's are measured beside `json.loads` and the `parse_message` of claude-agent-sdk, where that
is installed. The driver is what compares with it: it decodes, and decides, keeps and shows nothing.

Run: python tests/bench/bench_drivers.py
"""

from __future__ import annotations

import importlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bench_pipeline import pipeline_rate
from support.player import new_driver

ROUNDS = 3
LINES = 600_000
BLOCK_BYTES = 64 * 1024
LEAST_LINES = 100_000
TIMES_THE_SDK = 2.0
TRANSCRIPTS = Path(__file__).parents[1] / "conformance/transcripts/claude-code"
_NUMBERED = re.compile(rb"(msg|toolu)_(\d{4})")


def recorded(lines: int) -> list[bytes]:
    """Return so many *lines* of two recorded turns, a long answer and a tool, over and over.

    Answers and tools get other ids each time, as in a session that goes on.
    """
    turns = [
        line
        for name in ("slow", "tool")
        for line in (TRANSCRIPTS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        if b'"type":"result"' not in line and b'"subtype":"init"' not in line
    ]
    rounds = range(lines // len(turns) + 1)
    numbered = (_NUMBERED.sub(rb"\1_%d_\2" % number, line) for number in rounds for line in turns)
    return [line for line, _ in zip(numbered, range(lines), strict=False)]


def blocks(lines: list[bytes]) -> Iterator[bytes]:
    """Yield *lines* in the blocks in which a pipe brings them."""
    block, size = list[bytes](), 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def driver_rate(lines: list[bytes]) -> float:
    """Return lines a second of the driver alone."""
    driver, read = new_driver("claude-code"), list(blocks(lines))
    started = time.perf_counter()
    for block in read:
        driver.receive(block)
    return len(lines) / (time.perf_counter() - started)


def sdk_rate(lines: list[bytes]) -> float | None:
    """Return lines a second of `json.loads` and the SDK's parser; None where it is not installed."""
    try:
        parser = importlib.import_module("claude_agent_sdk._internal.message_parser")
    except ImportError:
        return None
    parse: Callable[[object], object] = parser.parse_message
    texts = [line.decode() for line in lines]
    started = time.perf_counter()
    for text in texts:
        parse(json.loads(text))
    return len(lines) / (time.perf_counter() - started)


def printer(folder: Path, lines: list[bytes]) -> Path:
    """Write a capsule whose Claude Code is `cat`, with *lines* and the end of a turn to print."""
    end = (TRANSCRIPTS / "plain.jsonl").read_bytes().splitlines(keepends=True)[-1]
    (folder / "stream.jsonl").write_bytes(b"".join(lines) + end)
    (folder / "capsule.toml").write_text(
        'name = "printer"\n[harness]\ndriver = "claude-code"\n'
        'command = ["sh", "-c", "read -r task; exec cat \\"$0\\"", "./stream.jsonl"]\n'
        '[workdir]\nmode = "rw"\n[limits]\noutput = "4GiB"\n'
    )
    return folder


def main() -> None:
    """Measure, print, and fail if a bar is missed."""
    lines = recorded(LINES)
    size = sum(map(len, lines)) // len(lines)
    show(f"{len(lines)} recorded lines of {size} bytes on average, the median of {ROUNDS}")
    alone = statistics.median(driver_rate(lines) for _ in range(ROUNDS))
    show(f"claude-code, the driver alone       {alone:>12,.0f} lines/s")
    with tempfile.TemporaryDirectory() as folder:
        capsule = printer(Path(folder), lines)
        rates = [anyio.run(pipeline_rate, capsule, len(lines)) for _ in range(ROUNDS)]
    whole = statistics.median(rates)
    show(f"claude-code, harness to sink        {whole:>12,.0f} lines/s")
    assert whole >= LEAST_LINES, f"the bar is {LEAST_LINES:,} lines/s"
    if (beside := sdk_rate(lines)) is None:
        show("claude-agent-sdk is not installed: nothing to compare with")
        return
    show(f"json.loads and its parse_message    {beside:>12,.0f} lines/s")
    show(
        f"the driver is {alone / beside:.1f} times as fast, harness to sink {whole / beside:.1f} times"
    )
    assert alone >= TIMES_THE_SDK * beside, f"the driver's bar is {TIMES_THE_SDK} times the SDK"


def show(line: str) -> None:
    """Print *line* at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
