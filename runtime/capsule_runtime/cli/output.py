"""Write what a verb has to say, at once, and know whether a terminal reads it."""

from __future__ import annotations

import os

import msgspec

from capsule_runtime.cli.failures import ReaderGone
from capsule_runtime.cli.printer import Shown, shown_json
from capsule_runtime.errors import HostError

STDOUT, STDERR = 1, 2

_encoder = msgspec.json.Encoder(enc_hook=str)


def write_stdout(text: Shown) -> None:
    """Write *text* to stdout.

    Raises:
        ReaderGone: nobody reads it.
    """
    write_bytes(text.encode())


def write_json(value: object) -> None:
    """Write *value* to stdout as JSON, for a program or a curious person.

    Raises:
        ReaderGone: nobody reads it.
    """
    encoded = _encoder.encode(value)
    if os.isatty(STDOUT):
        encoded = msgspec.json.format(encoded, indent=2)
    write_stdout(Shown(shown_json(encoded.decode()) + "\n"))


def write_bytes(data: bytes) -> None:
    """Write all of *data* to stdout.

    Raises:
        ReaderGone: nobody reads it.
        HostError: it cannot be written for another reason, such as a full disk.
    """
    try:
        while data:
            data = data[os.write(STDOUT, data) :]
    except ConnectionError as exc:
        raise ReaderGone from exc
    except OSError as exc:
        raise refused(exc) from exc


def refused(failure: OSError) -> HostError:
    """Return what to say when stdout could not be written because of *failure*."""
    return HostError("E-HOST-021", f"stdout cannot be written: {failure.strerror}")


def is_same_file(one: int, other: int) -> bool:
    """Tell whether two descriptors lead to the same terminal, pipe or file."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def is_plain(fd: int) -> bool:
    """Tell whether *fd* wants plain lines: no terminal, a dumb one, or a person who said so."""
    return not os.isatty(fd) or os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))


def width_of(fd: int) -> int | None:
    """Return the columns of the terminal behind *fd*; None when it is no terminal."""
    return os.get_terminal_size(fd).columns or 80 if os.isatty(fd) else None
