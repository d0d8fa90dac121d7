"""How a place in the network is written: `[http://]HOST[:PORT]`, and what such words cover.

HOST is a name, maybe with one leading `*.`, an IPv4 address, or an IPv6 address in brackets. Behind
a bare HOST there is TLS, on port 443 unless another is written; `http://` stands for plain HTTP, on
port 80 unless another is written.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from capsule_runtime.errors import UsageError

TLS_PORT = 443
PLAIN_PORT = 80
_PLAIN = "http://"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_FOUR_NUMBERS = r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.|$)){4}"
_LONGEST_NAME = 253


class Destination(NamedTuple):
    """A place in the network, or with a leading `*.` all places beneath a name."""

    host: str
    """In lower case, without a trailing dot; an IPv6 address in its short form, without brackets."""
    port: int = TLS_PORT
    plain: bool = False
    """Whether plain HTTP is spoken there, where all can read it, and not TLS."""

    @property
    def is_literal(self) -> bool:
        """Tell whether it is an address, and not a name."""
        return is_address(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = PLAIN_PORT if self.plain else TLS_PORT
        port = "" if self.port == usual else f":{self.port}"
        return f"{_PLAIN if self.plain else ''}{host}{port}"


def is_address(host: str) -> bool:
    """Tell whether *host*, in its one form, is an address and not a name."""
    return ":" in host or re.match(r"\d+$", host.rpartition(".")[2]) is not None


def parse_destination(text: str) -> Destination:
    """Return the place that *text* grants or asks for.

    Raises:
        ValueError: it names none; the message says why.
    """
    rest = text.lower()
    plain = rest.startswith(_PLAIN)
    rest = rest.removeprefix(_PLAIN)
    if "://" in rest:
        raise ValueError("write the host alone; only http:// may stand before it")
    host, port = split_port(rest)
    return Destination(
        parse_host(host, may_be_wild=True),
        _port(port) if port is not None else PLAIN_PORT if plain else TLS_PORT,
        plain,
    )


def parse_endpoint(text: str) -> Destination:
    """Return the one place that HOST:PORT names; a port must be written.

    Raises:
        ValueError: it names none; the message says why.
    """
    host, port = split_port(text.lower())
    if port is None:
        raise ValueError("write HOST:PORT, with the port")
    return Destination(parse_host(host), _port(port))


def parse_upstream(text: str) -> Destination:
    """Return the one place that a run's upstream is at, as `--upstream` takes it.

    Raises:
        UsageError: E-USE-052, *text* names none.
    """
    try:
        return parse_endpoint(text)
    except ValueError as exc:
        raise UsageError(
            "E-USE-052",
            f"{text!r} is no upstream: {exc}",
            "Write HOST:PORT, for instance 127.0.0.1:8080, [::1]:8080 or model.example.org:443.",
        ) from exc


def split_port(text: str) -> tuple[str, str | None]:
    """Return the host in *text*, and what stands behind its colon; None if there is no colon.

    Raises:
        ValueError: an IPv6 address stands there without brackets, or with broken ones.
    """
    if text.startswith("["):
        host, bracket, after = text.partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise ValueError("an IPv6 address stands in brackets, and a port behind them")
        return host + bracket, after[1:] if after else None
    if text.count(":") > 1 and re.fullmatch(r"[0-9a-f:.]+", text):
        raise ValueError("an IPv6 address stands in brackets")
    host, colon, port = text.partition(":")
    return host, port if colon else None


def parse_host(host: str, *, may_be_wild: bool = False) -> str:
    """Return *host* in its one form: a name, or an address.

    Raises:
        ValueError: it is neither; the message says why.
    """
    if host.startswith("["):
        return _parse_ipv6(host[1:-1])
    name = host.lower().removesuffix(".")
    if not name.isascii():
        raise ValueError(f"write the name as it stands in DNS{_in_dns(name)}")
    behind_star = name.removeprefix("*.") if may_be_wild else name
    _check_stars(name, behind_star, may_be_wild)
    if not re.fullmatch(_NAME, behind_star) or len(name) > _LONGEST_NAME:
        raise ValueError(
            "a host is a name or an address, maybe with a port"
            + (", maybe with one leading *." if may_be_wild else "")
        )
    last = name.rpartition(".")[2]
    if re.match(r"\d+$|0x", last) and not re.fullmatch(_FOUR_NUMBERS, name):
        raise ValueError("an IPv4 address is four numbers from 0 to 255")
    return name


def _check_stars(name: str, behind_star: str, may_be_wild: bool) -> None:
    if may_be_wild and "*" in behind_star:
        raise ValueError(
            f"a host is a name or an address: {name!r} has a * elsewhere than in one leading *."
        )
    if behind_star != name and "." not in behind_star:
        raise ValueError("*. needs at least two names behind it")


def _parse_ipv6(text: str) -> str:
    from ipaddress import AddressValueError, IPv6Address  # few have any to write

    try:
        address = IPv6Address(text)
    except AddressValueError as exc:
        raise ValueError("in brackets stands an IPv6 address") from exc
    if "%" in text:
        raise ValueError("an IPv6 address with a zone means something on one machine only")
    return address.compressed


def _port(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 65535:
        raise ValueError("a port is a number from 1 to 65535")
    return int(text)


def _in_dns(name: str) -> str:
    """Return how *name* stands in DNS, where there is no doubt; else how such names begin."""
    try:
        form = name.encode("idna").decode()
        # What Python's older rules fold into other letters would name another host.
        return f": {form}" if form.encode().decode("idna") == name else ", with xn--"
    except UnicodeError:
        return ", with xn--"


def covers_destination(grant: str, ask: str) -> bool:
    """Tell whether the words *grant* cover the words *ask*; both in their one form."""
    name, port = _name_and_port(grant)
    asked_name, asked_port = _name_and_port(ask)
    return port == asked_port and covers_name(name, asked_name)


def covers_name(grant: str, name: str) -> bool:
    """Tell whether *grant* is *name*, or with a leading `*.` lies above it."""
    return name == grant or (
        grant.startswith("*.") and name.endswith(grant[1:]) and name != grant[1:]
    )


def _name_and_port(words: str) -> tuple[str, str]:
    """Return the host in *words*, and what is spoken there on which port."""
    rest = words.removeprefix(_PLAIN)
    host, has_bracket, port = rest.partition("]")
    if not has_bracket:
        host, _, port = rest.partition(":")
    return host, f"{_PLAIN if rest != words else ''}{port}"
