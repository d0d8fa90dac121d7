"""A TLS greeting is read to the letter, in pieces of any size, and never without bound."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_runtime.core.client_hello import HELLO_BYTES, Hello, HelloReader, NoHello

NAME = b"Example.org"
OTHER_EXTENSION = b"\x00\x0b\x00\x02\x01\x00"


def sized(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes([kind]) + sized(2, name) for name in names)
    return b"\x00\x00" + sized(2, sized(2, entries))


def body(extensions: bytes, *, session: bytes = b"", suites: bytes = b"\x13\x01") -> bytes:
    head = b"\x03\x03" + bytes(32) + sized(1, session) + sized(2, suites) + b"\x01\x00"
    return head + sized(2, extensions)


def message(content: bytes) -> bytes:
    return b"\x01" + sized(3, content)


def records(content: bytes, size: int = 2**14) -> bytes:
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"\x16\x03\x01" + sized(2, part) for part in parts)


def greeting(extensions: bytes) -> bytes:
    return records(message(body(extensions)))


GREETING = greeting(OTHER_EXTENSION + server_name(NAME))


def read(data: bytes) -> Hello | NoHello | None:
    return HelloReader().feed(data)


def greeting_of_openssl(host: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = host is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


REAL = greeting_of_openssl("example.org")


def heard_by_openssl(data: bytes) -> list[str | None]:
    """Return for which server a real one takes the greeting *data*; nothing if it takes it for none."""
    heard = list[str | None]()

    def hear(_connection: object, name: str | None, _context: object) -> None:
        heard.append(name)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = hear
    incoming = ssl.MemoryBIO()
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    incoming.write(data)
    with pytest.raises(ssl.SSLError):  # it has no certificate, so there is always something
        server.do_handshake()
    return heard


@given(
    st.integers(0, 10**6),
    st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 3, 16, 22, 255])),
    st.one_of(st.just(2**14), st.integers(1, 600)),
)
@settings(max_examples=1_000)
def test_no_server_hears_another_name_than_we_do(at: int, byte: int, size: int) -> None:
    """A changed greeting is refused, or is for whom a real server takes it."""
    whole = bytearray(records(REAL[5:], size))
    whole[at % len(whole)] = byte
    ours = read(bytes(whole))

    if isinstance(ours, Hello):
        theirs = [name and name.lower() for name in heard_by_openssl(bytes(whole))]
        assert theirs in ([], [ours.server_name])


def test_a_real_server_hears_what_a_real_client_says() -> None:
    assert heard_by_openssl(REAL) == ["example.org"]


@pytest.mark.parametrize(
    ("host", "name"), [("Example.org", "example.org"), ("1.1.1.1", None), (None, None)]
)
def test_the_greeting_of_a_real_client(host: str | None, name: str | None) -> None:
    assert read(greeting_of_openssl(host)) == Hello(name)


@pytest.mark.parametrize("cut", range(len(GREETING) + 1))
def test_a_greeting_may_come_in_two_pieces(cut: int) -> None:
    reader = HelloReader()
    first, last = reader.feed(GREETING[:cut]), reader.feed(GREETING[cut:])

    assert first in ((None,) if cut < len(GREETING) else (Hello("example.org"),))
    assert last == Hello("example.org")
    assert reader.taken == GREETING


@given(st.integers(1, 400), st.binary(max_size=64), st.lists(st.integers(1, 90), max_size=40))
def test_records_and_pieces_of_any_size_say_the_same(
    size: int, behind: bytes, cuts: list[int]
) -> None:
    reader, rest = HelloReader(), records(message(body(server_name(NAME))), size) + behind
    answers = list[Hello | NoHello | None]()
    for cut in [*cuts, len(rest)]:
        answers.append(reader.feed(rest[:cut]))
        rest = rest[cut:]

    assert {*answers} - {None} == {Hello("example.org")}
    assert reader.taken.endswith(behind)


@given(st.binary(max_size=600))
def test_whatever_comes_is_a_greeting_or_not_or_too_little(data: bytes) -> None:
    whole, reader = read(data), HelloReader()
    answer = None
    for at in range(len(data)):
        answer = reader.feed(data[at : at + 1])
        if answer is not None:
            break

    assert whole == answer
    assert not isinstance(whole, Hello)


@given(st.integers(0, len(GREETING) - 1), st.integers(0, 255))
def test_one_wrong_byte_never_makes_another_reading_than_its_own(at: int, byte: int) -> None:
    answer = read(GREETING[:at] + bytes([byte]) + GREETING[at + 1 :])

    if isinstance(answer, Hello) and answer.server_name not in (None, "example.org"):
        start = GREETING.index(NAME)
        assert start <= at < start + len(NAME)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "not TLS"),
        (b"SSH-2.0-x", "not TLS"),
        (b"\x80\x2e\x01\x03\x01", "not TLS"),
        (b"\x17\x03\x03\x00\x01", "not TLS"),
        (b"\x16\x02", "not TLS"),
        (b"\x16\x03\x01\x00\x00", "no length"),
        (b"\x16\x03\x01\x40\x01", "no length"),
        (b"\x16\x03\x01\x00\x04\x02", "does not begin with a greeting"),
        (records(b"\x01" + sized(3, b"")[:3]), "shorter"),
        (b"\x16\x03\x01\x3f\xff\x01\x00\x40\x01", "longer than a greeting may be"),
        (records(message(body(b"")) + b"\x01"), "more than a greeting"),
        (records(message(body(b"") + b"x")), "longer than it should be"),
        (records(message(body(b"", suites=b""))), "offers nothing"),
        (records(message(body(b"", suites=b"\x13"))), "offers nothing"),
        (records(message(body(b"", session=bytes(33)))), "offers nothing"),
        (greeting(server_name(NAME) + server_name(NAME)), "twice"),
        (greeting(OTHER_EXTENSION * 2), "twice"),
        (greeting(server_name(NAME, b"other.org")), "longer than it should be"),
        (greeting(server_name(NAME, kind=1)), "something else than a name"),
        (greeting(server_name()), "shorter"),
        (greeting(server_name(b"")), "no name"),
        (greeting(server_name(b"a.org.")), "no name"),
        (greeting(server_name(b"a.org\x00.evil.example")), "no name"),
        (greeting(server_name("bücher.example".encode())), "no name"),
        (greeting(server_name(b"a" * 64 + b".org")), "no name"),
        (greeting(server_name(b".".join([b"a" * 60] * 5))), "no name"),
        (greeting(b"\x00\x00\x00\x05\x00\x00\x00"), "shorter"),
    ],
)
def test_what_is_no_greeting(data: bytes, why: str) -> None:
    answer = read(data)

    assert isinstance(answer, NoHello)
    assert why in answer.why


def test_a_greeting_without_extensions_names_nobody() -> None:
    assert read(records(message(body(b"")[:-2]))) == Hello(None)


def test_a_greeting_of_the_greatest_length_is_read() -> None:
    rest = HELLO_BYTES - len(body(server_name(NAME))) - 4
    whole = message(body(server_name(NAME) + b"\x00\x15" + sized(2, bytes(rest))))

    assert len(whole) == HELLO_BYTES + 4
    assert read(records(whole)) == Hello("example.org")
    assert read(records(whole, 1)) == Hello("example.org")


@pytest.mark.parametrize("size", [1, 7, 2**14])
def test_an_endless_greeting_is_given_up(size: int) -> None:
    reader = HelloReader()
    endless = records(b"\x01\x00\x40\x00" + bytes(2**14) * 2, size)
    answer = None
    for at in range(0, len(endless), 1000):
        answer = reader.feed(endless[at : at + 1000])
        if answer is not None:
            break

    assert isinstance(answer, NoHello)
    assert len(reader.taken) < 8 * HELLO_BYTES
