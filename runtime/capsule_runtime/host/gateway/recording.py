"""Write calls to a cassette as they end, and read one back."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.cassette import (
    MOST_BYTES,
    Cassette,
    Start,
    Unplayable,
    line_of,
    recorded,
)
from capsule_runtime.core.relaying import Ending, Header
from capsule_runtime.errors import UsageError
from capsule_runtime.host.gateway.contract import Meter

_MOST_OF_A_CASSETTE = 512 * 1024 * 1024


class Recorder:
    """A new cassette; nobody else may read it."""

    def __init__(self, path: Path) -> None:
        """Begin the file *path*.

        Raises:
            UsageError: E-USE-054, there is something already, or it cannot be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as exc:
            raise UsageError(
                "E-USE-054",
                f"no cassette can be written to {path}: {exc.strerror}",
                "Name a new file in a folder of yours.",
            ) from exc
        self._write(line_of(Start()))

    def close(self) -> None:
        """End the cassette. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def keep(self, call: Taping, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Write one call, whole.

        Raises:
            OSError: the disk refuses.
        """
        line = recorded(
            call.digest,
            call.api,
            call.model,
            streams=call.streams,
            status=status,
            headers=headers,
            body=body,
        )
        self._write(line_of(line))

    def _write(self, data: bytes) -> None:
        while data and self._file >= 0:
            data = data[os.write(self._file, data) :]


class Taping:
    """The meter of a call that is recorded: what the client gets of its answer is kept until its end.

    An answer that was cut off, or is too long, is not recorded.
    """

    def __init__(
        self,
        meter: Meter,
        recorder: Recorder,
        digest: str,
        api: Api,
        model: str,
        *,
        streams: bool,
        note: Callable[[str], Awaitable[None]],
    ) -> None:
        """*note* tells of a recording that breaks off."""
        self._note = note
        self.digest = digest
        self.api = api
        self.model = model
        self.streams = streams
        self._meter = meter
        self._recorder = recorder
        self._status = 0
        self._headers: Sequence[Header] = ()
        self._body: bytearray | None = bytearray()

    def head(self, status: int, headers: Sequence[Header]) -> None:
        self._status, self._headers = status, headers
        self._meter.head(status, headers)

    def chunk(self, data: bytes) -> bytes:
        passed = self._meter.chunk(data)
        if self._body is not None:
            self._body += passed
            if len(self._body) > MOST_BYTES:
                self._body = None
        return passed

    async def end(self, ending: Ending) -> None:
        await self._meter.end(ending)
        if ending is not Ending.COMPLETE or self._body is None:
            return
        try:
            self._recorder.keep(self, self._status, self._headers, bytes(self._body))
        except OSError as exc:
            # What was begun of a line is no line: nothing may follow it.
            self._recorder.close()
            await self._note(f"no more calls are recorded: {exc.strerror}")


def read_cassette(path: Path) -> Cassette:
    """Return the cassette in the file *path*.

    Raises:
        UsageError: E-USE-055, it is none, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_OF_A_CASSETTE + 1)
    except OSError as exc:
        raise _unplayable(path, exc.strerror or "it cannot be read") from exc
    if len(data) > _MOST_OF_A_CASSETTE:
        raise _unplayable(path, "it is too large")
    try:
        return Cassette.read(data)
    except Unplayable as exc:
        raise _unplayable(path, str(exc)) from exc


def _unplayable(path: Path, why: str) -> UsageError:
    return UsageError(
        "E-USE-055",
        f"the cassette {path} cannot be played: {why}",
        "Record it anew with --record FILE.",
    )
