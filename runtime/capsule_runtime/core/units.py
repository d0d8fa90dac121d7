"""Durations and sizes as people write them: "15m", "1h30m", "2GiB"."""

from __future__ import annotations

import re

# Bounded digits: no number may become infinite. The look-ahead: `$` alone lets a newline pass.
DURATION_PATTERN = r"^([0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d))+$(?!\n)"
SIZE_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,9})?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$(?!\n)"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as "90s", "15m" or "1h30m".

    Raises:
        ValueError: *text* is not a duration.
    """
    if not re.match(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 15m, 1h30m or 7d")
    parts: list[tuple[str, str]] = re.findall(r"([0-9.]+)(ms|s|m|h|d)", text)
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as "512KiB" or "2GiB".

    Raises:
        ValueError: *text* is not a size.
    """
    if not re.match(SIZE_PATTERN, text):
        raise ValueError(f"{text!r} is not a size; write it like 512KiB, 64MiB or 2GiB")
    number, unit = re.findall(r"([0-9.]+)(\w+)", text)[0]
    return int(float(number) * _BYTES[unit])


def show_duration(seconds: float) -> str:
    """Return *seconds* for people: "0.4s", "12s", "3m05s", "2h03m"."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def show_size(count: int) -> str:
    """Return *count* bytes for people: "512 B", "1.5 KiB", "64.0 MiB"."""
    size, units = float(count), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    for larger in units:
        if round(size, 1) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
