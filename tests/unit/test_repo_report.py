"""The parts of the capsule `repo-report` that judge: bytes, names, links, words, Markdown."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

CAPSULE = Path(__file__).parents[2] / "capsules" / "repo-report"


def _part(name: str) -> ModuleType:
    """Import a module of the capsule, leaving no trace in its directory."""
    writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(CAPSULE))
    try:
        return importlib.import_module(f"repo_report.{name}")
    finally:
        sys.path.remove(str(CAPSULE))
        sys.dont_write_bytecode = writes


content = _part("content")
counting = _part("counting")
findings_ = _part("findings")
folder_ = _part("folder")
git_ = _part("git")
languages = _part("languages")
links = _part("links")
listing_ = _part("listing")
markdown = _part("markdown")
markers_ = _part("markers")
oddities = _part("oddities")
wishes_ = _part("wishes")


# The content of a file


@pytest.mark.parametrize(
    ("data", "lines"),
    [(b"", 0), (b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\r\nb\r\n", 2), (b"\n\n", 2)],
)
def test_lines_are_counted_as_an_editor_counts_them(data: bytes, lines: int) -> None:
    assert content.count_lines(data) == lines
    assert content.examine(data).lines == lines


@pytest.mark.parametrize(
    ("data", "endings"),
    [
        (b"", "lf"),
        (b"a\nb\n", "lf"),
        (b"a\r\nb\r\n", "crlf"),
        (b"a\r\nb\n", "mixed"),
        (b"progress\r50%\r", "lf"),
    ],
)
def test_line_endings(data: bytes, endings: str) -> None:
    assert content.examine(data).endings == endings


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"plain\n", ""),
        ("größe ✓\n".encode(), ""),
        ("größe\n".encode("latin-1"), ""),
        (b"\x1b[31mred\x1b[0m\n", ""),
        (b"a\0b", "binary data"),
        (b"x" * 8192 + b"\0", ""),
        (bytes(range(1, 32)) * 4, "binary data"),
        (b"\x7fELF\x02\x01\x01\0", "ELF program or library"),
        (b"PK\x03\x04\0\0", "zip archive"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"MZ is how this text begins\n", ""),
        ("wide\n".encode("utf-16"), "UTF-16 text"),
    ],
)
def test_binary_or_text(data: bytes, kind: str) -> None:
    assert content.examine(data).binary == kind


def test_text_that_is_not_utf8_is_told() -> None:
    assert content.examine("ä".encode()).is_utf8
    assert not content.examine("ä".encode("latin-1")).is_utf8


@pytest.mark.parametrize("before", [b"", b"short\n", b"short\n" * 2000])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nshort\n" * 2000])
def test_a_long_line_is_found_wherever_it_stands(before: bytes, after: bytes) -> None:
    limit = content.LONG_LINE_BYTES

    assert content.examine(before + b"x" * (limit + 1) + after).has_long_line
    assert not content.examine(before + b"x" * limit + after).has_long_line


@pytest.mark.parametrize(
    ("data", "has_conflict"),
    [
        (b"<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n", True),
        (b"x\n<<<<<<< ours\r\na\r\n=======\r\nb\r\n>>>>>>> theirs\r\n", True),
        (b"Title\n=======\n>>>>>>> quoted mail\n", False),
        (b"see <<<<<<< here\n=======\n>>>>>>> there\n", False),
        (b"<<<<<<< ours\n>>>>>>> theirs\n=======\n", False),
    ],
)
def test_a_conflict_needs_its_three_fences_in_order(data: bytes, has_conflict: bool) -> None:
    assert content.examine(data).has_conflict == has_conflict


# Languages


@pytest.mark.parametrize(
    ("path", "shebang", "language"),
    [
        ("a/b.py", "", "Python"),
        ("a/B.PY", "", "Python"),
        ("Makefile", "", "Make"),
        ("a/Makefile.am", "", "Make"),
        ("Dockerfile.dev", "", "Dockerfile"),
        ("CMakeLists.txt", "", "CMake"),
        ("notes.txt", "", "Plain text"),
        ("tool", "/usr/bin/env python3", "Python"),
        ("tool", "/usr/bin/env -S A=1 python3.11 -u", "Python"),
        ("tool", "/bin/sh -e", "Shell"),
        ("tool", "/opt/unheard/of", "Other text"),
        ("tool", "", "Other text"),
        (".py", "", "Other text"),
        ("a.py/plain", "", "Other text"),
        (".gitignore", "", "Git settings"),
        ("LICENSE", "", "Plain text"),
    ],
)
def test_language(path: str, shebang: str, language: str) -> None:
    assert languages.language_of(path, shebang) == language


# Markers


def test_markers_are_words_in_capitals_with_their_lines() -> None:
    data = b"# TODO: a\nnone\nmktemp XXXXXX todo FIXMEUP\n# FIXME and XXX\n"

    found = [(marker.word, marker.line) for marker in markers_.markers_in(data)]

    assert found == [("TODO", 1), ("FIXME", 4), ("XXX", 4)]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (b"x = 1  # ", b": fix\n", "x = 1  # TODO: fix"),
        (b"one\ntwo ", b"", "two TODO"),
        (b"a" * 500 + b" ", b" b\n", "TODO b"),
        (b"# ", b" " + b"b" * 500, "TODO " + "b" * 115 + "…"),
        (b"\t", b" x\r\n", "TODO x"),
    ],
)
def test_the_excerpt_is_the_line_or_what_follows_the_marker(
    before: bytes, after: bytes, text: str
) -> None:
    assert markers_.excerpt(before + b"TODO" + after, len(before)) == text


def test_an_excerpt_is_never_cut_inside_a_letter() -> None:
    data = b"TODO " + "ä".encode() * 200

    assert "\ufffd" not in markers_.excerpt(data, 0)


# Wishes


@pytest.mark.parametrize(
    ("text", "data", "wishes"),
    [
        ("report on this repository", [], ("", 10, "")),
        ("", [], ("", 10, "")),
        ("top 20", [], ("", 20, "")),
        ("show the 25 largest files", [], ("", 25, "")),
        ("top 9999", [], ("", 100, "")),
        ("report on src", [], ("src", 10, "")),
        ("top 5 in src/core.", [], ("src/core", 5, "")),
        ("only ./src/", [], ("src", 10, "")),
        ("what about `src/core`?", [], ("src/core", 10, "")),
        ("what about `src/gone`?", [], ("", 10, "src/gone")),
        ("look in detail for TODO/FIXME, don't miss a/b, it's important", [], ("", 10, "")),
        ("report on this", [], ("", 10, "")),
        ("in src", [{"folder": "this", "top": 3}], ("this", 3, "")),
        ("", [{"folder": "../etc"}], ("", 10, "../etc")),
        ("", [["src"], "src", {"folder": 7, "top": -1}], ("", 10, "")),
    ],
)
def test_wishes(text: str, data: list[object], wishes: tuple[str, int, str]) -> None:
    folders = {"src", "src/core", "this"}

    assert tuple(wishes_.read_wishes(text, data, folders.__contains__)) == wishes


# Markdown

NAMES = st.text(
    st.one_of(st.sampled_from("`|\\\n\t *_<>&[]#-a\udcff\u202e"), st.characters()),
    min_size=1,
    max_size=40,
)


def _texts_of_cells(source: str) -> list[list[str]]:
    """Parse a table and return the text of each cell of its body."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(source):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows[1:]


@settings(deadline=None)
@given(name=NAMES)
def test_no_name_breaks_a_table(name: str) -> None:
    source = markdown.table(["Size:", "File"], [["1 B", markdown.cell(name)], ["2 B", "`b`"]])

    rows = _texts_of_cells(source)

    assert [len(row) for row in rows] == [2, 2]
    assert rows[0][1].strip() == markdown.visible(name).strip()
    assert rows[1] == ["2 B", "b"]


@settings(deadline=None)
@given(name=NAMES)
def test_a_code_span_shows_its_text_and_nothing_else(name: str) -> None:
    [paragraph] = [
        token
        for token in MarkdownIt("commonmark").parse(f"before {markdown.code(name)} after")
        if token.type == "inline"
    ]

    kinds = [child.type for child in paragraph.children or []]
    shown = (paragraph.children or [])[1].content

    assert kinds == ["text", "code_inline", "text"]
    assert shown.strip() == markdown.visible(name).strip()


@settings(deadline=None)
@given(name=NAMES)
def test_visible_text_can_be_printed_and_saved(name: str) -> None:
    shown = markdown.visible(name)

    assert shown.isprintable()
    assert shown.encode()


def test_what_cannot_be_seen_is_escaped() -> None:
    name = os.fsdecode(b"a\xff") + "\n\x1b[31m\u202e"

    assert markdown.visible(name) == "a\\xff\\n\\x1b[31m\\u202e"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (1536 * 1024, "1.5 MiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert markdown.size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1970-01-01 00:00"), (-86400.0, "1969-12-31 00:00"), (1e18, "unknown")],
)
def test_moments(seconds: float, text: str) -> None:
    assert markdown.moment(seconds) == text


# The folder


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)

    with folder_.opened(str(tmp_path)) as folder:
        assert folder.read("a", 1000) == b"x" * 100
        assert folder.read("a", 10) == b"x" * 10


def test_no_way_leads_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    (inside / "file").symlink_to("../secret")
    (inside / "up").symlink_to("..")

    with folder_.opened(str(inside)) as folder:
        for path in ("file", "up/secret", "../secret", "./../secret", "up", "", ".."):
            with pytest.raises(OSError):
                folder.read(path, 100)
        assert folder.look("file").kind == "link"
    with pytest.raises(OSError):
        folder_.Folder(str(inside), "up")


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()

    with folder_.opened(str(tmp_path)) as folder:
        assert folder.look("fifo").kind == "special"
        with pytest.raises(OSError, match="not a plain file"):
            folder.read("fifo", 10)
        with pytest.raises(OSError, match="not a plain file"):
            folder.read("folder", 10)


def test_deep_folders_cost_no_more_descriptors_than_allowed(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(folder_.MAX_DEPTH + 2):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    findings = findings_.Findings()

    with folder_.opened(str(tmp_path)) as folder:
        listing = listing_.list_files(folder, git_.Git(str(tmp_path)), findings)

    assert listing.files == []
    assert [found.detail for found in findings.of("unreadable")] == ["nested too deep"]


def test_the_walk_is_stopped_by_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")

    def stop() -> None:
        raise KeyboardInterrupt

    with folder_.opened(str(tmp_path), "", stop) as folder, pytest.raises(KeyboardInterrupt):
        list(folder.scan(""))


def test_files_that_change_under_our_hands(tmp_path: Path) -> None:
    for name in ("gone", "linked", "stays"):
        (tmp_path / name).write_text("a\nb\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("a\n")
    findings = findings_.Findings()

    with folder_.opened(str(tmp_path)) as folder:
        listing = listing_.list_files(folder, git_.Git(str(tmp_path)), findings)
        (tmp_path / "gone").unlink()
        (tmp_path / "linked").unlink()
        (tmp_path / "linked").symlink_to("/etc/passwd")
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("moved")
        folder.close()
        folder = folder_.Folder(str(tmp_path))
        counts = counting.count_lines(folder, listing.files, findings)
        folder.close()

    assert counts.lines == 2
    assert counts.vanished == 1
    assert [found.path for found in findings.of("unreadable")] == ["folder/file", "linked"]


# Links


@pytest.mark.parametrize(
    ("target", "fate"),
    [
        ("file", "ok"),
        ("folder", "ok"),
        ("folder/../file", "ok"),
        ("./folder/inner", "ok"),
        ("again", "ok"),
        ("folder/up", "ok"),
        ("missing", "broken-link"),
        ("file/below", "broken-link"),
        ("link", "looping-link"),
        ("ring", "looping-link"),
        ("..", "outside-link"),
        ("folder/../../x", "outside-link"),
        ("/", "outside-link"),
        ("folder/out/passwd", "outside-link"),
    ],
)
def test_the_fate_of_a_link(tmp_path: Path, target: str, fate: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_text("x")
    (tmp_path / "folder" / "up").symlink_to("../folder")
    (tmp_path / "folder" / "out").symlink_to("/etc")
    (tmp_path / "again").symlink_to("file")
    (tmp_path / "ring").symlink_to("gnir")
    (tmp_path / "gnir").symlink_to("ring")
    (tmp_path / "link").symlink_to(target)

    with folder_.opened(str(tmp_path)) as folder:
        assert links.fate_of(folder, "link") == fate


# Oddities


def test_large_files_with_the_same_content_are_told(tmp_path: Path) -> None:
    for name, byte in (("a", b"x"), ("b", b"x"), ("c", b"y")):
        (tmp_path / name).write_bytes(byte * oddities.LARGE_BYTES)
    for name in ("d", "e"):
        (tmp_path / name).write_bytes(b"small")
    findings = findings_.Findings()

    with folder_.opened(str(tmp_path)) as folder:
        listing = listing_.list_files(folder, git_.Git(str(tmp_path)), findings)
        oddities.find_oddities(folder, listing, findings)

    assert [(found.path, found.other) for found in findings.of("duplicate")] == [("b", "a")]
    assert findings.kinds() == ["duplicate"]


def test_executable_files_are_not_odd_where_all_files_are(tmp_path: Path) -> None:
    findings = findings_.Findings()
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("no script\n")
        (tmp_path / name).chmod(0o755)

    with folder_.opened(str(tmp_path)) as folder:
        listing = listing_.list_files(folder, git_.Git(str(tmp_path)), findings)
        counting.count_lines(folder, listing.files, findings)
        before = len(findings.of("no-shebang"))
        oddities.find_oddities(folder, listing, findings)

    assert (before, findings.kinds()) == (3, [])
