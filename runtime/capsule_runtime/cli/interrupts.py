"""What Ctrl-C does while nothing heeds signals: before a verb begins, and after it has ended."""

from __future__ import annotations

import os
import signal
from types import FrameType

from capsule_runtime.cli.failures import INTERRUPTED


def leave_at_once() -> None:
    """Let an interrupt end the process without a word: there is nothing yet to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def clean_up_first() -> None:
    """Let an interrupt be a `KeyboardInterrupt`, from which a verb cleans up."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore() -> None:
    """Let an interrupt change nothing: what the process exits with is decided."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
