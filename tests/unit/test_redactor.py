"""Secrets are found in whole texts and in streams, however those were cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import Text, ToolCall
from capsule_runtime.core.redactor import Redactor, Stream
from capsule_runtime.core.secrets import forms_of

# Few letters, so that secrets begin within each other, repeat themselves and overlap.
_letters = st.text("ab", min_size=8, max_size=12)
_secrets = st.lists(_letters | st.sampled_from(["sk-live-0123456789", 'quo"ted\\/é😀'])).map(
    lambda values: {f"S{i}": value for i, value in enumerate(values)}
)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[dict[str, str], list[str]]:
    secrets = draw(_secrets)
    forms = [form for value in secrets.values() for form in forms_of(value)]
    piece = st.text("abs-x", max_size=6)
    if forms:
        piece |= st.sampled_from(forms) | st.sampled_from(forms).map(lambda form: form[:-1])
    text = "".join(draw(st.lists(piece, max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return secrets, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _expected(secrets: dict[str, str], text: str) -> str:
    marks = dict[str, str]()
    for name, value in secrets.items():
        for form in forms_of(value):
            marks.setdefault(form, f"[redacted {name}]")
    if not marks:
        return text
    longest_first = sorted(marks, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda m: marks[m[0]], text)


def _joined(stream: Stream, fragments: list[str]) -> str:
    return "".join([*map(stream.feed, fragments), stream.flush()])


@given(_cases())
def test_a_stream_shows_what_the_whole_text_does(case: tuple[dict[str, str], list[str]]) -> None:
    secrets, fragments = case
    redactor = Redactor(secrets)

    whole = redactor.text("".join(fragments))

    assert whole == _expected(secrets, "".join(fragments))
    assert _joined(redactor.stream(), fragments) == whole
    assert not any(form in whole for value in secrets.values() for form in forms_of(value))


@given(_cases())
def test_bytes_are_redacted_like_texts(case: tuple[dict[str, str], list[str]]) -> None:
    secrets, fragments = case
    redactor = Redactor(secrets)
    text = "".join(fragments)
    raw = [bytes([byte]).decode("latin-1") for byte in text.encode()]

    shown = _joined(redactor.byte_stream(), raw).encode("latin-1")

    assert shown == redactor.bytes(text.encode()) == redactor.text(text).encode()


@given(_cases(), st.data())
def test_a_stream_that_is_flushed_in_between_never_shows_a_whole_secret(
    case: tuple[dict[str, str], list[str]], data: st.DataObject
) -> None:
    secrets, fragments = case
    stream = Redactor(secrets).stream()

    shown = ""
    for fragment in fragments:
        shown += stream.feed(fragment)
        if data.draw(st.booleans()):
            shown += stream.flush()
    shown += stream.flush()

    assert not any(value in shown for value in secrets.values())


@given(_cases())
def test_only_what_may_become_a_secret_waits(case: tuple[dict[str, str], list[str]]) -> None:
    secrets, fragments = case
    stream = Redactor(secrets).stream()

    for fragment in fragments:
        stream.feed(fragment)
    rest = stream.flush()

    forms = [form for value in secrets.values() for form in forms_of(value)]
    assert rest == "" or "[redacted" in rest or any(form.startswith(rest) for form in forms)


def test_a_text_without_secrets_waits_for_nothing() -> None:
    stream = Redactor({"TOKEN": "correct-horse"}).stream()

    assert [stream.feed(it) for it in ("battery ", "c", "orr", "upt")] == [
        "battery ",
        "",
        "",
        "corrupt",
    ]


def test_what_follows_a_flushed_beginning_is_not_shown() -> None:
    stream = Redactor({"TOKEN": "correct-horse"}).stream()

    shown = [stream.feed("a corr"), stream.flush(), stream.feed("ect-horse b")]

    assert shown == ["a ", "corr", "[redacted TOKEN] b"]


@pytest.mark.parametrize("value", ["redacted", "PASSWORD", "[redacted PASSWORD]"])
def test_a_mark_is_no_secret(value: str) -> None:
    assert Redactor({"PASSWORD": value}).text(f"<{value}>") == "<[...]>"


def test_a_value_is_redacted_wherever_it_stands_in_json() -> None:
    call = ToolCall("c", "t", {"a 12345678": [{"b": 12345678}, "x-12345678"], "c": [1, None, True]})

    shown = Redactor({"PIN": "12345678"}).struct(call)

    mark = "[redacted PIN]"
    assert shown == ToolCall(
        "c", "t", {f"a {mark}": [{"b": mark}, f"x-{mark}"], "c": [1, None, True]}
    )


def test_members_of_one_redacted_name_are_all_kept() -> None:
    call = ToolCall("c", "t", {"abcdefgh": 1, "YWJjZGVmZ2g": 2})

    shown = Redactor({"KEY": "abcdefgh"}).struct(call)

    assert shown == ToolCall("c", "t", {"[redacted KEY]": 1, "[redacted KEY]'": 2})


def test_what_has_no_secret_is_the_same_object() -> None:
    text = Text('a "quo" and \\ more')

    assert Redactor({"KEY": 'quo"ted\\value'}).struct(text) is text


def test_a_value_too_deep_to_be_looked_through_is_left_out_whole() -> None:
    deep: object = "correct-horse"
    for _ in range(700):
        deep = [deep]

    shown = Redactor({"KEY": "correct-horse"}).struct(ToolCall("c", "t", deep))

    assert "correct" not in repr(shown)


def test_a_secret_that_was_cut_off_at_the_end_of_a_note_is_not_shown() -> None:
    redactor = Redactor({"KEY": "correct-horse-battery"})

    assert redactor.cut_text("line: correct-horse-b") == "line: [redacted KEY]"
    assert redactor.cut_text("line: correct-horse-battery.") == "line: [redacted KEY]."
    assert redactor.cut_text("line: corr") == "line: corr"


def test_a_flood_of_beginnings_takes_no_longer_than_it_should() -> None:
    key = "-----BEGIN " + "x" * 3000
    stream = Redactor({"KEY": key}).stream()

    shown = "".join(stream.feed("-" * 1000) for _ in range(100)) + stream.flush()

    assert shown == "-" * 100_000


def test_half_a_character_hides_nothing() -> None:
    redactor = Redactor({"KEY": "correct-horse"})

    assert redactor.struct(Text("\udce9 correct-horse")) == Text("\udce9 [redacted KEY]")
