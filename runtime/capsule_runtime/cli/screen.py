"""stdout and stderr of this process while a run is shown.

stdout carries the answer and nothing else; stderr carries lines about the run. When both lead to
the same terminal (or pipe) they share one sink, so that they keep their order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

import anyio
import anyio.to_thread

from capsule_runtime.cli.lines import Line, PlainRenderer, Renderer
from capsule_runtime.cli.output import STDERR, STDOUT, is_plain, is_same_file, refused
from capsule_runtime.cli.printer import Shown
from capsule_runtime.cli.sink import Sink, open_sink

if TYPE_CHECKING:
    from capsule_runtime.cli.live import LiveRenderer


class _Kind(Enum):
    ANSWER = auto()
    LINES = auto()


class Screen:
    """Where a view writes. Made by `open_screen`."""

    draws_status: ClassVar[bool] = False
    """Whether there is a status line."""

    def __init__(self, out: Sink, err: Sink, renderer: Renderer | None = None) -> None:
        self.out = out
        self._err = err
        self._shares_rows = out is err
        self._is_mid_line = False
        self._shows: _Kind | None = None
        self._renderer = renderer or PlainRenderer()

    async def data(self, data: bytes) -> None:
        """Write bytes that are not for people to stdout."""
        await self.out.write(data)

    async def answer(self, text: Shown) -> None:
        """Write a piece of the answer to stdout."""
        if text:
            wiped = self._wiped() if self._shares_rows else ""
            await self.out.write((wiped + self._turn_to(_Kind.ANSWER) + text).encode())
            self._is_mid_line = not text.endswith("\n")

    async def end_answer_row(self) -> None:
        """End the row that the answer left unfinished."""
        if self._is_mid_line:
            self._is_mid_line = False
            await self.out.write(b"\n")

    async def entry(self, head: Line, tail: Line = ()) -> None:
        """Write one row about the run to stderr; where it is too long, *head* is cut."""
        row = (await self._prepared()).entry(head, tail)
        await self._err.write((self._free_row() + row).encode())

    async def whole(self, line: Line) -> None:
        """Write *line* to stderr, however many rows it takes."""
        rows = (await self._prepared()).whole(line)
        await self._err.write((self._free_row() + rows).encode())

    def notice(self, line: Line) -> None:
        """Write *line* to stderr without waiting for a slow reader."""
        self._err.put((self._free_row() + self._renderer.whole(line)).encode())

    def row(self, row: Shown) -> None:
        """Write a whole *row* to stderr as it is, without waiting for a slow reader."""
        self._err.put((self._free_row() + row).encode())

    def status(self, line: Line) -> None:
        """Draw *line* as the last row, on a terminal that has one to spare."""

    async def drained(self) -> None:
        """Wait until all that went to stdout is written, or cannot be."""
        await self.out.drained()

    async def _prepared(self) -> Renderer:
        """Return what renders lines, once it is there."""
        return self._renderer

    def _free_row(self) -> str:
        """Return what makes the current row free for a line of ours."""
        if self._shares_rows and self._is_mid_line:
            self._is_mid_line = False
            return "\n" + self._turn_to(_Kind.LINES)
        return self._wiped() + self._turn_to(_Kind.LINES)

    def _turn_to(self, kind: _Kind) -> str:
        """Return what sets off the answer from lines about the run, where they meet."""
        before, self._shows = self._shows, kind
        return "\n" if self._shares_rows and before not in (None, kind) else ""

    def _wiped(self) -> str:
        return ""


class LiveScreen(Screen):
    """A screen whose stderr is a real terminal, with a status line."""

    draws_status = True

    def __init__(self, out: Sink, err: Sink) -> None:
        super().__init__(out, err)
        self._live: LiveRenderer | None = None
        self._is_status_drawn = False

    def status(self, line: Line) -> None:
        is_mid_line = self._shares_rows and self._is_mid_line
        if self._live is not None and self._err.is_idle and not is_mid_line:
            self._is_status_drawn = True
            self._err.put(self._live.status(line).encode())

    async def _prepared(self) -> Renderer:
        if self._live is None:
            # rich takes a while to import: the harness is started meanwhile.
            self._renderer = self._live = await anyio.to_thread.run_sync(_load_renderer)
        return self._live

    def _wiped(self) -> str:
        was_drawn, self._is_status_drawn = self._is_status_drawn, False
        return self._live.wiped() if self._live is not None and was_drawn else ""


def _load_renderer() -> LiveRenderer:
    from capsule_runtime.cli.live import LiveRenderer

    return LiveRenderer()


@asynccontextmanager
async def open_screen(renderer: Renderer | None = None) -> AsyncGenerator[Screen]:
    """Open stdout and stderr for a view, with a status line where one can be drawn.

    With a *renderer* of the caller's there is none, and stderr is what that makes of it.

    Raises:
        HostError: on leaving, when something was lost because stdout could not be written. A
            reader who left or hung up is no loss.
    """
    is_terminal = os.isatty(STDOUT)  # asked now: one that has hung up is none any more
    async with open_sink(STDOUT) as out, _open_err(out) as err:
        if renderer is not None or is_plain(STDERR):
            yield Screen(out, err, renderer)
        else:
            yield LiveScreen(out, err)
    if (failure := out.failure) is None or isinstance(failure, ConnectionError):
        return
    if not (is_terminal and failure.errno == errno.EIO):
        raise refused(failure)


@asynccontextmanager
async def _open_err(out: Sink) -> AsyncGenerator[Sink]:
    if is_same_file(STDOUT, STDERR):
        yield out
        return
    async with open_sink(STDERR) as err:
        yield err
