"""Play a recorded stdout through a driver and a run: no process, no clock, no store.

The frames are those of a live run, byte for byte, but for the instants and the run's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

from capsule_runtime.core.actions import Action, Burial, Progress
from capsule_runtime.core.journal import Append, Moment, Position
from capsule_runtime.core.lines import HEAD_BYTES, LineBuffer, Lines
from capsule_runtime.core.run import Run
from capsule_runtime.driver import Said
from capsule_runtime.events import Event, Note, TurnEnd, TurnFailed, Usage
from capsule_runtime.frames import Frame
from capsule_runtime.messages import Exit, Remember, Send

RUN = "run_00000000000070008000000000000000"
CONTEXT = "replay"
REPLAYED = Moment("1970-01-01T00:00:00.000000Z", 0.0)
_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 16 * 1024 * 1024
# A live log begins with three facts, `created`, `attempt-started` and `contained`.
_BEFORE = Progress(position=Position(seq=3))


class Listener(Protocol):
    """What a replay needs of a driver."""

    def receive(self, lines: bytes) -> Sequence[Said]:
        """Return what complete *lines* stand for."""
        ...

    def ended(self, exit: Exit) -> Sequence[Event]:
        """Return the last events, if none was terminal."""
        ...


class Attentive:
    """A driver of which one wants to know whether the recording was one of its harness."""

    def __init__(self, driver: Listener) -> None:
        self._driver = driver
        self.has_heard = False
        """Whether there was anything in the recording."""
        self.has_understood = False
        """Whether a line of it was an event: no note, and no report that could not be read."""

    def receive(self, lines: bytes) -> Sequence[Said]:
        """Return what the driver makes of *lines*."""
        said = self._driver.receive(lines)
        self.has_heard = self.has_heard or not lines.isspace()
        self.has_understood = self.has_understood or any(map(_is_understood, said))
        return said

    def ended(self, exit: Exit) -> Sequence[Event]:
        """Return what the driver makes of *exit*, which every driver understands."""
        return self._driver.ended(exit)


def _is_understood(said: Said) -> bool:
    if isinstance(said, Usage):
        return said != Usage(said.model, call_id=said.call_id, scope=said.scope)
    return not isinstance(said, Note | Send | Remember)


def replay_events(driver: Listener, stream: BinaryIO, exit: Exit) -> Iterator[Event]:
    """Yield the events that *driver* makes of *stream*, and of *exit* if none was terminal."""
    has_terminal = False
    for events in _batches(driver, stream):
        has_terminal = has_terminal or any(isinstance(e, (TurnEnd, TurnFailed)) for e in events)
        yield from events
    if not has_terminal:
        yield from driver.ended(exit)


def replay_frames(
    driver: Listener,
    stream: BinaryIO,
    exit: Exit,
    *,
    run: str = RUN,
    context: str = CONTEXT,
    moment: Moment = REPLAYED,
) -> Iterator[Frame]:
    """Yield the frames that a run of *stream* shows."""
    state = Run(run, context, _BEFORE)
    yield from _frames(state.launched(0, moment))
    for events in _batches(driver, stream):
        yield from _frames(state.receive(events, moment))
    words = () if state.has_terminal else driver.ended(exit)
    yield from _frames(state.end(exit, Burial(0, 0, 0), words, moment))


def _batches(driver: Listener, stream: BinaryIO) -> Iterator[Sequence[Event]]:
    lines = LineBuffer(_LINE_BYTES, HEAD_BYTES)
    while chunk := stream.read(_CHUNK_BYTES):
        yield _events(driver, lines.feed(chunk))
    yield _events(driver, lines.close())


def _events(driver: Listener, lines: Lines) -> list[Event]:
    notes: list[Event] = [Note(f"a line of {size} bytes was skipped") for size in lines.skipped]
    said: Sequence[Said] = driver.receive(lines.block) if lines.block else ()
    return notes + [item for item in said if not isinstance(item, (Send, Remember))]


def _frames(actions: list[Action]) -> Iterator[Frame]:
    for action in actions:
        if isinstance(action, Append):
            yield from (entry for entry in action.entries if isinstance(entry, Frame))
