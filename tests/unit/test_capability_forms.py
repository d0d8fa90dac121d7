"""How paths, hosts and variables are written, and which are refused wherever they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.capability_forms import (
    hint_for,
    host_in_one_form,
    parse_item,
    trouble_with_host,
    trouble_with_own_path,
    trouble_with_path,
    trouble_with_provider,
    trouble_with_variable,
    trouble_with_written_path,
    troubles,
)
from capsule_runtime.core.grants import Grants, Item

LABEL = "a" * 63


@pytest.mark.parametrize("path", ["/a", "/a b/ü", "~", "~/a", "/a/..b", "/", "/a/...", "/[a]"])
def test_paths_that_are_written_right(path: str) -> None:
    assert trouble_with_path(path) is None


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("a", "neither absolute"),
        ("", "neither absolute"),
        ("~other/a", "neither absolute"),
        ("./a", "neither absolute"),
        ("/a/../b", ".."),
        ("~/..", ".."),
        ("/a/*", "wildcards"),
        ("/a?", "wildcards"),
        ("/a\x1b[2J", "control"),
        ("/a\nb", "control"),
        ("/a\x00", "control"),
        ("/a\x9b", "control"),
        ("/" + "a" * 4096, "longer than"),
    ],
)
def test_paths_that_are_not(path: str, part: str) -> None:
    assert part in (trouble_with_path(path) or "")


def test_a_path_of_its_own_may_be_read_and_not_written() -> None:
    assert trouble_with_own_path("./a") is None
    assert trouble_with_own_path(".") is None
    assert "out of the capsule" in (trouble_with_own_path("./a/../../b") or "")
    assert "own folder" in (trouble_with_written_path("./a") or "")
    assert trouble_with_written_path("/a") is None


@pytest.mark.parametrize(
    "host",
    [
        "a",
        "localhost",
        "example.org",
        "EXAMPLE.org.",
        "a-b.c_d.org:1",
        "example.org:65535",
        "*.example.org",
        "*.example.org:8443",
        "xn--bcher-kva.example",
        "8.8.8.8",
        "10.0.0.255:80",
        "[2606:4700::1111]",
        "[fd12:3456::1]:8443",
        "http://example.org",
        "http://*.example.org:8080",
        LABEL + ".org",
        "1.example",
    ],
)
def test_hosts_that_are_written_right(host: str) -> None:
    assert trouble_with_host(host) is None


@pytest.mark.parametrize(
    ("host", "part"),
    [
        ("", "a host is"),
        ("*", "a host is"),
        ("*.org", "two names"),
        ("*.*.example.org", "a * elsewhere than in one leading"),
        ("a.*.example.org", "a * elsewhere than in one leading"),
        ("*example.org", "a * elsewhere than in one leading"),
        ("*.10.0.0.1", "four numbers"),
        ("https://a.org", "only http://"),
        ("http://a.org/", "a host is"),
        ("http://", "a host is"),
        ("-a.org", "a host is"),
        ("a..org", "a host is"),
        ("a b.org", "a host is"),
        ("a.org\n", "a host is"),
        ("a.org/x", "a host is"),
        ("user@a.org", "a host is"),
        ("bücher.example", "as it stands in DNS: xn--bcher-kva.example"),
        ("straße.example", "as it stands in DNS, with xn--"),
        (LABEL + "a.org", "a host is"),
        (".".join([LABEL] * 4), "a host is"),
        ("a.org:", "a port"),
        ("a.org:0", "a port"),
        ("a.org:65536", "a port"),
        ("a.org:080", "a port"),
        ("a.org:https", "a port"),
        ("a.org:4:4", "a port"),
        ("256.0.0.1", "four numbers"),
        ("127.1", "four numbers"),
        ("2130706433", "four numbers"),
        ("0x7f.1", "four numbers"),
        ("0x7f000001", "four numbers"),
        ("010.0.0.1", "four numbers"),
        ("[::1", "in brackets"),
        ("[::1]443", "in brackets"),
        ("2606:4700::1111", "in brackets"),
        ("[2606:4700:::1111]", "in brackets"),
        ("[fe80::1%eth0]", "zone"),
        ("[2606:4700::1111]:0", "a port"),
        ("127.0.0.1", "loopback"),
        ("[::1]", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("169.254.169.254:80", "metadata"),
        ("168.63.129.16", "metadata"),
        ("169.254.1.1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("100.64.0.1", "shared"),
        ("[::ffff:10.0.0.1]", "in no other form"),
        ("[64:ff9b::a00:1]", "in no other form"),
    ],
)
def test_hosts_that_are_not(host: str, part: str) -> None:
    assert part in (trouble_with_host(host) or "")


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("A.org", "a.org"),
        ("a.org.", "a.org"),
        ("a.org:443", "a.org"),
        ("a.org.:80", "a.org:80"),
        ("HTTP://A.org:80", "http://a.org"),
        ("http://a.org:443", "http://a.org:443"),
        ("[2606:4700:0:0::1]:443", "[2606:4700::1]"),
    ],
)
def test_a_host_has_one_form(host: str, form: str) -> None:
    assert host_in_one_form(host) == form
    assert host_in_one_form(form) == form


@pytest.mark.parametrize(
    "name",
    """
    LD_PRELOAD LD_LIBRARY_PATH BASH_ENV NODE_OPTIONS PYTHONPATH PYTHONSTARTUP GIT_SSH_COMMAND
    HTTP_PROXY https_proxy ALL_PROXY no_proxy SSH_AUTH_SOCK HOME PATH TMPDIR CAPSULE_RUN
    """.split(),
)
def test_variables_that_no_capsule_gets(name: str) -> None:
    assert "no capsule" in (trouble_with_variable(name) or "")


@pytest.mark.parametrize("name", ["EDITOR", "GITHUB_TOKEN", "_", "a1", "PROXY", "MY_HOME"])
def test_variables_that_may_be_had(name: str) -> None:
    assert trouble_with_variable(name) is None


@pytest.mark.parametrize("name", ["", "A-B", "1A", "A=B", "A\n", "Ä", "A" * 129])
def test_what_is_no_name_of_a_variable(name: str) -> None:
    assert "letters" in (trouble_with_variable(name) or "")


@pytest.mark.parametrize(
    "name",
    ["", "A", "1a", "-a", "a_b", "a.b", "a/b", "a\n", "https://example.org", "a" * 33, "ä", "*"],
)
def test_what_is_no_name_of_a_provider(name: str) -> None:
    assert "never by an address" in (trouble_with_provider(name) or "")


@pytest.mark.parametrize(
    ("word", "item"),
    [
        ("read=/a", Item("read", "/a")),
        ("write=~/a=b", Item("write", "~/a=b")),
        ("host=A.org:443", Item("host", "a.org")),
        ("env=EDITOR", Item("env", "EDITOR")),
        ("secret=TOKEN", Item("secret", "TOKEN")),
        ("provider=our-models-2", Item("provider", "our-models-2")),
        ("tier=advisory", Item("tier", "advisory")),
    ],
)
def test_words_that_grant(word: str, item: Item) -> None:
    assert parse_item(word) == item


@pytest.mark.parametrize(
    "word",
    ["", "all", "read", "read=", "raed=/a", "hosts=a.org", "tier=none", "env=LD_PRELOAD", "=a"],
)
def test_words_that_grant_nothing(word: str) -> None:
    with pytest.raises(ValueError, match=r"no grant|:"):
        parse_item(word)


@given(st.text(max_size=30))
def test_any_word_is_a_grant_or_refused(word: str) -> None:
    try:
        item = parse_item(word)
    except ValueError:
        return
    assert parse_item(str(item)) == item


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("host=*", "host=10.1.2.3"),
        ("provider=A", "E-PRO-001"),
        ("raed=/a", "read=/usr"),
    ],
)
def test_who_writes_a_grant_wrong_is_shown_one_of_its_kind(word: str, part: str) -> None:
    assert part in hint_for(word)


def test_troubles_are_found_where_they_stand() -> None:
    asked = Grants(read=("./a",), write=("/a", "./b"), hosts=("*",), secrets=("A", "HOME"))

    assert [one.key for one in troubles(asked, of_manifest=True)] == [
        ("write", 1),
        ("hosts", 0),
        ("secrets", 1),
    ]
    assert next(one.key for one in troubles(asked, of_manifest=False)) == ("read", 0)


def test_there_is_a_bound_on_what_a_person_has_to_look_through() -> None:
    [trouble] = troubles(Grants(env=tuple(f"A{n}" for n in range(129))), of_manifest=True)

    assert trouble.key == ("env", 128)
