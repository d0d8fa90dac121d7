"""The three streams of a harness, from the supervisor's side: pipes, the file in place of one."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import anyio
import anyio.lowlevel
import pytest

from capsule_runtime import HostError
from capsule_runtime.core.redactor import Redactor
from capsule_runtime.host.hub import SHARED_CHUNK_BYTES, Hub
from capsule_runtime.host.stdin import WAITING_BYTES, Stdin
from capsule_runtime.host.stdio import (
    STDERR_FILE_BYTES,
    STDERR_TAIL_BYTES,
    WIDE_PIPE_BYTES,
    FileOutput,
    Output,
    PipeOutput,
    StderrLog,
    open_stdio,
)

MORE_THAN_A_PIPE_HOLDS = 1 << 31


@pytest.fixture
async def hub() -> AsyncGenerator[Hub]:
    hub = Hub()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.run)
        yield hub
        tasks.cancel_scope.cancel()
    hub.close()


async def read_all(output: Output) -> bytes:
    found = b""
    while chunk := await output.read():
        found += chunk
    return found


def begin_nothing(_work: object) -> None:
    raise AssertionError("all of it fits into the pipe")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_the_streams_lead_from_one_side_to_the_other(hub: Hub, tmp_path: Path) -> None:
    with open_stdio(hub, tmp_path) as stdio:
        stdio.stdin.send(b"task\n")
        stdio.stdin.end()
        stdio.stdin.serve(begin_nothing)
        heard = os.read(stdio.child.stdin, 100), os.read(stdio.child.stdin, 100)
        os.write(stdio.child.stdout, b"out")
        os.write(stdio.child.stderr, b"err")
        stdio.child.close()
        said = await read_all(stdio.stdout), await read_all(stdio.stderr)

    assert heard == (b"task\n", b"")
    assert said == (b"out", b"err")


async def test_nothing_stays_open(hub: Hub, tmp_path: Path) -> None:
    before = open_descriptors()
    with open_stdio(hub, tmp_path), StderrLog(tmp_path / "stderr.log"):
        assert open_descriptors() > before
    with open_stdio(hub, tmp_path, wide_bytes=MORE_THAN_A_PIPE_HOLDS):
        assert open_descriptors() > before
    with pytest.raises(HostError, match="cannot open the harness's streams"):
        with open_stdio(hub, tmp_path / "nowhere", wide_bytes=MORE_THAN_A_PIPE_HOLDS):
            pass
    with pytest.raises(HostError, match="cannot create"):
        StderrLog(tmp_path / "nowhere" / "stderr.log")

    assert open_descriptors() == before


async def test_a_wide_pipe_takes_a_large_output_at_once(hub: Hub, tmp_path: Path) -> None:
    with open_stdio(hub, tmp_path, wide_bytes=WIDE_PIPE_BYTES) as stdio:
        assert isinstance(stdio.stdout, PipeOutput)
        assert fcntl.fcntl(stdio.child.stdout, fcntl.F_GETPIPE_SZ) == WIDE_PIPE_BYTES
        os.set_blocking(stdio.child.stdout, False)
        written = os.write(stdio.child.stdout, b"x" * WIDE_PIPE_BYTES)
        stdio.child.close()
        read = await read_all(stdio.stdout)

    assert written == len(read) == WIDE_PIPE_BYTES


async def test_a_file_stands_in_for_a_pipe_that_the_system_refuses(
    hub: Hub, tmp_path: Path
) -> None:
    parts = [bytes([number]) * 100_000 for number in range(30)]
    with open_stdio(hub, tmp_path, wide_bytes=MORE_THAN_A_PIPE_HOLDS) as stdio:
        assert isinstance(stdio.stdout, FileOutput)
        read = b""
        for part in parts:
            os.write(stdio.child.stdout, part)
            read += await stdio.stdout.read()
        stdio.child.close()
        stdio.stdout.writer_gone()
        read += await read_all(stdio.stdout)

    assert read == b"".join(parts)
    assert os.listdir(tmp_path) == []


async def test_a_file_is_read_while_it_grows(hub: Hub, tmp_path: Path) -> None:
    read: list[bytes] = []

    async def reading() -> None:
        while chunk := await stdio.stdout.read():
            read.append(chunk)
            arrived.set()

    with open_stdio(hub, tmp_path, wide_bytes=MORE_THAN_A_PIPE_HOLDS) as stdio:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading)
            for word in (b"one", b"two"):
                arrived = anyio.Event()
                os.write(stdio.child.stdout, word)
                await arrived.wait()
            stdio.stdout.writer_gone()

    assert read == [b"one", b"two"]


async def test_many_pipes_share_one_hub_and_mix_nothing(hub: Hub) -> None:
    rng = random.Random(1)
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(100)]
    sent: dict[int, bytes] = dict.fromkeys(range(100), b"")
    read: dict[int, bytes] = {}

    async def reading(number: int) -> None:
        output = PipeOutput(hub, pipes[number][0])
        read[number] = await read_all(output)
        output.close()

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(reading, number)
        for _ in range(2000):
            number, data = rng.randrange(100), rng.randbytes(rng.randrange(1, 400))
            sent[number] += data
            os.write(pipes[number][1], data)
            await anyio.lowlevel.checkpoint()
        for _, writer in pipes:
            os.close(writer)

    assert read == sent


async def test_a_pipe_that_has_ended_and_nobody_reads_wakes_nobody(hub: Hub) -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    output = PipeOutput(hub, reader)
    os.write(writer, b"unread")
    os.close(writer)
    before = getrusage(RUSAGE_SELF).ru_nvcsw
    await anyio.sleep(0.5)  # what is measured is how often this is disturbed
    awoken = getrusage(RUSAGE_SELF).ru_nvcsw - before
    output.close()

    assert awoken < 50


async def test_a_cancelled_reader_may_read_on(hub: Hub) -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    output = PipeOutput(hub, reader)
    with anyio.move_on_after(0.01) as waiting:
        await output.read()
    os.write(writer, b"late")
    os.close(writer)
    read = await read_all(output)
    output.close()

    assert waiting.cancelled_caught
    assert read == b"late"


async def test_stdin_keeps_what_the_harness_does_not_read_yet() -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    stdin = Stdin(writer)
    data = random.Random(2).randbytes(1_000_000)
    received = b""
    async with anyio.create_task_group() as tasks:
        stdin.serve(tasks.start_soon)
        stdin.send(data[:900_000])
        stdin.send(data[900_000:])
        stdin.end()
        stdin.send(b"after the end")
        os.set_blocking(reader, False)
        while len(received) < len(data):
            await anyio.wait_readable(reader)
            received += os.read(reader, 100_000)
    ending = os.read(reader, 100)
    os.close(reader)

    assert received == data
    assert ending == b""
    assert stdin.dropped_bytes == 0


async def test_stdin_lets_a_task_of_any_size_in_and_then_only_so_much() -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    stdin = Stdin(writer)
    stdin.send(b"t" * 5 * WAITING_BYTES)
    stdin.send(b"answer")
    stdin.close()
    os.close(reader)

    assert stdin.dropped_bytes == len(b"answer")


async def test_stdin_ends_in_peace_when_nobody_reads_any_more() -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    stdin = Stdin(writer)
    async with anyio.create_task_group() as tasks:
        stdin.serve(tasks.start_soon)
        stdin.send(b"x" * 100_000)
        await anyio.wait_readable(reader)
        os.close(reader)
    stdin.send(b"too late")
    stdin.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)


def test_stderr_keeps_its_beginning_in_a_file_and_its_end_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    chunks = [bytes([number % 256]) * 65536 for number in range(300)]
    with StderrLog(path) as log:
        for chunk in chunks:
            log.write(chunk)
        log.write(b"the end")

    whole = b"".join(chunks) + b"the end"
    assert path.read_bytes() == whole[:STDERR_FILE_BYTES]
    assert log.tail == whole[-STDERR_TAIL_BYTES:]
    assert log.dropped_bytes == len(whole) - STDERR_FILE_BYTES


@pytest.mark.parametrize("cut", range(1, 40))
def test_stderr_keeps_no_secret_however_it_was_read(tmp_path: Path, cut: int) -> None:
    path, written = tmp_path / "stderr.log", b"the key is correct-horse, the cor"
    with StderrLog(path, Redactor({"KEY": "correct-horse"})) as log:
        for chunk in (written[:cut], written[cut:]):
            log.write(chunk)
        assert b"horse" not in path.read_bytes()
        log.finish()

    assert path.read_bytes() == log.tail == b"the key is [redacted KEY], the cor"


def test_a_full_disk_costs_only_what_stderr_says() -> None:
    with StderrLog(Path("/dev/full")) as log:
        log.write(b"first")
        log.write(b"second")

    assert log.tail == b"firstsecond"
    assert log.dropped_bytes == len(b"firstsecond")


async def test_a_small_chunk_is_taken_in_the_round_while_its_reader_sleeps_on() -> None:
    hub = Hub()
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    output = PipeOutput(hub, ours)
    taken: list[bytes] = []
    read: list[bytes] = []
    happened = anyio.Event()

    def take(chunk: bytes) -> bool:
        taken.append(chunk)
        happened.set()
        return chunk != b"left"

    async def read_all() -> None:
        while chunk := await output.read():
            read.append(chunk)
            happened.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.run)
        output.offer(take)
        async with anyio.create_task_group() as reading:
            reading.start_soon(read_all)
            for words in (b"the first is read at once", b"small", b"left"):
                happened = anyio.Event()
                os.write(theirs, words)
                await happened.wait()
            os.close(theirs)
        tasks.cancel_scope.cancel()
    output.close()
    hub.close()

    assert taken == [b"small", b"left"]
    assert read == [b"the first is read at once", b"left"]


async def test_a_flood_is_read_in_small_pieces_while_others_are_ready() -> None:
    hub = Hub()
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
    outputs = [PipeOutput(hub, ours) for ours, _ in pipes]
    pieces: list[int] = []

    async def read_twice(output: Output) -> None:
        await output.read()  # the first is read as soon as somebody wants it
        pieces.append(len(await output.read()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.run)
        async with anyio.create_task_group() as reading:
            for output, (_, theirs) in zip(outputs, pipes, strict=True):
                os.write(theirs, b"the first")
                reading.start_soon(read_twice, output)
            await anyio.wait_all_tasks_blocked()
            for _, theirs in pipes:
                os.write(theirs, bytes(60_000))
        tasks.cancel_scope.cancel()
    for output, (_, theirs) in zip(outputs, pipes, strict=True):
        output.close()
        os.close(theirs)
    hub.close()

    assert pieces == [SHARED_CHUNK_BYTES] * 2
