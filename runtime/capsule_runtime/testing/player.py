"""The agent of a recorded capsule: player.py SCRIPT. Copied into the capsule; needs nothing else."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time


def write_all(fd: int, text: str) -> None:
    """Write what *text* stands for."""
    data = base64.b64decode(text)
    while data:
        data = data[os.write(fd, data) :]


def await_interrupt() -> None:
    """Read stdin until it asks to stop, or ends."""
    for line in sys.stdin.buffer:
        if json.loads(line).get("type") == "interrupt":
            return


def end_by_signal(number: int) -> None:
    """End as a process that got signal *number*."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(script: str) -> None:
    """Do the steps of *script*, in order."""
    with open(script, encoding="utf-8") as file:
        steps = json.load(file)
    for verb, value in steps:
        if verb == "stdout":
            write_all(1, value)
        elif verb == "stderr":
            write_all(2, value)
        elif verb == "silence":
            time.sleep(value) if value is not None else signal.pause()
        elif verb == "interrupt":
            await_interrupt()
        elif verb == "signal":
            end_by_signal(value)
        else:
            sys.exit(value)


if __name__ == "__main__":
    main(sys.argv[1])
