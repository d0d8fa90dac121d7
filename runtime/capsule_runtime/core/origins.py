"""Where an upstream is: `https://HOST[:PORT][/BASE]`, or `http://` for this machine itself."""

from __future__ import annotations

import ipaddress
import re

from msgspec import Struct

_PORTS = {"https": 443, "http": 80}
_REST = re.compile(
    r"([A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
    r"(?::([0-9]{1,5}))?((?:/[A-Za-z0-9._~!$&'()*+,=:@%-]*)*)"
)


class Origin(Struct, frozen=True):
    """One server, and the path beneath which it is spoken to."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    base: str = ""
    """Begins with a slash and does not end with one, or is empty."""

    @property
    def authority(self) -> str:
        """Return what names it in a request's `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base}"


def origin_of(url: str) -> Origin:
    """Return the origin that *url* names; `localhost` is 127.0.0.1, whatever a resolver says.

    Raises:
        ValueError: it names none that a key may be sent to; the message says why.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in _PORTS:
        raise ValueError("it begins neither with https:// nor with http://")
    if (parts := _REST.fullmatch(rest)) is None:
        raise ValueError("write HOST[:PORT][/PATH] behind the scheme: no user, query or fragment")
    host, port = parts[1].lower().strip("[]"), int(parts[2] or _PORTS[scheme])
    if not 0 < port < 65536:
        raise ValueError(f"there is no port {port}")
    if scheme == "http":
        host = "127.0.0.1" if host == "localhost" else host
        if not is_loopback(host):
            raise ValueError("without TLS a key goes to this machine only: write https://")
    return Origin(scheme, host, port, (parts[3] or "").rstrip("/"))


def is_loopback(host: str) -> bool:
    """Tell whether *host* is this machine, whatever a resolver says."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
