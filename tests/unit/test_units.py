"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.units import parse_duration, parse_size, show_duration, show_size

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1h30m5s", 5405),
        ("2m500ms", 120.5),
        ("7d", 604800),
        ("1m1ms", 60.001),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "15",
        "15x",
        "m",
        "-1s",
        "1.s",
        ".5s",
        "1e3s",
        "1 s",
        " 1s",
        "1s ",
        "1s\n",
        "1S",
        "\uff11s",
    ],
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 90s") as caught:
        parse_duration(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0B", 0),
        ("512B", 512),
        ("1KiB", KIB),
        ("64MiB", 64 * MIB),
        ("2GiB", 2 * GIB),
        ("1TiB", 1024 * GIB),
        ("1kB", 1000),
        ("1MB", 10**6),
        ("3GB", 3 * 10**9),
        ("1TB", 10**12),
        ("1.5KiB", 1536),
        ("0.5B", 0),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text", ["", "5", "5K", "5kib", "-1B", "1 GB", "1.B", "1e3B", "1B\n", "1B1B", "1gib", "\u0663B"]
)
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write it like 512KiB") as caught:
        parse_size(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 400 + "s", "9" * 400 + "d", "1." + "9" * 400 + "h"])
def test_no_duration_is_infinite(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


def test_no_size_is_infinite() -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size("9" * 400 + "B")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.04, "0.0s"),
        (0.35, "0.3s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (10, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3599.4, "59m59s"),
        (3599.6, "1h00m"),
        (7380, "2h03m"),
        (90000, "25h00m"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (MIB - 1, "1.0 MiB"),
        (MIB, "1.0 MiB"),
        (64 * MIB, "64.0 MiB"),
        (GIB - 1, "1.0 GiB"),
        (5000 * GIB, "5000.0 GiB"),
    ],
)
def test_sizes_are_shown(count: int, text: str) -> None:
    assert show_size(count) == text


@given(st.integers(0, 10**6))
def test_whole_seconds_are_read_back(seconds: int) -> None:
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)

    assert parse_duration(f"{hours}h{minutes}m{left}s") == seconds


@given(st.integers(0, 10**12 - 1))
def test_whole_bytes_are_read_back(count: int) -> None:
    assert parse_size(f"{count}B") == count


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError as exc:
            assert "write it like" in str(exc)
