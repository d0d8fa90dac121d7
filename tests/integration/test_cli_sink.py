"""The thread behind stdout: order, a bounded queue, and readers that are stuck or gone."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Generator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from capsule_runtime.cli.sink import QUEUE_BYTES, open_sink

pytestmark = pytest.mark.anyio

BLOCK = bytes(64 * 1024)
BLOCKS = 64  # more than a pipe and the queue hold together


@pytest.fixture
def pipe() -> Generator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        if Path(f"/proc/self/fd/{fd}").exists():
            os.close(fd)


def read_all(fd: int, size: int) -> bytes:
    """Read *size* bytes; this blocks and so runs in a thread."""
    data = b""
    while len(data) < size:
        data += os.read(fd, 1024 * 1024)
    return data


async def test_what_was_put_is_written_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    async with open_sink(writer) as sink:
        sink.put(b"one ")
        await sink.write(b"two ")
        sink.put(b"three")
        await sink.drained()

        assert sink.is_idle
    assert os.read(reader, 100) == b"one two three"


async def test_a_full_queue_makes_the_writer_wait_and_nobody_else(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    written = stuck_at = 0
    read = b""
    async with open_sink(writer) as sink, anyio.create_task_group() as tasks:

        async def write_all() -> None:
            nonlocal written
            for _ in range(BLOCKS):
                await sink.write(BLOCK)
                written += 1

        tasks.start_soon(write_all)
        while written * len(BLOCK) < QUEUE_BYTES:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        stuck_at = written
        read = await anyio.to_thread.run_sync(read_all, reader, BLOCKS * len(BLOCK))

    assert stuck_at < BLOCKS
    assert len(read) == BLOCKS * len(BLOCK)


async def test_a_reader_that_is_gone_is_told_and_costs_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    async with open_sink(writer) as sink:
        sink.put(b"for nobody")
        failure = await sink.failed()
        for _ in range(BLOCKS):
            await sink.write(BLOCK)
        await sink.drained()

    assert failure.errno == errno.EPIPE


async def test_a_stuck_reader_does_not_keep_us_from_leaving(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with anyio.fail_after(5):
        async with open_sink(writer) as sink:
            for _ in range(4):
                sink.put(BLOCK)

    # The thread is still in its write: let it end before the pipe is closed.
    await anyio.to_thread.run_sync(read_all, reader, 4 * len(BLOCK))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_loops_own_ctrl_c_while_leaving_does_not_hang_us(pipe: tuple[int, int]) -> None:
    """asyncio cancels the main task on SIGINT, and no shield of anyio's holds that off."""
    reader, writer = pipe
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        async with open_sink(writer) as sink:
            for _ in range(4):
                sink.put(BLOCK)
            asyncio.get_running_loop().call_soon(task.cancel)
    task.uncancel()

    # The thread is still in its write: let it end before the pipe is closed.
    await anyio.to_thread.run_sync(read_all, reader, 4 * len(BLOCK))


async def test_a_reader_that_leaves_is_noticed_though_nothing_is_written(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    async with open_sink(writer) as sink:
        os.close(reader)
        failure = await sink.failed()

    assert failure.errno == errno.EPIPE


async def test_what_comes_from_a_file_that_is_full_is_told() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    async with open_sink(full) as sink:
        sink.put(b"lost")
        failure = await sink.failed()
    os.close(full)

    assert failure.errno == errno.ENOSPC
