"""Providers: what is built in, what a caller may say of one, and how a harness is told."""

from __future__ import annotations

import traceback

import pytest

from capsule_runtime.core.configured_providers import Misconfigured, provider_of
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.origins import origin_of
from capsule_runtime.core.provider_settings import ProviderSettings
from capsule_runtime.core.providers import (
    BUILT_IN,
    CallLimits,
    CommandKey,
    EnvKey,
    FileKey,
    NoKey,
    clash,
    told,
)

CANARY = "canary-4f1c9b"
OURS = ProviderSettings(family="openai", base_url="https://models.example.org/v1", key_env="OURS")


def wrong(name: str, **said: object) -> Misconfigured:
    with pytest.raises(Misconfigured) as caught:
        provider_of(name, ProviderSettings(**said))  # type: ignore[arg-type]  # any key, by name
    return caught.value


@pytest.mark.parametrize(
    ("name", "url", "keys", "apis"),
    [
        ("anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), (Api.MESSAGES,)),
        (
            "google",
            "https://generativelanguage.googleapis.com",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            (Api.GENERATE,),
        ),
        ("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), (Api.CHAT, Api.RESPONSES)),
        (
            "openrouter",
            "https://openrouter.ai/api/v1",
            ("OPENROUTER_API_KEY",),
            (Api.CHAT, Api.RESPONSES),
        ),
    ],
)
def test_what_is_built_in(name: str, url: str, keys: tuple[str, ...], apis: object) -> None:
    provider = BUILT_IN[name]

    assert str(provider.origin) == url
    assert provider.key == EnvKey(keys)
    assert provider.apis == apis
    assert provider.prices == provider.name == name


def test_what_is_said_of_none_is_as_built_in() -> None:
    for name, provider in BUILT_IN.items():
        assert provider_of(name, ProviderSettings()) == provider


def test_a_built_in_provider_can_be_limited_without_a_word_on_its_key() -> None:
    provider = provider_of(
        "anthropic", ProviderSettings(models=("claude-*",), requests_per_minute=3)
    )

    assert provider.key == BUILT_IN["anthropic"].key
    assert provider.limits == CallLimits(requests_per_minute=3, models=("claude-*",))


def test_one_of_the_callers_own() -> None:
    provider = provider_of("ours", OURS)

    assert str(provider.origin) == "https://models.example.org/v1"
    assert (provider.name, provider.prices) == ("ours", "ours")
    assert provider.variables == BUILT_IN["openai"].variables


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ({"key_env": "A_KEY"}, EnvKey(("A_KEY",))),
        ({"key_env": "a_key"}, EnvKey(("a_key",))),
        ({"key_command": ("pass", "show", "a/b c")}, CommandKey(("pass", "show", "a/b c"))),
        ({"key_command": ("~/bin/key",)}, CommandKey(("~/bin/key",))),
        ({"key_command": ("/bin/key",)}, CommandKey(("/bin/key",))),
        ({"key_file": "~/.key"}, FileKey("~/.key")),
        ({"keyless": True}, NoKey()),
    ],
)
def test_a_key_has_one_source(said: dict[str, object], source: object) -> None:
    assert provider_of("openai", ProviderSettings(**said)).key == source  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("key", ["family", "base_url"])
def test_an_own_provider_says_what_it_is_and_where(key: str) -> None:
    said = {"family": "openai", "base_url": "https://example.org/v1", "keyless": True}
    del said[key]
    error = wrong("ours", **said)

    assert (error.key, error.is_missing) == (key, True)


def test_an_own_provider_says_where_its_key_is() -> None:
    error = wrong("ours", family="openai", base_url="https://example.org/v1")

    assert (error.key, error.is_missing) == ("key_env", True)
    assert "keyless = true" in str(error)


def test_the_usual_key_does_not_go_to_another_place() -> None:
    error = wrong("anthropic", base_url="https://elsewhere.example.org")

    assert (error.key, error.is_missing) == ("key_env", True)


@pytest.mark.parametrize(
    ("key", "said", "part"),
    [
        ("family", {"family": "openai"}, "built in"),
        ("base_url", {"base_url": "ftp://example.org"}, "https://"),
        ("base_url", {"base_url": "http://example.org"}, "without TLS"),
        ("base_url", {"base_url": f"https://me:{CANARY}@example.org"}, "no user"),
        ("base_url", {"base_url": "https://example.org/v1"}, "version"),
        ("base_url", {"base_url": "https://example.org/v1beta/"}, "version"),
        ("key_env", {"key_env": ""}, "name of a variable"),
        ("key_env", {"key_env": CANARY}, "name of a variable"),
        ("key_env", {"key_env": "AIzaCanary4f1c9b"}, "name of a variable"),
        ("key_env", {"key_env": "A_KEY\n"}, "name of a variable"),
        ("key_command", {"key_command": ()}, "begins with a program"),
        ("key_command", {"key_command": ("",)}, "begins with a program"),
        ("key_command", {"key_command": ("./key",)}, "begins with a program"),
        ("key_command", {"key_command": ("bin/key",)}, "begins with a program"),
        ("key_command", {"key_command": ("/bin/",)}, "begins with a program"),
        ("key_command", {"key_command": ("pass", "a\0b")}, "NUL"),
        ("key_file", {"key_file": "/a", "key_env": "A"}, "key_env already"),
        ("key_command", {"key_command": ("a",), "key_env": "A"}, "key_env already"),
        ("keyless", {"keyless": True, "key_file": "/a"}, "key_file already"),
        ("prices", {"prices": ""}, "table of prices"),
        ("prices", {"prices": "anthropic:claude"}, "no model"),
        ("chat_cap", {"chat_cap": "max_tokens"}, "have none"),
        ("requests_per_minute", {"requests_per_minute": 0}, "from 1 to"),
        ("concurrent_calls", {"concurrent_calls": -1}, "from 1 to"),
        ("max_output_tokens", {"max_output_tokens": 2**31}, "from 1 to"),
        ("models", {"models": ("",)}, "at the end"),
        ("models", {"models": ("claude-*-mini",)}, "at the end"),
        ("models", {"models": ("claude-**",)}, "at the end"),
        ("aliases", {"aliases": {"fast": ""}}, "cannot be a model's name"),
        ("aliases", {"aliases": {"fast": "a\nb"}}, "cannot be a model's name"),
        ("aliases", {"aliases": {"fast": "b"}, "models": ("a",)}, "not one of models"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(key: str, said: dict[str, object], part: str) -> None:
    error = wrong("anthropic", **said)

    assert (error.key, error.is_missing) == (key, False)
    assert part in str(error)
    assert CANARY not in str(error)


def test_an_alias_for_what_is_named_in_a_path_can_stand_in_one() -> None:
    error = wrong("google", aliases={"fast": "tuned/../fast"})

    assert error.key == "aliases"
    assert provider_of("openai", ProviderSettings(aliases={"fast": "org/fast"})).limits.aliases


def test_interfaces_of_one_family_say_their_version_in_the_base() -> None:
    assert provider_of("ours", OURS).target("/v1/models?limit=2") == "/models?limit=2"
    assert provider_of("ours", OURS).target("/models") == "/models"
    assert BUILT_IN["anthropic"].target("/v1/messages") == "/v1/messages"


@pytest.mark.parametrize(
    ("patterns", "model", "may"),
    [
        ((), "any", True),
        (("a-1",), "a-1", True),
        (("a-1",), "a-12", False),
        (("a-*",), "a-12", True),
        (("b", "a-*"), "ba-1", False),
        (("*",), "any", True),
    ],
)
def test_models_are_allowed_by_name_or_beginning(
    patterns: tuple[str, ...], model: str, may: bool
) -> None:
    assert CallLimits(models=patterns).allows(model) is may


@pytest.mark.parametrize(
    ("name", "header", "value"),
    [
        ("anthropic", b"x-api-key", CANARY.encode()),
        ("google", b"x-goog-api-key", CANARY.encode()),
        ("openai", b"authorization", b"Bearer " + CANARY.encode()),
        ("openrouter", b"authorization", b"Bearer " + CANARY.encode()),
    ],
)
def test_each_takes_its_key_in_a_header_of_its_own(name: str, header: bytes, value: bytes) -> None:
    credential = BUILT_IN[name].credential(CANARY)

    assert (credential.header, credential.reveal()) == (header, value)
    assert credential.secret == CANARY.encode()
    assert CANARY not in repr(credential)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("more", ["ü", "\r", "\rx: y", "\n", "\0", " b", "\t", "\x7f", "\ud800"])
def test_what_no_key_may_have_is_refused_and_not_shown(name: str, more: str) -> None:
    with pytest.raises(ValueError, match="characters") as caught:
        BUILT_IN[name].credential(CANARY + more)

    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_an_empty_key_is_none() -> None:
    with pytest.raises(ValueError, match="characters"):
        BUILT_IN["openai"].credential("")


def test_two_that_are_told_by_the_same_variables_clash() -> None:
    ours = provider_of("ours", OURS)

    assert clash([BUILT_IN["openai"], BUILT_IN["anthropic"], ours]) == ("openai", "ours")
    assert clash([BUILT_IN["openai"], BUILT_IN["openai"]]) is None
    assert clash(BUILT_IN.values()) is None


def test_a_harness_is_told_a_place_on_loopback_and_a_marker() -> None:
    variables = told((BUILT_IN["anthropic"], provider_of("ours", OURS)), 4000, "marker")

    assert variables == {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:4000/anthropic",
        "ANTHROPIC_API_KEY": "marker",
        "OPENAI_BASE_URL": "http://127.0.0.1:4000/ours/v1",
        "OPENAI_API_KEY": "marker",
    }


def test_a_place_of_its_own_may_be_this_machine() -> None:
    said = ProviderSettings(family="openai", base_url="http://localhost:8080/v1/", keyless=True)

    assert provider_of("ours", said).origin == origin_of("http://127.0.0.1:8080/v1")
