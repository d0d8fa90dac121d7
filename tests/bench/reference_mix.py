"""The reference mix: what a busy native harness says, in the proportions of a coding run.

Deterministic. `reference_mix(turns)` gives the lines of that many turns: 12 fragments of thinking, 40
of text, one complete text, two tool calls with results (one short, one of 2 KiB), one usage report.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

_WORDS = (
    "the run reads a file and finds that parse returns early when the buffer is empty so the "
    "caller never sees the last line which means we should check the length before we cut it"
).split()
LINES_PER_TURN = 12 + 40 + 1 + 4 + 1


def reference_mix(turns: int, seed: int = 7) -> bytes:
    """Return *turns* turns as native JSON lines; there is no terminal event."""
    rng = random.Random(seed)
    lines: list[Mapping[str, object]] = []
    for turn in range(turns):
        lines += [{"type": "thinking-delta", "text": _fragment(rng)} for _ in range(12)]
        spoken = [_fragment(rng) for _ in range(40)]
        lines += [{"type": "text-delta", "text": text} for text in spoken]
        lines.append({"type": "text", "text": "".join(spoken), "answer": f"msg_{turn}"})
        for call, size in ((f"a{turn}", 80), (f"b{turn}", 2048)):
            path = {"path": f"src/module_{turn}.py", "limit": 200}
            lines.append({"type": "tool-call", "id": call, "name": "read_file", "input": path})
            content = " ".join(rng.choices(_WORDS, k=size // 5))
            lines.append({"type": "tool-result", "id": call, "content": content})
        tokens = {"input_tokens": 1000 + turn, "output_tokens": 50, "cache_read_tokens": 900}
        lines.append({"type": "usage", "model": "mock:model-1", **tokens})
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def _fragment(rng: random.Random) -> str:
    return " " + " ".join(rng.choices(_WORDS, k=rng.randint(1, 4)))
