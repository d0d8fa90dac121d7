"""The three streams of a harness, as the supervisor holds them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import anyio
from msgspec import Struct

from capsule_runtime.errors import HostError
from capsule_runtime.host.hub import CHUNK_BYTES, Hub, Take
from capsule_runtime.host.stdin import Stdin

if TYPE_CHECKING:
    from capsule_runtime.core.redactor import Redactor

WIDE_PIPE_BYTES = 1024 * 1024
STDERR_FILE_BYTES = 16 * 1024 * 1024
STDERR_TAIL_BYTES = 16 * 1024
_FILE_POLL_SECONDS = 0.02


class Output(Protocol):
    """One output stream of the harness, read to its end."""

    async def read(self) -> bytes:
        """Return the next chunk, or b"" at the end."""
        ...

    def offer(self, take: Take) -> None:
        """Offer small chunks to *take* before `read` returns them, where that saves anything."""
        ...

    def writer_gone(self) -> None:
        """Say that no process is left that could write."""
        ...

    def close(self) -> None:
        """Release the stream."""
        ...


class PipeOutput:
    """An output stream through a pipe."""

    def __init__(self, hub: Hub, fd: int) -> None:
        self._hub = hub
        self._fd = fd
        self._last_bytes = CHUNK_BYTES
        hub.add(fd)

    async def read(self) -> bytes:
        chunk = await self._hub.read(self._fd, self._last_bytes)
        self._last_bytes = len(chunk)
        return chunk

    def offer(self, take: Take) -> None:
        self._hub.offer(self._fd, take)

    def writer_gone(self) -> None:
        """Nothing to do: the kernel ends a pipe by itself."""

    def close(self) -> None:
        self._hub.remove(self._fd)
        os.close(self._fd)


class FileOutput:
    """An output stream through a file that the harness writes and we read behind it.

    Some harnesses leave before a small pipe has drained; a file takes everything at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._gone = anyio.Event()

    async def read(self) -> bytes:
        while True:
            was_gone = self._gone.is_set()
            if chunk := os.read(self._fd, CHUNK_BYTES):
                return chunk
            if was_gone:
                return b""
            with anyio.move_on_after(_FILE_POLL_SECONDS):
                await self._gone.wait()

    def offer(self, take: Take) -> None:
        """Nothing to do: a file is read in large pieces."""

    def writer_gone(self) -> None:
        self._gone.set()

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)


class StderrLog:
    """Keep the start of stderr in a file and its end in memory; drop the middle of a flood."""

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        """*redactor* is what keeps the secrets of the run out of it, if it has any."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as exc:
            raise HostError("E-HOST-004", f"cannot create {path}: {exc}") from exc
        self._redacted = redactor.byte_stream() if redactor else None
        self._room = STDERR_FILE_BYTES
        self._tail = b""
        self.dropped_bytes = 0

    @property
    def tail(self) -> bytes:
        """Return the last bytes, at most `STDERR_TAIL_BYTES`."""
        return self._tail

    def write(self, chunk: bytes) -> None:
        """Add *chunk*. A full disk costs what stderr says, not the run."""
        if self._redacted is not None:
            chunk = self._redacted.feed(chunk.decode("latin-1")).encode("latin-1")
        self._write(chunk)

    def finish(self) -> None:
        """Add what was held back because it might have become a secret."""
        if self._redacted is not None:
            self._write(self._redacted.flush().encode("latin-1"))

    def _write(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-STDERR_TAIL_BYTES:]
        kept = chunk[: self._room]
        self.dropped_bytes += len(chunk) - len(kept)
        self._room -= len(kept)
        while kept:
            try:
                kept = kept[os.write(self._fd, kept) :]
            except OSError:
                self.dropped_bytes += len(kept)
                self._room = 0
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class ChildEnds:
    """The ends that the harness gets. Close them once it has them, so that output can end."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self.stderr = -1

    def close(self) -> None:
        """Close them in this process; a second time does nothing."""
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd >= 0:
                os.close(fd)
        self.stdin = self.stdout = self.stderr = -1


class Stdio(Struct, frozen=True):
    """All six ends of one harness's streams."""

    stdin: Stdin
    stdout: Output
    stderr: Output
    child: ChildEnds

    def close(self) -> None:
        """Release what is still open."""
        with contextlib.ExitStack() as cleanup:  # each, also if one cannot be
            for end in (self.child, self.stdin, self.stdout, self.stderr):
                cleanup.callback(end.close)


@contextlib.contextmanager
def open_stdio(hub: Hub, folder: Path, *, wide_bytes: int | None = None) -> Generator[Stdio]:
    """Open the streams of one harness.

    With *wide_bytes* the stdout pipe holds that much, for harnesses that leave before a small one
    has drained; when the system refuses, a file in *folder* stands in for the pipe.

    Raises:
        HostError: the system refuses.
    """
    stdio = _open_all(hub, folder, wide_bytes)
    try:
        yield stdio
    finally:
        stdio.close()


def _open_all(hub: Hub, folder: Path, wide_bytes: int | None) -> Stdio:
    with contextlib.ExitStack() as cleanup_on_fail:
        child = ChildEnds()
        cleanup_on_fail.callback(child.close)
        try:
            child.stdin, our_in = os.pipe2(os.O_CLOEXEC)
            stdin = Stdin(our_in)
            cleanup_on_fail.callback(stdin.close)
            stdout, child.stdout = _open_stdout(hub, folder, wide_bytes)
            cleanup_on_fail.callback(stdout.close)
            our_err, child.stderr = os.pipe2(os.O_CLOEXEC)
            stderr = PipeOutput(hub, our_err)
        except OSError as exc:
            raise HostError("E-HOST-006", f"cannot open the harness's streams: {exc}") from exc
        cleanup_on_fail.pop_all()
        return Stdio(stdin, stdout, stderr, child)


def _open_stdout(hub: Hub, folder: Path, wide_bytes: int | None) -> tuple[Output, int]:
    ours, childs = os.pipe2(os.O_CLOEXEC)
    if wide_bytes is None or _widened(childs, wide_bytes):
        return PipeOutput(hub, ours), childs
    os.close(ours)
    os.close(childs)
    path = folder / "stdout"
    childs = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return FileOutput(path), childs
    except OSError:
        os.close(childs)
        raise


def _widened(fd: int, size: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
    except OSError:  # over the machine's or the user's limit
        return False
    return True
