"""Judge the bytes of one file."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Endings = Literal["lf", "crlf", "mixed"]

LONG_LINE_BYTES = 5_000
MARKERS = ("TODO", "FIXME", "XXX")
_HEAD_BYTES = 8_192
_TEXT_BYTES = bytes([7, 8, 9, 10, 12, 13, 27, *range(0x20, 0x7F), *range(0x80, 0x100)])
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_FORMATS = (
    (b"\x7fELF", "ELF program or library"),
    (b"MZ", "Windows program"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\0asm", "WebAssembly"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"!<arch>\n", "static library"),
)
_CONFLICT_MIDDLE = re.compile(rb"^={7}\r?$", re.MULTILINE)


class Content(NamedTuple):
    """Hold what the bytes of a file say; *binary* names the format, "" means text."""

    binary: str
    lines: int
    endings: Endings
    is_utf8: bool
    has_long_line: bool
    has_marker: bool
    has_conflict: bool
    shebang: str


def examine(data: bytes) -> Content:
    """Judge the whole content of a file."""
    binary = _binary_format(data)
    if binary:
        return Content(binary, 0, "lf", True, False, False, False, "")
    return Content(
        binary="",
        lines=count_lines(data),
        endings=_endings(data),
        is_utf8=_is_utf8(data),
        has_long_line=_has_long_line(data),
        has_marker=any(marker.encode() in data for marker in MARKERS),
        has_conflict=b"<<<<<<< " in data and _has_conflict(data),
        shebang=_shebang(data),
    )


def count_lines(data: bytes) -> int:
    """Count lines like an editor does: a last line without its newline counts."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def _binary_format(data: bytes) -> str:
    head = data[:_HEAD_BYTES]
    if head.startswith(_WIDE_MARKS):
        return "UTF-16 text"
    strange = len(head.translate(None, _TEXT_BYTES))
    if b"\0" not in head and strange * 10 <= len(head):
        return ""
    return next((name for magic, name in _FORMATS if head.startswith(magic)), "binary data")


def _endings(data: bytes) -> Endings:
    with_return = data.count(b"\r\n") if b"\r" in data else 0
    if with_return == 0:
        return "lf"
    return "crlf" if with_return == data.count(b"\n") else "mixed"


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_long_line(data: bytes) -> bool:
    """Hop from newline to newline, as far as a permitted line reaches."""
    start = 0
    while len(data) - start > LONG_LINE_BYTES:
        newline = data.rfind(b"\n", start, start + LONG_LINE_BYTES + 1)
        if newline < 0:
            return True
        start = newline + 1
    return False


def _has_conflict(data: bytes) -> bool:
    """Find the three fences one after the other; one expression for all would backtrack."""
    start = 0 if data.startswith(b"<<<<<<< ") else data.find(b"\n<<<<<<< ")
    middle = _CONFLICT_MIDDLE.search(data, start) if start >= 0 else None
    return middle is not None and data.find(b"\n>>>>>>> ", middle.end()) >= 0


def _shebang(data: bytes) -> str:
    if not data.startswith(b"#!"):
        return ""
    return data[2:256].split(b"\n", 1)[0].decode("utf-8", "replace").strip()
