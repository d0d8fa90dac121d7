"""Who serves models: where each is, whose key it takes, and how a harness is told of it.

Which key goes where is fixed here and in the caller's config.toml. A capsule names a provider, and
never an address or a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import assert_never

from msgspec import Struct, field

from capsule_runtime.core.gateway.apis import Api, ChatCap
from capsule_runtime.core.origins import Origin, origin_of
from capsule_runtime.core.provider_settings import Family
from capsule_runtime.core.relaying import Credential

_KEY = re.compile(r"[!-~]+")


class EnvKey(Struct, frozen=True, tag="env"):
    """The key is in the first of these variables of the caller that is set."""

    names: tuple[str, ...]


class CommandKey(Struct, frozen=True, tag="command"):
    """The key is the line that this program prints."""

    argv: tuple[str, ...]


class FileKey(Struct, frozen=True, tag="file"):
    """The key is the line in this file, which nobody but the caller may read."""

    path: str


class NoKey(Struct, frozen=True, tag="none"):
    """It takes none."""


KeySource = EnvKey | CommandKey | FileKey | NoKey


class Variables(Struct, frozen=True):
    """How a harness is told: the variables of the address and of the key.

    *path* is what the address ends in.
    """

    base_url: str
    key: str
    path: str = ""


class CallLimits(Struct, frozen=True, omit_defaults=True):
    """What the caller set for the calls of one run to one provider. None is no limit."""

    requests_per_minute: int | None = None
    concurrent_calls: int | None = None
    models: tuple[str, ...] = ()
    """Those that may be called, by their names; `*` at the end stands for any. None: all."""
    max_output_tokens: int | None = None
    features: tuple[str, ...] = ()
    """Features without a bound that the caller answers for, as a refusal names them."""
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """What is called instead of what is asked for."""

    def allows(self, model: str) -> bool:
        """Tell whether *model* may be called."""
        return not self.models or any(_fits(pattern, model) for pattern in self.models)


def apis_of(family: Family) -> tuple[Api, ...]:
    """Return the interfaces that all of *family* serve."""
    match family:
        case "anthropic":
            return (Api.MESSAGES,)
        case "openai":
            return (Api.CHAT, Api.RESPONSES)
        case "google":
            return (Api.GENERATE,)
        case _:
            assert_never(family)


class Provider(Struct, frozen=True):
    """One provider. *prices* is its name in the table of prices."""

    name: str
    family: Family
    origin: Origin
    key: KeySource
    prices: str
    variables: Variables
    limits: CallLimits = CallLimits()
    chat_cap: ChatCap = "max_completion_tokens"

    @property
    def apis(self) -> tuple[Api, ...]:
        """Return the interfaces that it serves."""
        return apis_of(self.family)

    def credential(self, secret: str) -> Credential:
        """Return *secret* as it is sent.

        Raises:
            ValueError: no header can be made of it; the message does not show it.
        """
        match self.family:
            case "anthropic":
                return Credential(b"x-api-key", _bytes(secret))
            case "openai":
                return Credential(b"authorization", b"Bearer " + _bytes(secret))
            case "google":
                return Credential(b"x-goog-api-key", _bytes(secret))
            case _:
                assert_never(self.family)

    def target(self, target: str) -> str:
        """Return *target*, as a harness wrote it, beneath the base of the origin."""
        return target.removeprefix("/v1") if self.family == "openai" else target


def _provider(
    name: str, family: Family, url: str, variables: Variables, *more_keys: str
) -> Provider:
    source = EnvKey((variables.key, *more_keys))
    return Provider(name, family, origin_of(url), source, name, variables)


USUAL_VARIABLES: dict[Family, Variables] = {
    "anthropic": Variables("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": Variables("OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    "google": Variables("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}
"""How the harnesses of each family are told."""
BUILT_IN: Mapping[str, Provider] = {
    one.name: one
    for one in (
        _provider(
            "anthropic", "anthropic", "https://api.anthropic.com", USUAL_VARIABLES["anthropic"]
        ),
        _provider(
            "google",
            "google",
            "https://generativelanguage.googleapis.com",
            USUAL_VARIABLES["google"],
            "GOOGLE_API_KEY",
        ),
        _provider("openai", "openai", "https://api.openai.com/v1", USUAL_VARIABLES["openai"]),
        _provider(
            "openrouter",
            "openai",
            "https://openrouter.ai/api/v1",
            Variables("OPENROUTER_BASE_URL", "OPENROUTER_API_KEY", "/v1"),
        ),
    )
}
"""What is known of without a word in config.toml."""


def clash(providers: Iterable[Provider]) -> tuple[str, str] | None:
    """Return two of *providers* that would be told to a harness by the same variables."""
    seen: dict[str, str] = {}
    for provider in providers:
        if (other := seen.setdefault(provider.variables.key, provider.name)) != provider.name:
            return other, provider.name
    return None


def told(providers: Iterable[Provider], port: int, marker: str) -> dict[str, str]:
    """Return the variables that lead a harness to the gateway at *port* of its loopback."""
    found: dict[str, str] = {}
    for provider in providers:
        names = provider.variables
        found[names.base_url] = f"http://127.0.0.1:{port}/{provider.name}{names.path}"
        found[names.key] = marker
    return found


def _fits(pattern: str, model: str) -> bool:
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern


def _bytes(secret: str) -> bytes:
    # Looked at beforehand: the error of an encoder holds what it could not encode.
    if not _KEY.fullmatch(secret):
        raise ValueError("the key has characters that no key may have")
    return secret.encode("ascii")
