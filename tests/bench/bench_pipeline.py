"""Events a second through line -> driver -> run -> durable log -> JSONL sink, against a bare decode.

Run: python tests/bench/bench_pipeline.py [asyncio|trio]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.reference_mix import reference_mix
from capsule_runtime import Event, Message, TextPart
from capsule_runtime.request import RunRequest
from capsule_runtime.supervisor import open_supervisor

ROUNDS = 5
CHUNK_BYTES = 64 * 1024
DELTA = b'{"type":"text-delta","text":"and a few words more of the answer"}\n'
END = b'{"type":"turn-end","result":"done"}\n'


def bare_decode_rate(stream: bytes) -> float:
    """Return lines a second of nothing but a typed decode, chunk by chunk."""
    decoder = msgspec.json.Decoder(Event)
    lines: list[bytes] = []
    rest, count = b"", 0
    for start in range(0, len(stream), CHUNK_BYTES):
        chunk = rest + stream[start : start + CHUNK_BYTES]
        end = chunk.rfind(b"\n") + 1
        lines.append(chunk[:end])
        rest = chunk[end:]
    started = time.perf_counter()
    for block in lines:
        count += len(decoder.decode_lines(block))
    return count / (time.perf_counter() - started)


def capsule_that_prints(folder: Path, stream: bytes) -> Path:
    """Write a capsule whose harness prints *stream* as fast as a pipe takes it."""
    (folder / "stream.jsonl").write_bytes(stream + END)
    (folder / "capsule.toml").write_text(
        'name = "printer"\n[harness]\ndriver = "jsonl"\n'
        'command = ["sh", "-c", "read -r task; exec cat \\"$0\\"", "./stream.jsonl"]\n'
        '[workdir]\nmode = "rw"\n[limits]\noutput = "4GiB"\n'
    )
    return folder


async def pipeline_rate(capsule: Path, lines: int) -> float:
    """Return lines a second from the harness's start to the sink's last byte."""
    sink: SimpleQueue[bytes | None] = SimpleQueue()
    thread = threading.Thread(target=_write_all, args=(sink,))
    thread.start()
    with tempfile.TemporaryDirectory() as state:
        async with open_supervisor(Path(state)) as supervisor:
            message = Message("m", (TextPart("print"),))
            key = {"ANTHROPIC_API_KEY": "none"}  # some drivers start nothing without one
            request = RunRequest(capsule, message, capsule, containment="advisory", env=key)
            started = time.perf_counter()
            run = await supervisor.start(request)
            async for row in run.follow():
                sink.put(row.frames())
            sink.put(None)
            thread.join()
            took = time.perf_counter() - started
            record = await run.wait()
            assert record.outcome == "completed", record.reason
    return lines / took


def _write_all(sink: SimpleQueue[bytes | None]) -> None:
    out = os.open("/dev/null", os.O_WRONLY)
    while (body := sink.get()) is not None:
        os.write(out, body)
    os.close(out)


def fdatasync_ms(folder: Path) -> float:
    """Return the median of `fdatasync` after a 4 KiB append there."""
    took: list[float] = []
    with (folder / "probe").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - started) * 1000)
    return statistics.median(took)


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "asyncio"
    mixes: dict[str, Callable[[], bytes]] = {
        "text deltas": lambda: DELTA * 600_000,
        "reference mix": lambda: reference_mix(200) * 30,
    }
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        say(f"{backend}; fdatasync p50 {fdatasync_ms(Path(folder)):.2f} ms\n")
        for name, make in mixes.items():
            stream = make()
            lines = stream.count(b"\n")
            capsule = capsule_that_prints(Path(folder), stream)
            bare: list[float] = []
            whole: list[float] = []
            for _ in range(ROUNDS):
                bare.append(bare_decode_rate(stream))
                whole.append(anyio.run(pipeline_rate, capsule, lines, backend=backend))
            ours, theirs = statistics.median(whole), statistics.median(bare)
            say(
                f"{name}: {lines} lines of {len(stream) // lines} B: {ours:,.0f} lines/s durable "
                f"(min {min(whole):,.0f}), bare typed decode {theirs:,.0f}/s, {ours / theirs:.1%}\n"
            )


if __name__ == "__main__":
    main()
