"""What passes between the runtime and a driver beside events, as values."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class TextPart(Struct, frozen=True, tag_field="type", tag="text", omit_defaults=True):
    """Words of the task, or a text file handed in beside it (then it has a *name*)."""

    text: str
    name: str | None = None


class DataPart(Struct, frozen=True, tag_field="type", tag="data", omit_defaults=True):
    """A JSON value handed in beside the task."""

    data: object
    name: str | None = None


Part = TextPart | DataPart
"""Every kind of part a task message may have."""


class Message(Struct, frozen=True):
    """The task as it was given."""

    id: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Return the words of the task, for harnesses that take one prompt."""
        return "\n\n".join(part.text for part in self.parts if isinstance(part, TextPart))


class Send(Struct, frozen=True):
    """Bytes for the harness's stdin."""

    data: bytes


class Remember(Struct, frozen=True):
    """At most 64 KiB kept with the context and handed back as `memory` at the next launch."""

    data: bytes


class Ack(Struct, frozen=True):
    """Yes: the job was taken."""

    job: str


class Answer(Struct, frozen=True):
    """The answer to what was asked; *input* is any JSON value."""

    input: object


class Refused(Struct, frozen=True):
    """No, and why."""

    code: str
    message: str


Decision = Ack | Answer | Refused
"""Every way a request of the harness is answered."""


class Exit(Struct, frozen=True):
    """How the harness's process ended: a code or a signal, and the end of its stderr."""

    code: int | None
    signal: int | None
    stderr_tail: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
