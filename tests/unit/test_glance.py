"""The live line of a run whose harness says nothing of its own about what goes on."""

from __future__ import annotations

import pytest

from capsule_runtime import ToolCall
from capsule_runtime.cli.glance import Glance
from capsule_runtime.core.facts import Said


@pytest.mark.parametrize(
    ("name", "input", "line"),
    [
        ("Bash", {"timeout": 5, "command": "make\n  all"}, 'Bash: "make all"'),
        ("Read", {"lines": 5}, 'Read: "5"'),
        ("Stop", None, "Stop"),
        ("Bash", {"command": "x" * 500}, f'Bash: "{"x" * 59}…"'),
    ],
)
def test_the_live_line_is_the_latest_tool_call(name: str, input: object, line: str) -> None:
    glance = Glance()
    glance.apply_fact(Said(1, "2026-01-02T03:04:05Z", "run_1", ToolCall("c1", name, input)))

    assert "".join(span.text for span in glance.status(0.0)).endswith(line)
