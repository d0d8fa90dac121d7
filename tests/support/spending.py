"""A harness that spends as it is told, as a real process, and a builder of capsules for it.

spending.py says JSON ...        say the JSON lines, then wait for the interrupt and leave
spending.py stays JSON ...       say the JSON lines, and heed nothing
spending.py ends JSON ...        say the JSON lines and leave
spending.py works CALLS TOKENS   CALLS times: call a model, which takes a moment, and report TOKENS;
                                 leave when interrupted
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path

CALL_SECONDS = 0.25
"""How long a model call takes: time enough for a stop to arrive before the next one."""
MODEL = "anthropic:claude-3-haiku"
"""Dollars per million tokens: 0.25 in, 1.25 out."""


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def usage(tokens: int, *, model: str = MODEL, **more: object) -> str:
    """Return the line that reports a call which read *tokens*."""
    fields = {"type": "usage", "model": model, "input_tokens": tokens, "output_tokens": 0}
    return json.dumps(fields | more)


def is_interrupted(seconds: float | None) -> bool:
    """Wait for a line on stdin; without one, for *seconds* at most."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and b"interrupt" in os.read(0, 65536)


def main(verb: str, *arguments: str) -> None:
    task = b""
    while not task.endswith(b"\n"):
        task += os.read(0, 1)
    if verb != "works":
        for line in arguments:
            say(line)
        if verb == "says":
            is_interrupted(None)
        while verb == "stays":
            signal.pause()
        return
    calls, tokens = map(int, arguments)
    for _ in range(calls):
        if is_interrupted(CALL_SECONDS):
            return
        say(usage(tokens))
    say(json.dumps({"type": "turn-end", "result": "it is done"}))


def spender(
    folder: Path, *words: str, spend: str = "", model: str | None = None, driver: str = "jsonl"
) -> Path:
    """Write the capsule *folder* whose harness gets *words*; *spend* is its table of ceilings."""
    command = [sys.executable, "-I", "-S", "./spending.py", *words]
    lines = ['name = "spender"', "[harness]", f"driver = {json.dumps(driver)}"]
    lines += [f"command = {json.dumps(command)}"]
    lines += [f"model = {json.dumps(model)}"] if model else []
    folder.mkdir(parents=True)
    (folder / "capsule.toml").write_text("\n".join([*lines, "[spend]", spend]) + "\n")
    # Its walls let a harness read its capsule, not the folder that these tests happen to lie in.
    shutil.copy(__file__, folder)
    return folder


if __name__ == "__main__":
    main(*sys.argv[1:])
