"""The providers of one run: what was granted, and what the caller's config.toml says of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from capsule_runtime.core.capability_forms import host_in_one_form
from capsule_runtime.core.configured_providers import provider_of
from capsule_runtime.core.destinations import covers_destination
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.providers import BUILT_IN, EnvKey, NoKey, Provider, clash
from capsule_runtime.errors import UsageError
from capsule_runtime.host.config_file import load_config

if TYPE_CHECKING:
    from capsule_runtime.request import Ready


def known_providers() -> Mapping[str, Provider]:
    """Return all providers that there are for this caller.

    Raises:
        UsageError: config.toml is wrong.
    """
    config = load_config()
    if config is None or not config.providers:
        return BUILT_IN
    return {**BUILT_IN, **{name: provider_of(name, it) for name, it in config.providers.items()}}


def providers_of(names: Iterable[str], given: Iterable[str] = ()) -> tuple[Provider, ...]:
    """Return the providers *names*; *given* are the variables that a harness gets from elsewhere.

    Raises:
        UsageError: E-PRO-001, nobody knows one; E-PRO-002, a harness cannot be told of one.
    """
    names = tuple(names)
    if not names:
        return ()
    known = known_providers()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(known)}."
            raise UsageError("E-PRO-001", f"nobody knows the provider {name!r}", hint)
    found = tuple(known[name] for name in names)
    if both := clash(found):
        what = f"{both[0]} and {both[1]} would be told to the harness by the same variables"
        raise UsageError("E-PRO-002", what, "Grant one of them.")
    _refuse_given(found, frozenset(given))
    return found


def with_providers(ready: Ready) -> Ready:
    """Return *ready* with the providers that it was granted, and what that means for its account.

    Raises:
        UsageError: E-PRO-001, nobody knows one; E-PRO-002, a harness cannot be told of one; E-USE-056,
            there is none, and calls are to be recorded or played.
    """
    if not ready.grants.providers:
        raise UsageError(
            "E-USE-056",
            "only calls that pass the gateway are recorded and played, and this run has none",
            "Grant it a provider: --grant provider=NAME",
        )
    providers = providers_of(ready.grants.providers, ready.env)
    has_other = has_other_way(ready.grants, ready.env, ready.capsule.described.keys)
    has_other = has_other or ready.request.upstream is not None
    terms = ready.terms if has_other else ready.terms.by_gateway()
    return replace(ready, providers=providers, terms=terms)


def caveats_of_providers(providers: Iterable[Provider], environ: Mapping[str, str]) -> list[str]:
    """Return what a person should know of *providers*; *environ* is the caller's environment."""
    caveats = list[str]()
    for provider in providers:
        match provider.key:
            case NoKey():
                told = "it takes no key; calls may cost money"
            case EnvKey(names) if not any(map(environ.get, names)):
                told = f"there is no key: {' or '.join(names)} is not set here"
            case _:
                told = "the key stays outside; calls cost money"
        caveats.append(f"provider={provider.name}: {told}")
    return caveats


def has_other_way(grants: Grants, given: Iterable[str], keys: Iterable[str]) -> bool:
    """Tell whether a harness has a way to a model beside the gateway.

    That takes a key (*keys* are the variables that may hold its own, *given* what it gets) or a
    host of a provider's.
    """
    if frozenset(keys) & frozenset(given):
        return True
    if not grants.hosts:
        return False
    places = list(filter(None, map(_place_of, known_providers().values())))
    return any(covers_destination(host, place) for host in grants.hosts for place in places)


def _place_of(provider: Provider) -> str | None:
    """Return where *provider* is, in the one form in which grants are compared.

    None where no grant can be written for it.
    """
    try:
        return host_in_one_form(provider.origin.authority)
    except ValueError:
        return None


def _refuse_given(providers: Iterable[Provider], given: frozenset[str]) -> None:
    for provider in providers:
        names = {provider.variables.base_url, provider.variables.key}
        if both := sorted(names & given):
            what = f"{both[0]} is given, and the gateway sets it for {provider.name}"
            raise UsageError("E-PRO-002", what, "Leave it out: the key stays with the gateway.")
