"""Providers as their caller configured them: what is built in, and config.toml over it."""

from __future__ import annotations

import re

from capsule_runtime.core.gateway.apis import Api, ChatCap
from capsule_runtime.core.origins import Origin, origin_of
from capsule_runtime.core.provider_settings import Family, ProviderSettings
from capsule_runtime.core.providers import (
    BUILT_IN,
    USUAL_VARIABLES,
    CallLimits,
    CommandKey,
    EnvKey,
    FileKey,
    KeySource,
    NoKey,
    Provider,
    apis_of,
)

_MOST = 2**31 - 1
# A key that is written where the name of its variable belongs has letters of both cases, or dashes.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*|[a-z_][a-z0-9_]*")
_PRICES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PROGRAM = re.compile(r"(?:~?/.*)?[^/]+", re.DOTALL)
_MODEL = re.compile(r"[!-~]{1,256}")
_MODEL_IN_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SOURCES = "key_env, key_command or key_file, or keyless = true"


class Misconfigured(Exception):
    """A provider cannot be so: the *key* of its table, and why."""

    def __init__(self, key: str, why: str, *, is_missing: bool = False) -> None:
        super().__init__(why)
        self.key = key
        self.is_missing = is_missing


def provider_of(name: str, settings: ProviderSettings) -> Provider:
    """Return the provider *name* as *settings* have it.

    Raises:
        Misconfigured: it cannot be so.
    """
    known = BUILT_IN.get(name)
    family = _family(name, settings, known)
    return Provider(
        name,
        family,
        _origin(settings, family, known),
        _key(settings, known),
        _prices(name, settings),
        known.variables if known is not None else USUAL_VARIABLES[family],
        _limits(settings, family),
        _chat_cap(settings, family),
    )


def _family(name: str, settings: ProviderSettings, known: Provider | None) -> Family:
    family = settings.family
    if known is not None:
        if family not in (None, known.family):
            raise Misconfigured("family", f"{name} is built in, and speaks those of {known.family}")
        return known.family
    if family is None:
        raise Misconfigured("family", "Say whose interfaces it speaks.", is_missing=True)
    return family


def _origin(settings: ProviderSettings, family: Family, known: Provider | None) -> Origin:
    if settings.base_url is None:
        if known is None:
            raise Misconfigured("base_url", "Say where it is.", is_missing=True)
        return known.origin
    try:
        origin = origin_of(settings.base_url)
    except ValueError as exc:
        raise Misconfigured("base_url", str(exc)) from None
    if Api.CHAT not in apis_of(family) and origin.base.endswith(("/v1", "/v1beta", "/v1alpha")):
        raise Misconfigured("base_url", "leave the version out: whoever calls it writes it")
    return origin


def _key(settings: ProviderSettings, known: Provider | None) -> KeySource:
    found = list[tuple[str, KeySource]]()
    if settings.key_env is not None:
        found.append(("key_env", _variable(settings.key_env)))
    if settings.key_command is not None:
        found.append(("key_command", _command(settings.key_command)))
    if settings.key_file is not None:
        found.append(("key_file", FileKey(settings.key_file)))
    if settings.keyless:
        found.append(("keyless", NoKey()))
    if len(found) > 1:
        raise Misconfigured(found[1][0], f"there is {found[0][0]} already: one source is enough")
    if found:
        return found[0][1]
    if known is None or settings.base_url is not None:
        # The usual key is meant for the usual place: it is not sent elsewhere unless told so.
        raise Misconfigured("key_env", f"Say where its key is: {_SOURCES}.", is_missing=True)
    return known.key


def _variable(name: str) -> EnvKey:
    if not _VARIABLE.fullmatch(name):
        raise Misconfigured(
            "key_env", "it is not the name of a variable, in capitals or in small letters"
        )
    return EnvKey((name,))


def _command(argv: tuple[str, ...]) -> CommandKey:
    if not argv or not _PROGRAM.fullmatch(argv[0]):
        # Beside a path that depends on where `capsule` is started, anybody's program could lie.
        raise Misconfigured("key_command", "it begins with a program: a name or a whole path")
    if any("\0" in word for word in argv):
        raise Misconfigured("key_command", "no word of it may hold a NUL")
    return CommandKey(argv)


def _prices(name: str, settings: ProviderSettings) -> str:
    if settings.prices is None:
        return name
    if not _PRICES.fullmatch(settings.prices):
        raise Misconfigured("prices", "name a provider of the table of prices, and no model")
    return settings.prices


def _chat_cap(settings: ProviderSettings, family: Family) -> ChatCap:
    if settings.chat_cap is not None and Api.CHAT not in apis_of(family):
        raise Misconfigured("chat_cap", f"providers of the family {family} have none")
    return settings.chat_cap or "max_completion_tokens"


def _limits(settings: ProviderSettings, family: Family) -> CallLimits:
    for key in ("requests_per_minute", "concurrent_calls", "max_output_tokens"):
        value: int | None = getattr(settings, key)
        if value is not None and not 1 <= value <= _MOST:
            raise Misconfigured(key, f"it must be from 1 to {_MOST}")
    if wrong := [it for it in settings.models if not it or "*" in it[:-1]]:
        raise Misconfigured("models", f"{wrong[0]!r}: a `*` may stand at the end, and alone there")
    limits = CallLimits(
        settings.requests_per_minute,
        settings.concurrent_calls,
        settings.models,
        settings.max_output_tokens,
        settings.allow_features,
        settings.aliases,
    )
    form = _MODEL_IN_PATH if Api.GENERATE in apis_of(family) else _MODEL
    for asked, called in settings.aliases.items():
        if not form.fullmatch(called):
            raise Misconfigured("aliases", f"{called!r}, for {asked!r}, cannot be a model's name")
        if not limits.allows(called):
            raise Misconfigured("aliases", f"{called!r}, for {asked!r}, is not one of models")
    return limits
