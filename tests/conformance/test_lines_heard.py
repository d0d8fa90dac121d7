"""How lines with names are heard once, whatever their number."""

from __future__ import annotations

from capsule_drivers.lines_heard import LinesHeard


def test_a_line_is_new_once_and_the_memory_of_it_has_an_end() -> None:
    heard = LinesHeard()

    first = [heard.is_new(f"line {number}") for number in range(20_000)]

    assert all(first)
    assert not any(heard.is_new(f"line {number}") for number in range(16_000, 20_000))
    assert heard.is_new("line 0")
