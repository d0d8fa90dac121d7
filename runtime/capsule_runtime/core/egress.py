"""What a run may reach in the network.

A request is judged three times: by what it asks for (`EgressRules.judge`), by where that name leads
(`EgressRules.sift`), and by whom its first bytes of TLS are for (`judge_hello`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from capsule_runtime.core.addresses import Sifted, sift
from capsule_runtime.core.destinations import Destination, covers_name, parse_destination
from capsule_runtime.core.verdicts import Refusal, Why

ADDRESSES_AT_MOST = 16
"""How many addresses of one name are looked at."""


class Budgets(Struct, frozen=True):
    """How much one door of one run gives: bytes of all connections together, seconds of each."""

    connections: int = 64
    """At once; more of them wait to be let in."""
    sent_bytes: int = 2**30
    received_bytes: int = 16 * 2**30
    head_seconds: float = 10
    """From the first look at a connection to the end of its request, or of its TLS greeting."""
    resolve_seconds: float = 10
    dial_seconds: float = 10
    refusal_seconds: float = 0.1
    """How long the place of a refused connection is not given to the next one."""
    idle_seconds: float = 15 * 60
    """Without a byte in either direction."""
    half_open_seconds: float = 60
    """The same, once the place has said that nothing more comes."""
    connection_seconds: float = 24 * 3600


class EgressRules(Struct, frozen=True):
    """What was granted."""

    granted: tuple[Destination, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str]) -> EgressRules:
        """Return the rules that come of the grants *hosts*.

        Raises:
            ValueError: one of them is no host.
        """
        return cls(tuple(map(parse_destination, dict.fromkeys(hosts))))

    def judge(self, asked: Destination) -> Refusal | None:
        """Say why *asked* may not be reached; None if it may, as far as its name goes."""
        of_host = [it for it in self.granted if covers_name(it.host, asked.host)]
        of_kind = [it for it in of_host if it.plain == asked.plain]
        if any(it.port == asked.port for it in of_kind):
            return None
        if not of_host:
            why = Why.LITERAL if asked.is_literal else Why.HOST
            return Refusal(why, f"{asked.host} was not granted")
        if not of_kind:
            how = "without TLS" if asked.plain else "for anything but plain HTTP"
            return Refusal(Why.PLAIN, f"{asked.host} was not granted {how}")
        ports = ", ".join(str(port) for port in sorted({it.port for it in of_kind}))
        return Refusal(Why.PORT, f"{asked.host} was granted on port {ports}, not {asked.port}")

    def sift(
        self, asked: Destination, addresses: Iterable[str], is_own: Callable[[str], bool]
    ) -> Sifted:
        """Part the *addresses* of *asked* into those that may be dialled and the others."""
        listed = {it.host for it in self.granted if it.is_literal and it.port == asked.port}
        few = list(dict.fromkeys(addresses))[:ADDRESSES_AT_MOST]
        return sift(few, listed=listed, is_own=is_own)


def refusal_of(asked: Destination, sifted: Sifted) -> Refusal:
    """Return what is said where none of a name's addresses may be dialled."""
    if not sifted.refused:
        return Refusal(Why.UNRESOLVED, f"{asked.host} has no address")
    found = ", ".join(f"{address} ({kind})" for address, kind in sifted.refused[:4])
    return Refusal(Why.ADDRESS, f"{asked.host} leads where no run may go: {found}")


def judge_hello(asked: Destination, server_name: str | None) -> Refusal | None:
    """Say why a TLS greeting for *server_name* may not go to *asked*; None if it may.

    The standard has no addresses as server names, so a greeting to one names nobody.
    """
    expected = None if asked.is_literal else asked.host
    if server_name == expected:
        return None
    named = "names no server" if server_name is None else f"is for {server_name}"
    return Refusal(Why.SNI, f"the TLS greeting to {asked.host} {named}")
