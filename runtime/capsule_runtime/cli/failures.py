"""What a failure looks like to people and to programs, and what the process exits with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from capsule_runtime.cli.printer import shown, shown_json
from capsule_runtime.errors import CapsuleError, UsageError

if TYPE_CHECKING:
    import click

BUG = 70
INTERRUPTED = 130

_HINT = "`{path} --help` says what it takes."


class ReaderGone(Exception):
    """Raised when nobody reads our stdout any more: there is nothing left to do."""


def exit_status_of(command: Callable[[], object], *, as_json: bool) -> int:
    """Run *command*; report what it raises on stderr and return the process's exit status."""
    try:
        status = command()
    except Exception as raised:
        return _report(_single(raised), as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as raised:
        if raised.subgroup(KeyboardInterrupt) is None:
            raise
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def report(error: CapsuleError, *, as_json: bool = False) -> None:
    """Write *error* to stderr, for people or as one JSON line."""
    if as_json:
        import msgspec

        told = {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "exit_status": error.exit_status,
        }
        write_stderr(shown_json(msgspec.json.encode({"error": told}).decode()) + "\n")
    else:
        hint = f"hint: {error.hint}\n" if error.hint else ""
        write_stderr(shown(f"{error}\n{hint}"))


def write_stderr(text: str) -> None:
    """Write *text* to stderr, if anybody still has it open."""
    rest = text.encode("utf-8", "replace")
    try:
        while rest:
            rest = rest[os.write(2, rest) :]
    except OSError:
        # There is no place left in which to say that nobody listens.
        return


def _report(error: Exception, *, as_json: bool) -> int:
    import click

    match error:
        case CapsuleError():
            report(error, as_json=as_json)
            return error.exit_status
        case click.ClickException():
            return _report(_in_our_words(error), as_json=as_json)
        case click.Abort():
            return INTERRUPTED
        case ReaderGone():
            return 0
        case _:
            _report_bug(error)
            return BUG


def _single(raised: Exception) -> Exception:
    """Return the error that a group of tasks failed with; a group with a bug in it stays whole."""
    leaves = list(_leaves(raised))
    known = all(isinstance(leaf, (CapsuleError, ReaderGone)) for leaf in leaves)
    return leaves[0] if known or len(leaves) == 1 else raised


def _leaves(raised: Exception) -> Iterator[Exception]:
    match raised:
        case ExceptionGroup(exceptions=inner):
            for one in cast("tuple[Exception, ...]", inner):
                yield from _leaves(one)
        case _:
            yield raised


def _in_our_words(error: click.ClickException) -> UsageError:
    import click

    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "capsule"
    message = error.format_message().rstrip(".")
    return UsageError("E-USE-020", message[:1].lower() + message[1:], _HINT.format(path=path))


def _report_bug(error: Exception) -> None:
    import traceback

    write_stderr(
        shown(
            "".join(traceback.format_exception(error))
            + "\nThis is a bug in capsule, not in your capsule or your task. "
            "Please report it with the lines above.\n"
        )
    )
