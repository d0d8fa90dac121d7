"""How paths, hosts and names of variables are written where a capsule asks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from capsule_runtime.core.destinations import parse_destination
from capsule_runtime.core.env_names import is_refused
from capsule_runtime.core.grants import KINDS, TIERS, Grants, Item

_MOST = 128
"""As many of one kind as a person could be asked to look through."""
_LONGEST_PATH = 4096
# Patterns are compiled when they are first used: most capsules ask for nothing.
_CONTROLS = r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
PROVIDER = r"[a-z][a-z0-9-]{0,31}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,127}"


class Trouble(NamedTuple):
    """A value that cannot stand where it stands."""

    key: tuple[str, int]
    value: str
    what: str


def is_own_path(path: str) -> bool:
    """Tell whether *path* is in the capsule's own folder, for which nothing is to be granted."""
    return path == "." or path.startswith("./")


def host_in_one_form(host: str) -> str:
    """Return *host*, which is written right, in lower case, without a trailing dot and the usual port."""
    return str(parse_destination(host))


def troubles(asked: Grants, *, of_manifest: bool) -> Iterator[Trouble]:
    """Yield what is wrong with the form of *asked*; a manifest may also name its own folder."""
    forms: dict[str, Callable[[str], str | None]] = {
        "read": trouble_with_own_path if of_manifest else trouble_with_path,
        "write": trouble_with_written_path if of_manifest else trouble_with_path,
        "hosts": trouble_with_host,
        "env": trouble_with_variable,
        "secrets": trouble_with_variable,
        "providers": trouble_with_provider,
    }
    for field, trouble_with in forms.items():
        values: tuple[str, ...] = getattr(asked, field)
        if len(values) > _MOST:
            yield Trouble(
                (field, _MOST), values[_MOST], f"it is one more than the {_MOST} there may be"
            )
        for index, value in enumerate(values):
            if what := trouble_with(value):
                yield Trouble((field, index), value, what)


def parse_item(word: str) -> Item:
    """Return what a word such as `read=/usr/share/dict` grants.

    Raises:
        ValueError: it grants nothing that there is.
    """
    kind, has_value, value = word.partition("=")
    if kind not in KINDS or not has_value:
        raise ValueError(f"{word!r} is no grant; write KIND=VALUE with one of {', '.join(KINDS)}")
    if what := _FORMS[kind](value):
        raise ValueError(f"{word!r}: {what}")
    return Item(kind, host_in_one_form(value) if kind == "host" else value)


def hint_for(word: str) -> str:
    """Return how something of the kind of *word* is granted, for whoever wrote it wrong."""
    if word.startswith("host="):
        return (
            "For instance --grant host=example.org, --grant 'host=*.example.org:8443',"
            " --grant host=10.1.2.3 or --grant host=http://example.org."
        )
    if word.startswith("provider="):
        return "Write --grant provider=NAME; `capsule explain E-PRO-001` says which there are."
    return "For instance --grant read=/usr/share/dict."


def trouble_with_own_path(path: str) -> str | None:
    """Say what is wrong with *path*, which may also be one inside the capsule."""
    if not is_own_path(path):
        return trouble_with_path(path)
    return "it leads out of the capsule" if ".." in path.split("/") else trouble_with_text(path)


def trouble_with_written_path(path: str) -> str | None:
    """Say what is wrong with *path*, which a manifest wants to write to."""
    if is_own_path(path):
        return "a capsule never writes into its own folder: it would not be what was trusted"
    return trouble_with_path(path)


def trouble_with_path(path: str) -> str | None:
    """Say what is wrong with *path*, which a capsule wants and does not own."""
    if not path.startswith(("/", "~/")) and path != "~":
        return "it is neither absolute nor begins with ~/"
    if ".." in path.split("/"):
        return "it goes up with .."
    if "*" in path or "?" in path:
        return "a path has no wildcards: it covers all that lies beneath it"
    return trouble_with_text(path)


def trouble_with_text(path: str) -> str | None:
    """Say what is wrong with *path* as a text that is shown and recorded."""
    if re.search(_CONTROLS, path):
        return "it holds control characters, or bytes that are no text"
    if len(path) > _LONGEST_PATH:
        return f"it is longer than {_LONGEST_PATH} characters"
    return None


def trouble_with_host(host: str) -> str | None:
    """Say what is wrong with *host*: a name or an address, maybe with a port, maybe behind http://."""
    try:
        place = parse_destination(host)
    except ValueError as exc:
        return str(exc)
    if place.is_literal:
        from capsule_runtime.core.addresses import why_never_granted  # few ask for any

        return why_never_granted(place.host)
    return None


def trouble_with_variable(name: str) -> str | None:
    """Say what is wrong with *name*, a variable of the caller's environment."""
    if not re.fullmatch(_VARIABLE, name):
        return "the name of a variable is made of letters, digits and underscores"
    if is_refused(name, by_caller=False):
        return "no capsule gets the caller's value of it"
    return None


def trouble_with_provider(name: str) -> str | None:
    """Say what is wrong with *name*, a provider of models."""
    if re.fullmatch(PROVIDER, name):
        return None
    return "a provider is named by lower-case letters, digits and dashes, and never by an address"


def _trouble_with_tier(tier: str) -> str | None:
    return None if tier in TIERS else f"the tiers are {', '.join(TIERS)}"


_FORMS: dict[str, Callable[[str], str | None]] = {
    "read": trouble_with_path,
    "write": trouble_with_path,
    "host": trouble_with_host,
    "env": trouble_with_variable,
    "secret": trouble_with_variable,
    "provider": trouble_with_provider,
    "tier": _trouble_with_tier,
}
