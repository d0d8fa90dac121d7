"""Changes of files as `git apply` reads them: whole ids, binary contents, any name."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from capsule_runtime.core.line_diff import Block, Patience, changed_blocks

NOTHING = "0" * 40
LINK_MODE = 0o120000
_CONTEXT = 3
_PLAIN = bytes(range(0x20, 0x7F)).translate(None, b'"\\')
_NAMED = {0x07: "a", 0x08: "b", 0x09: "t", 0x0A: "n", 0x0B: "v", 0x0C: "f", 0x0D: "r"}
_LITERAL_BYTES = 52


@dataclass(frozen=True, slots=True)
class Side:
    """A file or link before or after: its mode in git's terms, and git's id of its contents."""

    mode: int
    id: str


def patch_head(path: bytes, old: Side | None, new: Side | None) -> bytes:
    """Return the lines that say which file changed, and what of it beside its contents."""
    lines = [b"diff --git " + _quoted(b"a/" + path) + b" " + _quoted(b"b/" + path)]
    ids = f"index {old.id if old else NOTHING}..{new.id if new else NOTHING}"
    if old is None and new is not None:
        lines += [f"new file mode {new.mode:06o}".encode(), ids.encode()]
    elif new is None and old is not None:
        lines += [f"deleted file mode {old.mode:06o}".encode(), ids.encode()]
    elif old is not None and new is not None:
        if old.mode != new.mode:
            lines += [f"old mode {old.mode:06o}".encode(), f"new mode {new.mode:06o}".encode()]
        if old.id != new.id:
            same = f" {old.mode:06o}" if old.mode == new.mode else ""
            lines.append(f"{ids}{same}".encode())
    return b"\n".join(lines) + b"\n"


def is_text(data: bytes) -> bool:
    """Say whether *data* is shown line by line."""
    return b"\0" not in data


def text_hunks(
    path: bytes, old: bytes | None, new: bytes | None, patience: Patience
) -> Iterator[bytes]:
    """Yield the lines by which *old* becomes *new*; None is a file that is not there."""
    before, after = _lines(old or b""), _lines(new or b"")
    blocks = changed_blocks(before, after, patience)
    if not blocks:
        return
    yield b"--- " + (_named(b"a/" + path) if old is not None else b"/dev/null") + b"\n"
    yield b"+++ " + (_named(b"b/" + path) if new is not None else b"/dev/null") + b"\n"
    for group in _groups(blocks):
        yield from _hunk(group, before, after)


def binary_literal(size: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that hold the whole new contents: *chunks*, *size* bytes in all."""
    yield f"GIT binary patch\nliteral {size}\n".encode()
    squeezed, held = zlib.compressobj(1), b""
    for chunk in chunks:
        held += squeezed.compress(chunk)
        full = len(held) - len(held) % _LITERAL_BYTES
        yield from _encoded(held[:full])
        held = held[full:]
    yield from _encoded(held + squeezed.flush())
    yield b"\n"


def _encoded(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _LITERAL_BYTES):
        piece = data[start : start + _LITERAL_BYTES]
        length = len(piece) + (0x40 if len(piece) <= 26 else 0x46)
        yield bytes([length]) + base64.b85encode(piece, pad=True) + b"\n"


def _lines(data: bytes) -> list[bytes]:
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield the blocks that are near enough to share their context."""
    group: list[Block] = []
    for block in blocks:
        if group and block[0] - group[-1][1] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(group: Sequence[Block], old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    start = max(0, group[0][0] - _CONTEXT)
    end = min(len(old), group[-1][1] + _CONTEXT)
    new_start = group[0][2] - (group[0][0] - start)
    new_end = group[-1][3] + (end - group[-1][1])
    yield f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n".encode()
    at = start
    for a, b, c, d in group:
        yield from (_marked(b" ", line) for line in old[at:a])
        yield from (_marked(b"-", line) for line in old[a:b])
        yield from (_marked(b"+", line) for line in new[c:d])
        at = b
    yield from (_marked(b" ", line) for line in old[at:end])


def _span(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: bytes, line: bytes) -> bytes:
    if line.endswith(b"\n"):
        return mark + line
    return mark + line + b"\n\\ No newline at end of file\n"


def _named(path: bytes) -> bytes:
    """Return *path* as it stands before a hunk: a blank in it needs an end that can be seen."""
    quoted = _quoted(path)
    return quoted + b"\t" if b" " in path and quoted == path else quoted


def _quoted(path: bytes) -> bytes:
    if not path.translate(None, _PLAIN):
        return path
    return f'"{"".join(map(_escaped, path))}"'.encode()


def _escaped(code: int) -> str:
    if code in _PLAIN:
        return chr(code)
    if code in b'"\\':
        return f"\\{chr(code)}"
    return f"\\{_NAMED[code]}" if code in _NAMED else f"\\{code:03o}"
