"""The command line: this module is the way in and out of the process."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence

from capsule_runtime.cli import interrupts
from capsule_runtime.cli.failures import INTERRUPTED, exit_status_of
from capsule_runtime.cli.words import asks_for_json


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (by default this process's) and return its exit status.

    Without *argv* the process has nothing else to do: signals are handled accordingly.
    """
    if argv is not None:
        return _obey(list(argv))
    interrupts.leave_at_once()
    try:
        status = _obey(sys.argv[1:])
        interrupts.ignore()
    except KeyboardInterrupt:
        interrupts.ignore()
        status = INTERRUPTED
    _leave_threads_behind(status)
    return status


def _obey(words: list[str]) -> int:
    _occupy_standard_descriptors()
    gc.disable()
    # Loaded only now: from here on an interrupt is quiet.
    from capsule_runtime.cli.verbs import obey, settle_memory

    try:
        return exit_status_of(lambda: obey(words), as_json=asks_for_json(words))
    finally:
        settle_memory()


def _leave_threads_behind(status: int) -> None:
    """Leave now if a thread is left over, as an event loop that was broken off leaves its own.

    The interpreter would wait for it, maybe for ever. All output is written by now.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if not all(thread.daemon for thread in others):
        os._exit(status)


def _occupy_standard_descriptors() -> None:
    """Open what the caller closed: else the store's file could become our stdout."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
