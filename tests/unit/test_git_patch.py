"""Patches as git writes them: names, modes, lines, and contents that are no lines."""

from __future__ import annotations

import base64
import zlib

import pytest

from capsule_runtime.core.git_patch import Side, binary_literal, patch_head, text_hunks
from capsule_runtime.core.line_diff import Patience

ONE, OTHER = "1" * 40, "2" * 40


def hunks(old: bytes | None, new: bytes | None, path: bytes = b"f") -> list[bytes]:
    return b"".join(text_hunks(path, old, new, Patience())).splitlines()


def test_the_head_of_a_change_of_contents_and_mode() -> None:
    head = patch_head(b"f", Side(0o100644, ONE), Side(0o100755, OTHER))

    assert head.splitlines() == [
        b"diff --git a/f b/f",
        b"old mode 100644",
        b"new mode 100755",
        f"index {ONE}..{OTHER}".encode(),
    ]


def test_a_change_of_mode_alone_names_no_contents() -> None:
    head = patch_head(b"f", Side(0o100644, ONE), Side(0o100755, ONE))

    assert b"index" not in head


def test_new_and_removed_files_are_said_to_be() -> None:
    side = Side(0o120000, ONE)

    assert b"\nnew file mode 120000\nindex 000" in patch_head(b"f", None, side)
    assert b"\ndeleted file mode 120000\nindex 111" in patch_head(b"f", side, None)


@pytest.mark.parametrize(
    ("path", "quoted"),
    [
        (b"a b", b"a/a b b/a b"),
        (b"a\nb", b'"a/a\\nb" "b/a\\nb"'),
        (b'"\\', b'"a/\\"\\\\" "b/\\"\\\\"'),
        (b"\xff\x01", b'"a/\\377\\001" "b/\\377\\001"'),
    ],
)
def test_any_name_is_written_as_git_reads_it(path: bytes, quoted: bytes) -> None:
    head = patch_head(path, None, Side(0o100644, ONE))

    assert head.splitlines()[0] == b"diff --git " + quoted


def test_a_blank_in_a_name_gets_an_end() -> None:
    assert hunks(b"", b"x\n", b"a b")[:2] == [b"--- a/a b\t", b"+++ b/a b\t"]


def test_lines_have_their_context_and_hunks_that_are_near_are_one() -> None:
    old = b"".join(b"%d\n" % number for number in range(1, 31))
    new = old.replace(b"\n5\n", b"\nfive\n").replace(b"\n10\n", b"\n").replace(b"\n28\n", b"\nx\n")

    assert [line for line in hunks(old, new) if line.startswith(b"@@")] == [
        b"@@ -2,12 +2,11 @@",
        b"@@ -25,6 +24,6 @@",
    ]


def test_a_missing_end_of_line_is_said() -> None:
    assert hunks(b"a", b"a\n")[2:] == [
        b"@@ -1,1 +1,1 @@",
        b"-a",
        b"\\ No newline at end of file",
        b"+a",
    ]


def test_carriage_returns_are_no_ends_of_lines() -> None:
    assert b"".join(text_hunks(b"f", b"a\rb\n", b"a\rc\n", Patience())).count(b"\n") == 5


def test_an_empty_file_has_no_lines() -> None:
    assert hunks(None, b"") == []


@pytest.mark.parametrize("size", [0, 1, 26, 27, 51, 52, 53, 5000])
def test_contents_come_back_from_a_literal(size: int) -> None:
    data = bytes(number * 7 % 251 for number in range(size))
    lines = b"".join(binary_literal(size, [data[:20], data[20:]])).split(b"\n")
    packed = b""
    for line in lines[2:-2]:
        length = line[0] - 0x40 if line[0] <= 0x5A else line[0] - 0x46
        packed += base64.b85decode(line[1:])[:length]

    assert lines[:2] == [b"GIT binary patch", f"literal {size}".encode()]
    assert lines[-2:] == [b"", b""]
    assert zlib.decompress(packed) == data
