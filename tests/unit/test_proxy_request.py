"""A request to the proxy is read in one way only; everything else is refused, with the right status."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.destinations import Destination
from capsule_runtime.core.proxy_request import (
    HEAD_BYTES,
    PlainRequest,
    Request,
    RequestReader,
    Tunnel,
    parse_head,
)
from capsule_runtime.core.verdicts import STATUS, Refusal, Why

CURL = (
    b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n"
    b"User-Agent: curl/7.88.1\r\nProxy-Connection: Keep-Alive\r\n\r\n"
)
PYTHON = b"CONNECT example.org:443 HTTP/1.0\r\n\r\n"
UNDICI = b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\nconnection: close\r\n\r\n"
NODE = b"CONNECT example.org:443 HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nConnection: close\r\n\r\n"
TUNNEL = Tunnel(Destination("example.org", 443))


def read(data: bytes) -> Request | Refusal | None:
    return RequestReader().feed(data)


def connect(target: str, *lines: str, version: str = "1.0") -> Request | Refusal:
    """Return what is made of CONNECT *target*, with a line for each field."""
    return parse_head("\r\n".join([f"CONNECT {target} HTTP/{version}", *lines]).encode())


def why(answer: Request | Refusal | None) -> Why | None:
    return answer.why if isinstance(answer, Refusal) else None


@pytest.mark.parametrize("head", [CURL, PYTHON, UNDICI, NODE])
def test_clients_that_people_use_are_understood(head: bytes) -> None:
    assert read(head) == TUNNEL


@pytest.mark.parametrize("cut", range(len(CURL)))
def test_a_request_may_come_in_two_pieces(cut: int) -> None:
    reader = RequestReader()

    assert reader.feed(CURL[:cut]) is None
    assert reader.feed(CURL[cut:] + b"behind") == TUNNEL
    assert reader.rest == b"behind"


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("Example.ORG:443", Destination("example.org")),
        ("example.org.:443", Destination("example.org")),
        ("xn--bcher-kva.example:8443", Destination("xn--bcher-kva.example", 8443)),
        ("10.0.0.1:65535", Destination("10.0.0.1", 65535)),
        ("[2606:4700:0::1]:1", Destination("2606:4700::1", 1)),
        ("[::FFFF:7f00:1]:443", Destination("::ffff:7f00:1")),
    ],
)
def test_a_tunnel_leads_to_a_place_in_its_one_form(target: str, place: Destination) -> None:
    assert connect(target) == Tunnel(place)


@pytest.mark.parametrize(
    "target",
    """
    example.org example.org: example.org:0 example.org:65536 example.org:0443 example.org:+443
    example.org:443:443 example.org:4_4 example.org:٤٤٣ :443 a@example.org:443 a:b@example.org:443
    http://example.org:443 https://example.org/ /example.org:443 //example.org:443 example.org:443/
    example.org:443?a example.org:443#a example.org..:443 .example.org:443 exa%6dple.org:443
    *.example.org:443 bücher.example:443 example.org\\:443 127.1:443 2130706433:443 0x7f000001:443
    0177.0.0.1:443 127.0.0.1.:443x ::1:443 [::1]443 [::1 [::1%eth0]:443 [::1%25eth0]:443 [::g]:443
    [127.0.0.1]:443 * http:443: a,b:443 (a):443 a;b:443 a|b:443 <a>:443
    """.split(),
)
def test_what_is_no_place_is_malformed(target: str) -> None:
    assert why(connect(target)) is Why.MALFORMED


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT a.org:443 HTTP/1.0\nHost: a.org",
        b"CONNECT a.org:443 HTTP/1.0\rHost: a.org",
        b"CONNECT a.org:443\x00 HTTP/1.0",
        b"CONNECT a.org:443\t HTTP/1.0",
        b"CONNECT  a.org:443 HTTP/1.0",
        b" CONNECT a.org:443 HTTP/1.0",
        b"CONNECT a.org:443 HTTP/1.0 ",
        b"CONNECT a.org:443 b.org:443 HTTP/1.0",
        b"CONNECT a.org:443",
        b"CONNECT a.org:443 http/1.0",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost : a.org",
        b"CONNECT a.org:443 HTTP/1.0\r\nX: a\r\n b",
        b"CONNECT a.org:443 HTTP/1.0\r\n: a",
        b"CONNECT a.org:443 HTTP/1.0\r\nno colon",
        b"CONNECT a.org:443 HTTP/1.0\r\nX: a\nHost: b.org",
        b"CONNECT a.org:443 HTTP/1.0\r\nX: a\x0bb",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost: b.org",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost: a.org:80",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost: a.org\r\nHost: a.org",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost: x@a.org",
        b"CONNECT a.org:443 HTTP/1.0\r\nHost:",
        b"CONNECT a.org:443 HTTP/1.1",
        b"CONNECT a.org:443 HTTP/1.0\r\nContent-Length: 5",
        b"CONNECT a.org:443 HTTP/1.0\r\nContent-Length: 0\r\nContent-Length: 0",
        b"CONNECT a.org:443 HTTP/1.0\r\nTransfer-Encoding: chunked",
        b"",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nHost: a.org",
        b"GET a.org HTTP/1.1\r\nHost: a.org",
        b"GET https://a.org/ HTTP/1.1\r\nHost: a.org",
        b"GET http://x@a.org/ HTTP/1.1\r\nHost: a.org",
        b"GET http:///x HTTP/1.1\r\nHost: a.org",
        b"GET http://a.org/#x HTTP/1.1\r\nHost: a.org",
        b"GET http://a.org/ HTTP/1.1\r\nHost: b.org",
        b"GET http://a.org/ HTTP/1.1\r\nHost: 127.0.0.1",
        b"GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nHost: a.org",
        b"GET http://a.org:80:80/ HTTP/1.1\r\nHost: a.org",
        b"POST http://a.org/ HTTP/1.0\r\nContent-Length: 1, 1",
        b"POST http://a.org/ HTTP/1.0\r\nContent-Length: +1",
        b"POST http://a.org/ HTTP/1.0\r\nContent-Length: 99999999999999",
        b"POST http://a.org/ HTTP/1.0\r\nContent-Length: 1\r\ncontent-length: 1",
    ],
)
def test_tricks_with_lines_fields_and_targets_are_malformed(head: bytes) -> None:
    assert why(parse_head(head)) is Why.MALFORMED


@pytest.mark.parametrize(
    ("head", "reason", "status"),
    [
        (b"CONNECT a.org:443 HTTP/2.0", Why.VERSION, "505"),
        (b"PRI * HTTP/2.0", Why.VERSION, "505"),
        (b"CONNECT a.org:443 HTTP/0.9", Why.VERSION, "505"),
        (b"TRACE http://a.org/ HTTP/1.0", Why.METHOD, "405"),
        (b"connect a.org:443 HTTP/1.0", Why.METHOD, "405"),
        (b"PROPFIND http://a.org/ HTTP/1.0", Why.METHOD, "405"),
        (b"POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked", Why.LENGTH, "411"),
        (
            b"POST http://a.org/ HTTP/1.0\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
            Why.LENGTH,
            "411",
        ),
        (b"CONNECT a.org:443 HTTP/1.0\r\n" + b"\r\n".join([b"a: b"] * 101), Why.TOO_LARGE, "431"),
    ],
)
def test_what_is_not_served_has_a_status_of_its_own(head: bytes, reason: Why, status: str) -> None:
    assert why(parse_head(head)) is reason
    assert STATUS[reason].startswith(status)


def test_a_head_is_bounded_whether_it_ends_or_not() -> None:
    fields = b"X: " + b"a" * 10_000

    assert why(read(PYTHON[:-2] + fields)) is Why.TOO_LARGE
    assert why(read(PYTHON[:-2] + fields + b"\r\n\r\n")) is Why.TOO_LARGE
    assert read(PYTHON[:-4] + b"\r\nX: " + b"a" * (HEAD_BYTES - 40) + b"\r\n\r\n") == TUNNEL


def test_many_small_pieces_of_an_endless_head_are_given_up_at_its_bound() -> None:
    reader, fed = RequestReader(), 0
    while reader.feed(b"a") is None:
        fed += 1

    assert fed == HEAD_BYTES


def test_plain_http_is_rewritten_for_the_host_that_is_judged() -> None:
    answer = parse_head(
        b"POST http://A.org./a/b?c=d HTTP/1.1\r\nHost: a.org\r\nAccept: */*\r\n"
        b"Proxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n"
        b"Connection: keep-alive, X-Hop, Content-Length\r\nX-Hop: 1\r\nTE: trailers\r\n"
        b"Expect: 100-continue\r\nContent-Length: 3"
    )

    assert answer == PlainRequest(
        Destination("a.org", 80, plain=True),
        b"POST /a/b?c=d HTTP/1.1\r\nHost: a.org\r\nContent-Length: 3\r\naccept: */*\r\n"
        b"Connection: close\r\n\r\n",
        3,
    )


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://a.org", b"/", b"a.org"),
        (b"http://a.org?x=http://b.org/", b"/?x=http://b.org/", b"a.org"),
        (b"HTTP://a.org:8080//b.org/", b"//b.org/", b"a.org:8080"),
        (b"http://[2606:4700::1]:8080/", b"/", b"[2606:4700::1]:8080"),
        (b"http://10.0.0.1/", b"/", b"10.0.0.1"),
    ],
)
def test_the_target_of_a_plain_request_is_its_path(target: bytes, path: bytes, host: bytes) -> None:
    answer = parse_head(b"GET " + target + b" HTTP/1.0")

    assert isinstance(answer, PlainRequest)
    assert answer.head == b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (path, host)


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_request_a_refusal_or_too_little(data: bytes) -> None:
    answer = read(data + b"\r\n\r\n")

    assert isinstance(answer, Tunnel | PlainRequest | Refusal)


@given(st.text(alphabet="abo.rg:@/[]%*\\ \t\r\n\x000123456789", max_size=24))
def test_what_a_tunnel_leads_to_is_what_its_target_says(target: str) -> None:
    answer = connect(target)

    if isinstance(answer, Tunnel):
        host, _, port = target.rpartition(":")
        assert answer.target.port == int(port)
        assert host.strip("[]").removesuffix(".") == answer.target.host or ":" in host
    else:
        assert why(answer) in (Why.MALFORMED, Why.VERSION)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"Host", b"TE", b"Content-Length"]), st.binary())))
def test_no_field_puts_another_request_into_what_the_server_gets(
    fields: list[tuple[bytes, bytes]],
) -> None:
    lines = [name + b": " + value for name, value in fields]
    answer = parse_head(b"\r\n".join([b"GET http://a.org/ HTTP/1.0", *lines]))

    if isinstance(answer, PlainRequest):
        head, _, rest = answer.head.partition(b"\r\n\r\n")
        names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
        assert rest == b""
        assert names.count(b"host") == names.count(b"connection") == 1
        assert b"Host: a.org" in head.split(b"\r\n")
        assert not any(bytes([control]) in head.replace(b"\r\n", b"") for control in b"\r\n\x00")
