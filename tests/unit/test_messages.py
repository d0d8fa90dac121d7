"""The task as it was given."""

from __future__ import annotations

import pytest

from capsule_runtime import DataPart, Message, Part, TextPart


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        ((TextPart("a"),), "a"),
        ((TextPart("a"), DataPart({"x": 1}), TextPart("b", "b.txt")), "a\n\nb"),
        ((DataPart(None),), ""),
    ],
)
def test_a_harness_that_takes_one_prompt_gets_the_words(parts: tuple[Part, ...], text: str) -> None:
    assert Message("m1", parts).text == text
