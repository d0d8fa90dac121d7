"""What the printer lets through, breaks and makes visible, however the text is cut."""

from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.cli.printer import Printer, shown, shown_json, shown_line

# Text made of what matters here finds what random text never would.
_PIECES = [
    *("::", ":", "##", "#", "[", "vso", "##vso[", "##[", "##teamcity[", "##VSO[", "::error::x"),
    *("\n", "\r\n", "\r", "\t", " ", "\u00a0", "\u3000", "\ufeff", "\u200b"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x00", "\x7f", "\x85", "\x9b", "\x9d"),
    *("\u202e", "\u2066", "\u2069", "\u061c", "\u200f", "\u2028", "\u2029"),
    *("\ud83d", "\ude00", "\U0001f600", "é", "word", "日本"),
]
texts = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=20).map("".join)
any_text = st.text(st.characters(exclude_categories=[]), max_size=40) | texts


@st.composite
def chunkings(draw: st.DrawFn) -> list[str]:
    text = draw(any_text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _printed(chunks: list[str]) -> str:
    printer = Printer()
    return "".join([*(printer.feed(chunk) for chunk in chunks), printer.close()])


def _is_harmful(char: str) -> bool:
    """Tell by Unicode's own tables, not by the printer's."""
    if char in "\n\t":
        return False
    bidi = unicodedata.bidirectional(char) in {"LRE", "RLE", "PDF", "LRO", "RLO"} or (
        unicodedata.bidirectional(char) in {"LRI", "RLI", "FSI", "PDI"}
    )
    marks = char in "\u200e\u200f\u061c"
    return bidi or marks or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}


def _is_command(line: str) -> bool:
    bare = line.lower()
    return line.lstrip().lstrip("\ufeff\u200b\u2060\u180e").lstrip().startswith("::") or any(
        opening in bare for opening in ("##[", "##vso[", "##teamcity[")
    )


@given(chunkings())
def test_nothing_printed_steers_a_terminal(chunks: list[str]) -> None:
    assert [char for char in _printed(chunks) if _is_harmful(char)] == []


@given(chunkings())
def test_no_line_printed_is_a_workflow_command(chunks: list[str]) -> None:
    assert [line for line in _printed(chunks).split("\n") if _is_command(line)] == []


@given(chunkings())
def test_cutting_the_text_changes_nothing(chunks: list[str]) -> None:
    assert _printed(chunks) == shown("".join(chunks))


@given(any_text)
def test_what_was_printed_once_is_printed_unchanged(text: str) -> None:
    assert shown(shown(text)) == shown(text)


@given(
    st.text(
        st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"], exclude_characters=":#")
    )
)
def test_plain_text_passes_unchanged(text: str) -> None:
    assert shown(text) == text


@given(any_text)
def test_everything_printed_can_be_encoded(text: str) -> None:
    assert shown(text).encode().decode() == shown(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\n", "a\tb\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("50 %\r100 %\r\n", "50 %\u240d100 %\n"),
        ("\x1b[2J", "\u241b[2J"),
        ("\x7f\x00\x9b", "\u2421\u2400<U+009B>"),
        ("abc\u202edef", "abc<U+202E>def"),
        ("half \ud83d", "half <U+D83D>"),
        ("::error file=x::y", ": :error file=x::y"),
        ("  \u00a0::set-output", "  \u00a0: :set-output"),
        ("std::vector ::x", "std::vector ::x"),
        ("see ##[section]", "see ## [section]"),
        ("##vso[task.setvariable]", "##vso [task.setvariable]"),
        ("## Heading", "## Heading"),
        ("👩‍🔬 and 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👩‍🔬 and 🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
    ],
)
def test_how_it_looks(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_line_for_a_table_is_one_line() -> None:
    assert shown_line("  two\n\twords\u2028and \x1bthree ") == "two words and \u241bthree"


@given(any_text)
def test_json_is_shown_as_json_that_means_the_same(text: str) -> None:
    encoded = json.dumps({text: [text]}, ensure_ascii=False)
    printed = shown_json(encoded)

    assert json.loads(printed) == json.loads(encoded)
    assert not any(_is_harmful(char) for char in printed)
    assert not _is_command(printed)


@pytest.mark.parametrize("text", ["\n" * 200_000, " " * 200_000, "#" * 200_000, ":" * 200_000])
def test_hostile_text_takes_no_longer_than_plain_text(text: str) -> None:
    started = time.perf_counter()
    shown(text)

    assert time.perf_counter() - started < 1.0
