"""What a harness can want of the broker: each is one call, understood."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect the socket *descriptor* to an *address*, as the caller wrote it."""

    descriptor: int
    address: bytes


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the socket *descriptor* to an *address*, as the caller wrote it."""

    descriptor: int
    address: bytes


@dataclass(frozen=True, slots=True)
class Listen:
    """Let others connect to the socket *descriptor*."""

    descriptor: int


@dataclass(frozen=True, slots=True)
class Subject:
    """The file that a call is about: a *path* from the folder *descriptor*, or *descriptor* itself.

    Without a descriptor, it is the folder that the caller is in.
    """

    descriptor: int | None
    path: bytes | None
    follow: bool = True


@dataclass(frozen=True, slots=True)
class Mode:
    mode: int


@dataclass(frozen=True, slots=True)
class Owner:
    """-1 leaves what is."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Times:
    """Of the last access and change, in seconds and nanoseconds; None: now."""

    times: tuple[tuple[int, int], tuple[int, int]] | None


@dataclass(frozen=True, slots=True)
class Attribute:
    """Give it an extended attribute; without a *value*, take it away."""

    name: bytes
    value: bytes | None
    flags: int = 0


Deed = Mode | Owner | Times | Attribute


@dataclass(frozen=True, slots=True)
class Change:
    """Change what is known of a file, not what it holds."""

    subject: Subject
    deed: Deed


@dataclass(frozen=True, slots=True)
class OpenTerminal:
    """Open the other end of the terminal whose master is *descriptor*; *flags* are those of `open`."""

    descriptor: int
    flags: int


Wanted = Connect | Bind | Listen | Change | OpenTerminal
"""What a caller can want."""
