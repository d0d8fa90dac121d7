"""Who grants what a capsule asks for.

Grants come from the command line, the environment, config.toml and a recorded trust; they add up.
Floors of containment come from the first three, and the strictest holds.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from capsule_runtime.asking import asked_by
from capsule_runtime.core.capability_forms import hint_for, host_in_one_form, parse_item
from capsule_runtime.core.grants import (
    TIERS,
    Capabilities,
    Grants,
    Item,
    Policy,
    Tier,
    Wish,
    effective,
    floor_of,
    granted_by,
    grants_of,
    items_of,
)
from capsule_runtime.core.permissions import policy_of
from capsule_runtime.errors import TrustError, UsageError
from capsule_runtime.host.capsule import Capsule
from capsule_runtime.host.config_file import load_config
from capsule_runtime.host.own_paths import real_path

if TYPE_CHECKING:
    from capsule_runtime.config import Config
    from capsule_runtime.host.capsule_digest import Digest
    from capsule_runtime.host.trust_file import Trust

GRANT_VARIABLE = "CAPSULE_GRANT"
CONTAINMENT_VARIABLE = "CAPSULE_CONTAINMENT"


class Asks(Struct, frozen=True):
    """What a capsule asks for, for people and programs to read; each as `--grant` takes it."""

    asked: tuple[str, ...]
    granted: dict[str, str]
    """What of it is granted, and where."""
    missing: tuple[str, ...]
    """What nobody granted: with any of it, there is no run."""
    digest: str | None
    """Of the capsule's folder, if it asks for anything."""


class Standing(Struct, frozen=True):
    """What one capsule asks for, and how that stands now."""

    granted_by: dict[Item, str | None]
    """Everything that is asked for, and where it is granted; None where nobody does."""
    floor: Tier
    """The weakest tier that will do."""
    is_named: bool = False
    """Whether the caller named a tier: then it is that one, also where a stronger one can be had."""
    digest: Digest | None = None
    """Of the capsule's folder; None when it asks for nothing."""
    trusted: Trust | None = None
    """What was trusted in its folder, whether that still holds or not."""

    @property
    def missing(self) -> tuple[Item, ...]:
        """Return what nobody grants."""
        return tuple(item for item, source in self.granted_by.items() if source is None)

    @property
    def grants(self) -> Grants:
        """Return what a run gets."""
        return effective(self.granted_by, (i for i, source in self.granted_by.items() if source))

    @property
    def asks(self) -> Asks:
        """Return this for people and programs to read."""
        return Asks(
            asked=tuple(map(str, self.granted_by)),
            granted={str(item): source for item, source in self.granted_by.items() if source},
            missing=tuple(map(str, self.missing)),
            digest=self.digest.text if self.digest else None,
        )

    @property
    def has_changed(self) -> bool:
        """Tell whether the folder was trusted, and is not what it was then."""
        return bool(self.trusted and self.digest and self.trusted.digest != self.digest.text)


def standing_of(
    capsule: Capsule, granted: Iterable[str], containment: str | None, state: Path
) -> Standing:
    """Return what *capsule* asks for, and which of it is granted; reads all of its folder if it asks.

    *granted* and *containment* are the words of this one run.

    Raises:
        UsageError: a grant or a tier is no such thing, or config.toml is wrong.
        ManifestError: E-MAN-010, it asks for what no capsule ever gets.
        TrustError: E-TRU-003, its folder cannot be counted; E-TRU-004, a record is damaged.
    """
    config = load_config()
    floors = _floors(containment, config)
    sources = _sources(capsule, granted, config)
    wanted = capsule.manifest.capabilities.containment
    asked = asked_by(capsule, floors, state)
    floor = floor_of(wanted, floors)
    if not asked or capsule.is_bare:
        return Standing(granted_by(asked, sources), floor, bool(floors))
    from capsule_runtime.host.capsule_digest import digest_of  # most capsules ask for nothing
    from capsule_runtime.host.trust_file import load_trust

    digest, trusted = digest_of(capsule.folder), load_trust(state, capsule.folder)
    if trusted and trusted.digest == digest.text:
        sources[f"trusted {trusted.at}"] = trusted.asks
    return Standing(granted_by(asked, sources), floor, bool(floors), digest, trusted)


def asked_in(granted: Iterable[str]) -> Capabilities:
    """Return what a harness without a capsule asks for: what its caller *granted* it.

    Raises:
        UsageError: E-USE-032, a word grants nothing that there is.
    """
    items = [item for item in _items(granted, "--grant") if item.kind != "tier"]
    return msgspec.convert(msgspec.to_builtins(grants_of(items)), Capabilities)


def on_permission(of_capsule: Wish | None, of_run: Wish | None) -> Policy | None:
    """Return what was said of what a harness is told when it asks; None if nothing was.

    Raises:
        ContainmentError: E-CAP-005, somebody is to be asked.
        UsageError: config.toml is wrong.
    """
    config = load_config()
    return policy_of((of_run, config.run.on_permission if config else None, of_capsule))


def taken_over(grants: Grants) -> dict[str, str]:
    """Return the variables that *grants* name, as far as they are set here, now."""
    names = (*grants.env, *grants.secrets)
    return {name: os.environ[name] for name in names if name in os.environ}


def caveats_of_grants(standing: Standing, env: Mapping[str, str], net: str) -> list[str]:
    """Return what a person should know about what is asked and granted; *env* is given as well.

    *net* is how the network is contained.
    """
    caveats, grants = list[str](), standing.grants
    if net == "open" and any(item.kind == "host" for item in standing.granted_by):
        caveats.append("hosts: nothing holds the harness to them; the network is open")
    if grants.secrets:
        caveats.append(f"the harness itself holds these secrets: {', '.join(grants.secrets)}")
        from capsule_runtime.core.secrets import SECRET_CHARACTERS, secrets_of

        known = secrets_of(env, grants.secrets)
        if short := [name for name in grants.secrets if env.get(name) and name not in known]:
            caveats.append(
                f"shorter than {SECRET_CHARACTERS} characters, so not redacted: {', '.join(short)}"
            )
    if unset := [name for name in (*grants.env, *grants.secrets) if name not in env]:
        caveats.append(f"asked for, granted, and not set here: {', '.join(unset)}")
    if gone := [path for path in (*grants.read, *grants.write) if not os.path.exists(path)]:
        caveats.append(f"asked for, granted, and not there: {', '.join(gone)}")
    return caveats


def refuse_missing(capsule: Capsule, standing: Standing) -> None:
    """Refuse a run of *capsule* if it asks for what nobody grants.

    Raises:
        TrustError: E-TRU-001, it does; E-TRU-002, it was trusted and has changed since.
    """
    if not (missing := standing.missing):
        return
    name, listed = capsule.manifest.name, "".join(f"\n  {item}" for item in missing)
    words = " ".join(f"--grant {shlex.quote(str(item))}" for item in missing)
    trust = f"capsule trust {shlex.quote(str(capsule.folder))}"
    hint = f"Grant it for one run with {words}\nor trust the capsule as it is now: {trust}"
    if standing.trusted and standing.has_changed:
        raise TrustError(
            "E-TRU-002",
            f"the capsule {name!r} has changed since it was trusted ({standing.trusted.at}),"
            f" and nobody else grants what it asks for:{listed}",
            hint,
        )
    raise TrustError(
        "E-TRU-001", f"the capsule {name!r} asks for what nobody granted:{listed}", hint
    )


def _floors(containment: str | None, config: Config | None) -> tuple[Tier, ...]:
    """Return the floors that the caller set, wherever."""
    said = (
        containment,
        os.environ.get(CONTAINMENT_VARIABLE) or None,
        config.run.containment if config else None,
    )
    return tuple(_tier(word) for word in said if word is not None)


def _tier(word: str) -> Tier:
    for tier in TIERS:
        if word == tier:
            return tier
    raise UsageError(
        "E-USE-012", f"{word!r} is not a containment tier; the tiers are {', '.join(TIERS)}"
    )


def _sources(
    capsule: Capsule, granted: Iterable[str], config: Config | None
) -> dict[str, tuple[Item, ...]]:
    """Return what the caller grants, by where it is written, the nearest first."""
    sources = {"--grant": _items(granted, "--grant")}
    if words := os.environ.get(GRANT_VARIABLE):
        sources[GRANT_VARIABLE] = _items(_split(words), GRANT_VARIABLE)
    if config is not None:
        sources["config.toml"] = _configured(config.grants)
        for folder, more in config.grants_for.items():
            if real_path(folder) == str(capsule.folder):
                sources["config.toml"] += _configured(more)
    return sources


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as exc:
        raise UsageError("E-USE-032", f"{GRANT_VARIABLE} is not a list of words: {exc}") from exc


def _items(words: Iterable[str], where: str) -> tuple[Item, ...]:
    return tuple(_granted(_item(word, where)) for word in words)


def _item(word: str, where: str) -> Item:
    try:
        return parse_item(word)
    except ValueError as exc:
        raise UsageError("E-USE-032", f"{where}: {exc}", hint_for(word)) from exc


def _configured(capabilities: Capabilities) -> tuple[Item, ...]:
    return tuple(_granted(item) for item in items_of(capabilities))


def _granted(item: Item) -> Item:
    if item.kind in ("read", "write"):
        return Item(item.kind, real_path(item.value))
    return Item(item.kind, host_in_one_form(item.value)) if item.kind == "host" else item
