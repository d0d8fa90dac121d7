"""The native protocol, line by line: what a harness may write, and what it may get wrong."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from capsule_drivers.jsonl import JsonlConfig, JsonlDriver
from capsule_runtime import (
    Ack,
    Activity,
    Answer,
    DataPart,
    Decision,
    Dispatch,
    Event,
    Exit,
    FailureKind,
    Handoff,
    HarnessError,
    LaunchRequest,
    ManifestError,
    Message,
    Note,
    Permission,
    Refused,
    Retrying,
    Said,
    Send,
    Session,
    Sleep,
    Steered,
    Suspend,
    Text,
    TextDelta,
    TextPart,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnFailed,
    Usage,
)
from capsule_runtime.core.facts import Said as SaidFact
from capsule_runtime.core.log import decode_entries
from capsule_runtime.manifest import convert_config

README = Path(__file__).parents[2] / "drivers/README.md"
BEFORE, AFTER = TextDelta("before"), TextDelta("after")
_BEFORE, _AFTER = (
    b'{"type":"text-delta","text":"before"}\n',
    (b'{"type":"text-delta","text":"after"}\n'),
)

WIRE: list[tuple[bytes, Event]] = [
    (b'{"type":"session","id":"s"}', Session("s")),
    (b'{"type":"session","id":"s","model":"m","auth":"key"}', Session("s", "m", "key")),
    (b'{"type":"text-delta","text":"a"}', TextDelta("a")),
    (b'{"type":"text-delta","text":""}', TextDelta("")),
    (b'{"type":"thinking-delta","text":"a"}', ThinkingDelta("a")),
    (b'{"type":"text","text":"a"}', Text("a")),
    (b'{"type":"text","text":"a","answer":"m1"}', Text("a", "m1")),
    (b'{"type":"thinking","text":"a","answer":"m1"}', Thinking("a", "m1")),
    (b'{"type":"tool-call","id":"c","name":"n"}', ToolCall("c", "n")),
    (
        b'{"type":"tool-call","id":"c","name":"n","input":{"a":[1,2.5,null,true]},"answer":"m1"}',
        ToolCall("c", "n", {"a": [1, 2.5, None, True]}, "m1"),
    ),
    (b'{"type":"tool-result","id":"c"}', ToolResult("c")),
    (
        b'{"type":"tool-result","id":"c","name":"n","content":"x","is_error":false,"exit_code":0}',
        ToolResult("c", "n", "x", False, 0),
    ),
    (b'{"type":"usage","model":"m"}', Usage("m")),
    (
        b'{"type":"usage","model":"m","input_tokens":1,"output_tokens":2,"cache_read_tokens":3,'
        b'"cache_write_tokens":4,"cache_write_1h_tokens":5,"reasoning_tokens":6,"cost_usd":0.5,'
        b'"call_id":"i","scope":"total"}',
        Usage("m", 1, 2, 3, 4, 5, 6, 0.5, "i", "total"),
    ),
    (b'{"type":"usage","model":"m","input_tokens":0}', Usage("m", 0)),
    (b'{"type":"retrying","attempt":1,"reason":"busy"}', Retrying(1, "busy")),
    (
        b'{"type":"retrying","attempt":1,"reason":"busy","max":3,"delay":0.5}',
        Retrying(1, "busy", 3, 0.5),
    ),
    (b'{"type":"permission","id":"p","tool":"t"}', Permission("p", "t")),
    (
        b'{"type":"permission","id":"p","tool":"t","input":1,"options":["a","b"]}',
        Permission("p", "t", 1, ["a", "b"]),
    ),
    (b'{"type":"suspend","id":"p","reason":"r","input_schema":{}}', Suspend("p", "r", {})),
    (
        b'{"type":"suspend","id":"p","reason":"r","input_schema":true,"kind":"signal",'
        b'"call_id":"c"}',
        Suspend("p", "r", True, "signal", "c"),
    ),
    (
        b'{"type":"sleep","id":"p","wake_at":"2026-01-02T03:04:05Z","call_id":"c"}',
        Sleep("p", "2026-01-02T03:04:05Z", "c"),
    ),
    (b'{"type":"dispatch","id":"p","kind":"k","input":[]}', Dispatch("p", "k", [])),
    (b'{"type":"handoff","id":"p","to":"c"}', Handoff("p", "c")),
    (b'{"type":"activity","text":"a"}', Activity("a")),
    (b'{"type":"steered","id":"s1"}', Steered("s1")),
    (b'{"type":"turn-end","result":"r"}', TurnEnd("r")),
    (b'{"type":"turn-end","result":"r","data":null}', TurnEnd("r", None)),
    (b'{"type":"turn-end","result":"r","data":{"n":1}}', TurnEnd("r", {"n": 1})),
    *[
        (
            f'{{"type":"turn-failed","kind":"{kind.value}","message":"m"}}'.encode(),
            TurnFailed(kind, "m"),
        )
        for kind in FailureKind
    ],
    (b'{"type":"note","text":"a"}', Note("a")),
]


def receive(lines: bytes) -> list[Said]:
    return list(JsonlDriver().receive(lines))


def note_of(line: bytes) -> str:
    """Return the note that *line* becomes, and check that its neighbours are whole."""
    before, note, *also, after = receive(_BEFORE + line + b"\n" + _AFTER)
    assert (before, after) == (BEFORE, AFTER)
    assert isinstance(note, Note)
    # Of usage that cannot be read it is known that there was some.
    assert also in ([], [Usage("m")], [Usage("unknown:unknown")])
    assert note.text.startswith("a line that is no event (")
    return note.text


# Every event.


@pytest.mark.parametrize(("line", "event"), WIRE, ids=lambda value: str(value)[:40])
def test_every_event_has_its_bytes(line: bytes, event: Event) -> None:
    assert receive(line + b"\n") == [event]
    assert msgspec.json.encode(event) == line


def test_the_table_holds_every_event() -> None:
    assert {type(event) for _, event in WIRE} == set(Event.__args__)


def test_all_of_them_in_one_block() -> None:
    ends = [event for _, event in WIRE if isinstance(event, TurnEnd | TurnFailed)]
    block = [(line, event) for line, event in WIRE if event not in ends[1:]]

    assert receive(b"".join(line + b"\n" for line, _ in block)) == [event for _, event in block]


def test_a_turn_ends_once() -> None:
    driver = JsonlDriver()
    end = b'{"type":"turn-end","result":"r"}\n'
    late = b'{"type":"turn-failed","kind":"other","message":"m"}\n'

    first, again, between, other = driver.receive(end + end + _AFTER + late)

    assert (first, between) == (TurnEnd("r"), AFTER)
    assert isinstance(again, Note)
    assert isinstance(other, Note)
    assert isinstance(driver.receive(end)[0], Note)


def test_a_turn_that_is_ended_again_with_many_words_is_a_short_note() -> None:
    driver = JsonlDriver()
    end = b'{"type":"turn-end","result":"%s"}\n' % ("é" * 100_000).encode()
    driver.receive(end)

    (note,) = driver.receive(end)

    assert isinstance(note, Note)
    assert len(note.text.encode()) < 5000


@pytest.mark.parametrize(("line", "event"), WIRE, ids=lambda value: str(value)[:40])
def test_every_event_outlives_the_log(line: bytes, event: Event) -> None:
    fact = SaidFact(1, "now", "run", event)

    assert decode_entries(msgspec.json.encode(fact) + b"\n") == [fact]


def test_absent_is_not_zero_and_not_null() -> None:
    (usage,) = receive(b'{"type":"usage","model":"m","input_tokens":0}\n')
    (end,) = receive(b'{"type":"turn-end","result":"r"}\n')

    assert isinstance(usage, Usage)
    assert (usage.input_tokens, usage.output_tokens) == (0, None)
    assert isinstance(end, TurnEnd)
    assert end.data is UNSET


def test_the_readme_describes_every_event() -> None:
    text = README.read_text(encoding="utf-8")
    tags = {json.loads(line)["type"] for line, _ in WIRE}

    assert {tag for tag in tags if f"`{tag}`" not in text} == set()
    assert {kind.value for kind in FailureKind if f"`{kind.value}`" not in text} == set()


# What a line may look like.


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"text-delta","text":"a"}\r\n',
        b'  {"type":"text-delta","text":"a"}\t\n',
        b'{ "text" : "a" , "type" : "text-delta" }\n',
        b'{"type":"text-delta","text":"a","index":3,"extra":{"deep":[1,{"a":"b"}]}}\n',
        b'{"type":"text-delta","text":"b","text":"a"}\n',
        b'{"type":"text-delta","text":"\\u0061"}\n',
        b'{"\\u0074ype":"text-delta","text":"a"}\n',
    ],
    ids=["CRLF", "spaces", "order", "unknown field", "named twice", "escaped", "escaped name"],
)
def test_a_line_may_be_written_in_other_ways(line: bytes) -> None:
    assert receive(_BEFORE + line + _AFTER) == [BEFORE, TextDelta("a"), AFTER]


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n", b"\n\n\n"], ids=repr)
def test_a_blank_line_is_nothing(blank: bytes) -> None:
    assert receive(_BEFORE + blank + _AFTER) == [BEFORE, AFTER]


def test_no_lines_are_no_events() -> None:
    assert receive(b"") == []


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x01\x1f",
        "\u2028\u2029\x85",
        "\x1b[31m",
        "é😀\U0010ffff",
        "\\ud83d",
        '"}\n{"',
        "\ufeff",
    ],
    ids=ascii,
)
def test_a_text_may_hold_any_character(text: str) -> None:
    line = msgspec.json.encode(TextDelta(text))

    assert receive(line + b"\n") == [TextDelta(text)]
    assert receive(line + b"\nbroken\n")[:1] == [TextDelta(text)]
    assert receive(json.dumps({"type": "text-delta", "text": text}).encode() + b"\n") == [
        TextDelta(text)
    ]


# What becomes a note, and costs no neighbour.


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b"{",
        b"}",
        b'{"type":"text-delta","text":"a"',
        b'{"type":"text-delta","text":"a}',
        b'{"type":"text-delta","text":"a"}}',
        b'{"type":"text-delta","text":"a"},',
        b"{'type':'text-delta','text':'a'}",
        b'{"type":"text-delta","text":"a\tb"}',
        b'{"type":"text-delta","text":"\\x"}',
        b'{"type":"text-delta","text":"\\ud8zz"}',
        b"null",
        b"true",
        b"7",
        b'"text"',
        b"[]",
        b'[{"type":"text-delta","text":"a"}]',
        b"{}",
    ],
    ids=repr,
)
def test_what_is_no_json_object_is_a_note(line: bytes) -> None:
    assert line.decode() in note_of(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"telemetry"}',
        b'{"type":"Text","text":"a"}',
        b'{"type":"task","protocol":1}',
        b'{"type":null,"text":"a"}',
        b'{"type":1,"text":"a"}',
        b'{"text":"a"}',
        b'{"event":"text-delta","text":"a"}',
    ],
    ids=repr,
)
def test_an_unknown_type_is_a_note(line: bytes) -> None:
    assert line.decode() in note_of(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"text-delta"}',
        b'{"type":"text-delta","text":null}',
        b'{"type":"text-delta","text":7}',
        b'{"type":"text-delta","text":["a"]}',
        b'{"type":"tool-call","id":"c"}',
        b'{"type":"tool-call","id":1,"name":"n"}',
        b'{"type":"tool-result","content":"x"}',
        b'{"type":"tool-result","id":"c","is_error":"no"}',
        b'{"type":"tool-result","id":"c","exit_code":1.5}',
        b'{"type":"usage","input_tokens":1}',
        b'{"type":"usage","model":"m","input_tokens":"1"}',
        b'{"type":"usage","model":"m","scope":"turn"}',
        b'{"type":"usage","model":"m","input_tokens":-1}',
        b'{"type":"usage","model":"m","cache_write_1h_tokens":-9}',
        b'{"type":"usage","model":"m","output_tokens":99999999999999}',
        b'{"type":"retrying","attempt":1}',
        b'{"type":"suspend","id":"p","reason":"r"}',
        b'{"type":"suspend","id":"p","reason":"r","input_schema":{},"kind":"person"}',
        b'{"type":"turn-end"}',
        b'{"type":"turn-failed","kind":"bored","message":"m"}',
        b'{"type":"turn-failed","kind":"other"}',
    ],
    ids=repr,
)
def test_a_missing_or_wrong_field_is_a_note(line: bytes) -> None:
    assert line.decode() in note_of(line)


def test_usage_that_cannot_be_read_is_usage_of_nobody_knows_how_much() -> None:
    floats = b'{"type":"usage","model":"m","input_tokens":100.5}\n'
    nameless = b'{"type":"usage","model":null,"input_tokens":100}\n'

    assert receive(floats)[1:] == [Usage("m")]
    assert receive(nameless)[1:] == [Usage("unknown:unknown")]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"usage","model":"m","input_tok',
        b'{ "model": "m", "type": "usage", "input_tokens"',
        b'{"type":"usage","model":"m","input_tokens":1}{"type":"note","text":"n"}',
        b'{"type":"usage","model":"\xff"}',
    ],
    ids=["cut short", "in another order", "two on a line", "no text"],
)
def test_usage_that_is_no_json_is_usage_of_nobody_knows_how_much(line: bytes) -> None:
    (note, used) = receive(line + b"\n")

    assert isinstance(note, Note)
    assert used == Usage("unknown:unknown")


def test_words_about_usage_are_none() -> None:
    (note,) = receive(b'{"type":"text","text":"{\\"type\\":\\"usage\\"}"\n')

    assert isinstance(note, Note)


@pytest.mark.parametrize(
    "line",
    [b"\x00", b"\x00" * 100, b'{"type":"text-delta","text":"a\x00b"}', b'\x00{"type":"note"}'],
    ids=repr,
)
def test_a_raw_nul_is_a_note(line: bytes) -> None:
    assert line.decode() in note_of(line)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b'{"type":"text-delta","text":"\xff"}',
        b'{"type":"text-delta","text":"\xc3"}',
        b'{"type":"text-delta","text":"\xed\xa0\xbd"}',
        b'{"type":"tool-call","id":"c","name":"n","input":{"\xff":1}}',
        b'{"type":"tool-call","id":"c","name":"n","input":["\xc0\x80"]}',
        '{"type":"text-delta","text":"a"}'.encode("utf-16-le"),
        b'\xef\xbb\xbf{"type":"text-delta","text":"a"}',
    ],
    ids=repr,
)
def test_what_is_no_utf_8_is_a_note(line: bytes) -> None:
    note_of(line)


@pytest.mark.parametrize(
    "number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"01", b".5", b"+1", b"0x1"]
)
@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"usage","model":"m","cost_usd":#}',
        b'{"type":"tool-result","id":"c","content":[#]}',
        b'{"type":"tool-result","id":"\\ud83d","content":[#]}',
    ],
    ids=["in a field", "in any value", "beside half a character"],
)
def test_what_is_no_number_of_json_is_a_note(line: bytes, number: bytes) -> None:
    """Python's own reader takes some of them, and the log could not give them back."""
    note_of(line.replace(b"#", number))


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**40, -(10**300)])
def test_a_huge_integer_is_kept(number: int) -> None:
    line = b'{"type":"tool-result","id":"c","content":%d}\n' % number

    (event,) = receive(line)

    assert event == ToolResult("c", content=number)
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


def test_an_integer_without_end_is_a_note() -> None:
    note_of(b'{"type":"tool-result","id":"c","content":' + b"1" * 100_000 + b"}")


# Lines and values.

VALUE = b'{"type":"note","text":"v"}'


@pytest.mark.parametrize(
    ("lines", "notes"),
    [
        (VALUE + VALUE + b"\n", 1),
        (VALUE + b" " + VALUE + b"\n", 1),
        (VALUE + VALUE + b"\n\n", 1),
        (b"\n" + VALUE + VALUE + b"\n", 1),
        (VALUE.replace(b",", b",\n") + b"\n", 2),
        (VALUE.replace(b",", b",\n") + VALUE + b"\n", 2),
        (VALUE + b"\n" + VALUE.replace(b",", b",\n") + VALUE + b"\n", 3),
        (b'{"type":"note","text":"v\nw"}\n', 2),
        (VALUE[:-1] + b"\n}\n", 2),
        (b"{\n" + VALUE[1:] + VALUE + b"\n", 2),
    ],
    ids=[
        "two on a line",
        "two with a space",
        "two on a line and a blank one",
        "a blank one and two on a line",
        "one on two lines",
        "one on two lines and another",
        "one, one on two lines, another",
        "a newline in a text",
        "the last bracket on its own line",
        "the first bracket on its own line",
    ],
)
def test_a_line_is_one_value_and_a_value_is_one_line(lines: bytes, notes: int) -> None:
    """However many values and lines there are: a block is read as its lines one by one are."""
    driver = JsonlDriver()
    one_by_one = [said for line in lines.splitlines(True) for said in driver.receive(line)]

    said = receive(lines)

    assert said == one_by_one
    assert len(said) == notes


# Half characters.

HIGH, LOW = b"\\ud83d", b"\\ude00"


def delta(text: bytes, kind: bytes = b"text-delta") -> bytes:
    return b'{"type":"%s","text":"%s"}\n' % (kind, text)


def test_a_character_cut_in_two_over_two_deltas_is_joined() -> None:
    assert receive(delta(b"a" + HIGH) + delta(LOW + b"b")) == [
        TextDelta("a"),
        TextDelta("\U0001f600b"),
    ]


def test_a_character_is_joined_over_two_blocks() -> None:
    driver = JsonlDriver()

    said = [*driver.receive(delta(b"a" + HIGH)), *driver.receive(delta(LOW))]

    assert said == [TextDelta("a"), TextDelta("\U0001f600")]


def test_thinking_is_joined_too() -> None:
    lines = delta(HIGH, b"thinking-delta") + delta(LOW, b"thinking-delta")

    assert receive(lines) == [ThinkingDelta(""), ThinkingDelta("\U0001f600")]


def test_a_half_waits_over_an_empty_delta_and_over_a_broken_line() -> None:
    first, empty, note, last = receive(delta(HIGH) + delta(b"") + b"broken\n" + delta(LOW))

    assert (first, empty, last) == (TextDelta(""), TextDelta(""), TextDelta("\U0001f600"))
    assert isinstance(note, Note)


def test_halves_that_fit_are_whole() -> None:
    assert receive(delta(HIGH + LOW)) == [TextDelta("\U0001f600")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"a" + LOW + b"b", "a\ufffdb"),
        (b"a" + HIGH + b"b", "a\ufffdb"),
        (LOW + HIGH + b"x", "\ufffd\ufffdx"),
        (HIGH + HIGH + LOW, "\ufffd\U0001f600"),
        (b"\\\\ud83d", "\\ud83d"),
        (b"\\\\" + HIGH + b"x", "\\\ufffdx"),
    ],
    ids=["low", "high", "wrong way round", "one too many", "no escape", "behind a backslash"],
)
def test_a_half_without_a_partner_becomes_the_replacement_character(
    text: bytes, shown: str
) -> None:
    assert receive(delta(text)) == [TextDelta(shown)]
    assert receive(b'{"type":"text","text":"' + text + b'"}\n') == [Text(shown)]


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"text","text":"whole"}',
        b'{"type":"tool-call","id":"c","name":"n"}',
        b'{"type":"activity","text":"a"}',
        b'{"type":"turn-end","result":"r"}',
        b'{"type":"thinking-delta","text":"\\ude00"}',
    ],
    ids=["text", "tool-call", "activity", "turn-end", "thinking"],
)
def test_a_half_whose_partner_never_comes_is_shown_before_the_next_event(event: bytes) -> None:
    said = receive(delta(b"a" + HIGH) + event + b"\n")

    assert said[:2] == [TextDelta("a"), TextDelta("\ufffd")]
    assert len(said) == 3


def test_a_half_before_plain_text_is_shown_in_its_place() -> None:
    assert receive(delta(HIGH) + delta(b"plain")) == [TextDelta(""), TextDelta("\ufffdplain")]


@pytest.mark.parametrize("text", [b"", b"plain"])
def test_a_half_of_the_answer_is_no_half_of_the_thinking(text: bytes) -> None:
    said = receive(delta(HIGH) + delta(text, b"thinking-delta") + delta(LOW))

    assert said == [
        TextDelta(""),
        TextDelta("\ufffd"),
        ThinkingDelta(text.decode()),
        TextDelta("\ufffd"),
    ]


def test_a_half_at_the_end_of_output_is_shown_before_the_end() -> None:
    driver = JsonlDriver()
    driver.receive(delta(b"a" + HIGH))

    half, end = driver.ended(Exit(0, None))

    assert half == TextDelta("\ufffd")
    assert isinstance(end, TurnFailed)


def test_halves_anywhere_in_an_event_become_the_replacement_character() -> None:
    line = b'{"type":"tool-result","id":"\\ud83d","content":{"\\ude00":["a\\ud83d",1,null]}}\n'

    assert receive(line) == [ToolResult("\ufffd", content={"\ufffd": ["a\ufffd", 1, None]})]


def test_halves_in_a_field_that_nobody_reads_do_no_harm() -> None:
    assert receive(b'{"type":"text-delta","text":"a","x":"\\ud83d"}\n') == [TextDelta("a")]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_text_cut_anywhere_in_utf_16_is_whole_again(cut: int) -> None:
    """As a harness in JavaScript streams it: cut between two of its 16-bit characters."""
    text = "a\U0001f600b\U0001f4c1\U0001f4c1c"
    units = text.encode("utf-16-be")
    pieces = [units[start : start + 2 * cut] for start in range(0, len(units), 2 * cut)]
    lines = b"".join(
        delta(b"".join(b"\\u%02x%02x" % (p[i], p[i + 1]) for i in range(0, len(p), 2)))
        for p in pieces
    )

    said = [item for item in receive(lines) if isinstance(item, TextDelta)]

    assert "".join(item.text for item in said) == text
    assert len(said) == len(pieces)


# Size and depth.


def test_a_line_of_twenty_megabytes() -> None:
    text = "x" * 20_000_000

    assert receive(delta(text.encode())) == [TextDelta(text)]


def test_a_broken_line_of_twenty_megabytes_is_a_short_note() -> None:
    assert len(note_of(b"x" * 20_000_000)) < 5_000


def test_a_type_of_twenty_megabytes_is_a_short_note() -> None:
    """The JSON library's own words would repeat it whole."""
    note = note_of(b'{"type":"' + b"x" * 20_000_000 + b'"}')

    assert len(note) < 5_000
    assert '): {"type":"xxx' in note


OPEN_VALUES = {
    "tool-call": b'{"type":"tool-call","id":"c","name":"n","input":#}',
    "tool-result": b'{"type":"tool-result","id":"c","content":#}',
    "turn-end": b'{"type":"turn-end","result":"r","data":#}',
    "permission": b'{"type":"permission","id":"p","tool":"t","input":#}',
    "dispatch": b'{"type":"dispatch","id":"p","kind":"k","input":#}',
    "suspend": b'{"type":"suspend","id":"p","reason":"r","input_schema":#}',
}


def nested(depth: int) -> bytes:
    """Return a value with *depth* brackets around its heart, arrays and objects in turn."""
    heart = b"1"
    for level in range(depth):
        heart = b"[0,%s]" % heart if level % 2 else b'{"a":%s,"b":[]}' % heart
    return heart


@pytest.mark.parametrize("line", OPEN_VALUES.values(), ids=OPEN_VALUES)
@pytest.mark.parametrize("depth", [129, 400, 900, 990, 3_000])
def test_a_value_that_nests_too_deep_is_a_note(line: bytes, depth: int) -> None:
    note_of(line.replace(b"#", nested(depth)))


@pytest.mark.parametrize("line", OPEN_VALUES.values(), ids=OPEN_VALUES)
def test_a_value_that_nests_deep_enough_for_anybody_is_an_event(line: bytes) -> None:
    (event,) = receive(line.replace(b"#", nested(128)) + b"\n")

    assert not isinstance(event, Note)


@pytest.mark.parametrize("shape", [b"[%s]", b'{"type":%s}', b'{"type":"note","text":"a","x":%s}'])
@pytest.mark.parametrize(
    "heart", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000]
)
def test_a_hundred_thousand_brackets_crash_nothing(shape: bytes, heart: bytes) -> None:
    note_of(shape % heart)


def test_what_the_driver_passes_can_be_written_and_read_from_a_deeper_stack() -> None:
    """The writer and the readers of the log decode with less stack left than the driver had."""
    (event,) = receive(OPEN_VALUES["tool-call"].replace(b"#", nested(128)) + b"\n")
    assert isinstance(event, ToolCall)
    fact = SaidFact(1, "now", "run", event)

    def deeper(levels: int) -> object:
        if levels:
            return deeper(levels - 1)
        return decode_entries(msgspec.json.encode(fact) + b"\n")

    assert deeper(500) == [fact]


def test_half_a_character_in_a_deep_value_crashes_nothing() -> None:
    note_of(b'{"type":"tool-result","id":"\\ud83d","content":' + nested(500) + b"}")


# Before, beside and after.


def request(**given: object) -> LaunchRequest:
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("count"), DataPart({"depth": 2}, "input.json"))),
        "command": ("python3", "/capsule/agent.py"),
        "args": ("-v",),
        "config": JsonlConfig(),
        "home": "/home",
        "workdir": "/src",
        "tmp": "/tmp",
        "out": "/state/out",
        "agent_path": "/runtime/agent",
        "limits": {"wall_seconds": 60.0},
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields


def test_the_task_is_the_first_line_on_stdin_and_not_in_argv() -> None:
    plan = JsonlDriver().launch(request(session="s-1", model="m", system_prompt="be short"))

    assert plan.argv == ("python3", "/capsule/agent.py", "-v")
    assert plan.keep_stdin is True
    assert plan.stdin == (
        b'{"type":"task","protocol":1,"run":"run_1","message":{"id":"m1","parts":['
        b'{"type":"text","text":"count"},{"type":"data","data":{"depth":2},"name":"input.json"}]},'
        b'"context":"talk","workdir":"/src","out":"/state/out","limits":{"wall_seconds":60.0},'
        b'"metadata":{"model":"m","system_prompt":"be short"},"session":"s-1"}\n'
    )


def test_what_is_not_known_is_absent_from_the_task() -> None:
    task = json.loads(JsonlDriver().launch(request()).stdin)

    assert "session" not in task
    assert task["metadata"] == {}


def test_the_environment_holds_the_helper() -> None:
    assert JsonlDriver().launch(request()).env == {"PYTHONPATH": "/runtime/agent"}


def test_an_end_that_nobody_saw_is_no_exit_with_code_0() -> None:
    (last,) = JsonlDriver().ended(Exit(None, None))

    assert isinstance(last, TurnFailed)
    assert last.kind is FailureKind.INDETERMINATE
    assert "code 0" not in last.message


def test_a_capsule_without_a_command_is_refused_with_what_to_write() -> None:
    with pytest.raises(HarnessError) as caught:
        JsonlDriver().launch(request(command=()))

    assert caught.value.code == "E-HAR-003"
    assert "command = [" in caught.value.hint


@pytest.mark.parametrize("config", [{"intrupt": "int"}, {"interrupt": "hup"}, {"interrupt": 2}])
def test_a_wrong_configuration_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ManifestError, match=r"harness\.config\.int"):
        convert_config(config, JsonlDriver.Config, "capsule.toml")


@pytest.mark.parametrize(("interrupt", "signal"), [("line", None), ("int", 2), ("term", 15)])
def test_the_signal_beside_the_interrupt_line(interrupt: str, signal: int | None) -> None:
    driver = JsonlDriver()
    driver.launch(request(config=msgspec.convert({"interrupt": interrupt}, JsonlConfig)))

    assert driver.describe().interrupt_signal == signal
    assert driver.interrupt() == Send(b'{"type":"interrupt"}\n')


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (Ack("job_1"), b'{"type":"ack","id":"p","job":"job_1"}\n'),
        (Answer({"yes": [True]}), b'{"type":"answer","id":"p","input":{"yes":[true]}}\n'),
        (Answer(None), b'{"type":"answer","id":"p","input":null}\n'),
        (Refused("E-1", "no\n"), b'{"type":"refused","id":"p","code":"E-1","message":"no\\n"}\n'),
    ],
)
def test_a_decision_is_one_line(decision: Decision, line: bytes) -> None:
    assert JsonlDriver().answer("p", decision) == Send(line)


def test_a_steer_is_one_line() -> None:
    assert JsonlDriver().steer("s1", "a\nb\u2028") == Send(
        '{"type":"steer","id":"s1","text":"a\\nb\u2028"}\n'.encode()
    )


@pytest.mark.parametrize(
    ("exit", "kind", "message"),
    [
        (Exit(0, None), FailureKind.INDETERMINATE, "the harness exited with code 0"),
        (Exit(3, None), FailureKind.HARNESS_ERROR, "the harness exited with code 3"),
        (Exit(None, 9), FailureKind.HARNESS_ERROR, "the harness was ended by signal 9"),
        (
            Exit(1, None, b"Traceback:\nValueError: \xff no\n\n"),
            FailureKind.HARNESS_ERROR,
            "its stderr ends: ValueError: \ufffd no",
        ),
    ],
)
def test_an_exit_without_a_terminal_event_is_a_failure(
    exit: Exit, kind: FailureKind, message: str
) -> None:
    (failed,) = JsonlDriver().ended(exit)

    assert isinstance(failed, TurnFailed)
    assert failed.kind is kind
    assert message in failed.message
    assert "before it ended its turn" in failed.message


def test_the_end_of_stderr_is_bounded() -> None:
    (failed,) = JsonlDriver().ended(Exit(1, None, b"x" * 100_000))

    assert isinstance(failed, TurnFailed)
    assert len(failed.message) < 1_000


def test_a_driver_says_what_it_can_do() -> None:
    told = JsonlDriver().describe()

    assert (told.harness, told.command, told.usage) == ("native", (), "per-call")
    assert told.streams_text
    assert told.resumes
    assert told.steers
    assert not told.loses_tail
