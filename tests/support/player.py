"""Play a recorded stdout through a driver and a run, in chunks of any size."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from capsule_runtime import Driver, Event, Exit, Frame, Note, Remember, Send, find_driver
from capsule_runtime.core.facts import Fact
from capsule_runtime.core.lines import LineBuffer
from support.script import Script

LINE_BYTES = 16 * 1024 * 1024
_LIBRARY_WORDS = re.compile(r"^(a line that is no event )\(.*?\)(?=: )", re.DOTALL)


def new_driver(name: str) -> Driver:
    """Return a driver for one attempt."""
    return find_driver(name)()


def chunks_of(stream: bytes, size: int) -> list[bytes]:
    """Cut *stream* into chunks of *size* bytes."""
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def hear(driver: Driver, chunks: Iterable[bytes]) -> list[list[Event]]:
    """Return what *driver* makes of *chunks*, by block of lines; no line may be over-long."""
    buffer, heard = LineBuffer(LINE_BYTES), list[list[Event]]()
    for lines in [*map(buffer.feed, chunks), buffer.close()]:
        assert not lines.skipped
        said = driver.receive(lines.block) if lines.block else ()
        heard.append([item for item in said if not isinstance(item, (Send, Remember))])
    return heard


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a transcript."""

    events: list[Event]
    entries: list[Frame | Fact]

    @property
    def frames(self) -> list[Frame]:
        """Return what a client sees."""
        return [entry for entry in self.entries if isinstance(entry, Frame)]


def play(driver: Driver, chunks: Iterable[bytes], exit: Exit) -> Played:
    """Play *chunks* and *exit* on a run whose clock stands still."""
    script, events = Script(), list[Event]()
    for block in hear(driver, chunks):
        events += block
        script.say(*block)
    last_words = () if script.run.has_terminal else tuple(driver.ended(exit))
    events += last_words
    script.end(*last_words, exit=exit)
    return Played(events, script.entries)


def exit_of(transcript: Path) -> Exit:
    """Return how the harness of *transcript* ended: `.exit` holds its code, or minus its signal.

    `.stderr`, if it is there, is what it wrote to its other output.
    """
    path, other = transcript.with_suffix(".exit"), transcript.with_suffix(".stderr")
    number = int(path.read_text()) if path.exists() else 0
    stderr = other.read_bytes() if other.exists() else b""
    return Exit(None, -number, stderr) if number < 0 else Exit(number, None, stderr)


def pinned(event: Event) -> Event:
    """Return *event* without the words of the JSON library, which change with its version."""
    if isinstance(event, Note):
        return Note(_LIBRARY_WORDS.sub(r"\1(…)", event.text, count=1))
    return event
