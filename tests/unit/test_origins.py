"""Where a key may be sent to, as a caller writes it."""

from __future__ import annotations

import pytest

from capsule_runtime.core.origins import Origin, origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.test", Origin("https", "api.test", 443)),
        ("https://API.test:8443/v1/", Origin("https", "api.test", 8443, "/v1")),
        ("https://[2001:db8::1]/a/b", Origin("https", "2001:db8::1", 443, "/a/b")),
        ("http://127.0.0.1:11434", Origin("http", "127.0.0.1", 11434)),
        ("http://[::1]:80/v1", Origin("http", "::1", 80, "/v1")),
        ("http://localhost:1234/v1", Origin("http", "127.0.0.1", 1234, "/v1")),
    ],
)
def test_an_origin_is_read(url: str, origin: Origin) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.test",
        "ftp://api.test",
        "https://",
        "https:///v1",
        "https://user:word@api.test",
        "https://api.test?key=x",
        "https://api.test#x",
        "https://api.test:0",
        "https://api.test:65536",
        "https://api.test:x",
        "https://api.test\r\nX: y",
        "https://api.test/a b",
        "https://api.test\\@evil.test",
        "https://äpi.test",
        "http://api.test",
        "http://10.0.0.1",
        "http://localhost.evil.test",
    ],
)
def test_what_is_no_safe_origin_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        origin_of(url)


@pytest.mark.parametrize(
    "url", ["https://api.test", "https://api.test:8443/v1", "https://[2001:db8::1]:8443"]
)
def test_an_origin_is_written_as_it_is_read(url: str) -> None:
    assert str(origin_of(url)) == url
