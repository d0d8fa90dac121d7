"""Which headers and which query pass the gateway, and how a key is set and hidden."""

from __future__ import annotations

import pytest

from capsule_runtime.core.http_passing import (
    KEY_HEADERS,
    headers_downstream,
    headers_upstream,
    target_upstream,
)
from capsule_runtime.core.masking import Mask
from capsule_runtime.core.origins import Origin
from capsule_runtime.core.relaying import Credential, Forward

SECRET = b"sk-real-0123456789"
KEY = Credential(b"authorization", b"Bearer " + SECRET)
ORIGIN = Origin("https", "api.test", 443, "/v1")


def forward(target: str = "/x", key: Credential | None = KEY) -> Forward:
    return Forward(ORIGIN, target, b"", key)


@pytest.mark.parametrize("name", sorted(KEY_HEADERS))
@pytest.mark.parametrize("key", [KEY, None])
def test_no_key_that_a_client_says_passes(name: bytes, key: Credential | None) -> None:
    headers = headers_upstream([(name, b"marker"), (b"user-agent", b"y")], forward(key=key))

    expected = [(key.header, key.reveal())] if key else []
    assert [field for field in headers if field[0] in KEY_HEADERS] == expected
    assert (b"user-agent", b"y") in headers


def test_a_key_of_a_name_of_its_own_takes_the_place_of_what_the_client_said() -> None:
    key = Credential(b"x-portkey", SECRET)

    headers = headers_upstream([(b"x-portkey", b"marker")], forward(key=key))

    assert [value for name, value in headers if name == b"x-portkey"] == [SECRET]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-goog-fieldmask", b"candidates"),
        (b"x-goog-user-project", b"theirs"),
        (b"openai-organization", b"theirs"),
        (b"x-http-method-override", b"DELETE"),
        (b"helicone-target-url", b"https://elsewhere.test"),
        (b"content-encoding", b"gzip"),
        (b"content-type", b"application/json; charset=utf-16"),
        (b"x", b"y"),
    ],
)
def test_what_could_change_who_pays_or_what_is_told_does_not_pass(
    name: bytes, value: bytes
) -> None:
    headers = headers_upstream([(name, value), (b"anthropic-version", b"1")], forward())

    assert name not in dict(headers)
    assert (b"anthropic-version", b"1") in headers


def test_the_host_is_the_upstream_s() -> None:
    headers = headers_upstream([(b"host", b"gate")], forward())

    assert [value for name, value in headers if name == b"host"] == [b"api.test"]


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/x", "/v1/x"),
        ("/x?", "/v1/x"),
        ("/x?a=b&c", "/v1/x?a=b&c"),
        ("/x?key=m", "/v1/x"),
        ("/x?a=b&key=m&c=d", "/v1/x?a=b&c=d"),
        ("/x?a=b;key=m", "/v1/x?a=b"),
        ("/x?%6b%65%79=m", "/v1/x"),
        ("/x?Key=m&access_token=m", "/v1/x"),
        ("/x?monkey=m&key2=m", "/v1/x?monkey=m&key2=m"),
        ("/x?a=%zz;b", "/v1/x?a=%zz;b"),
    ],
)
def test_no_key_passes_in_a_query_and_the_rest_is_as_it_was(target: str, sent: str) -> None:
    assert target_upstream(forward(target)) == sent


def test_a_header_that_shows_the_key_does_not_come_back() -> None:
    heard = [(b"X-Echo", b"<" + SECRET + b">"), (b"X-Fine", b"1")]

    assert headers_downstream(heard, SECRET) == [(b"x-fine", b"1")]


def test_a_credential_shows_its_value_to_nobody() -> None:
    said = forward()

    assert SECRET.decode() not in repr(KEY) + str(KEY) + repr(said)
    assert not hasattr(KEY, "__dict__")


@pytest.mark.parametrize("value", [b"", b"sk-a\r\nX: y", b"sk-a\n", b"sk-\xff", b" sk"])
def test_a_key_that_no_header_may_have_is_refused_without_showing_it(value: bytes) -> None:
    with pytest.raises(ValueError, match="characters") as raised:
        Credential(b"authorization", value)

    assert "sk" not in str(raised.value)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_secret_is_masked_wherever_the_stream_is_cut(cut: int) -> None:
    data = b"sk-sk-re " + SECRET + SECRET + b" " + SECRET[:-1]
    mask = Mask(SECRET)

    pieces = [mask.feed(data[at : at + cut]) for at in range(0, len(data), cut)]

    assert b"".join([*pieces, mask.end()]) == data.replace(SECRET, b"*" * len(SECRET))


def test_what_is_no_beginning_of_a_secret_is_not_held() -> None:
    assert Mask(SECRET).feed(b"data: {}\n\n") == b"data: {}\n\n"


def test_too_short_a_secret_is_none() -> None:
    assert Mask(b"x").feed(b"xxx") == b"xxx"
