"""How programs are told of their proxy: each reads other variables, so all of them say the same."""

from __future__ import annotations

_NOT_THROUGH_THE_PROXY = "localhost,127.0.0.1,::1"
"""What a run reaches in its own network: the doors themselves, and servers that it starts."""
_PROXY_NAMES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def proxy_environment(port: int) -> dict[str, str]:
    """Return the variables that lead programs to the proxy on *port* of a run's own loopback.

    Plain HTTP is led there too, so that a program is told what was not granted, and does not wait
    for names that nobody answers for.
    """
    proxy = f"http://127.0.0.1:{port}"
    names = (*_PROXY_NAMES, *map(str.lower, _PROXY_NAMES))
    return {
        **dict.fromkeys(names, proxy),
        "NO_PROXY": _NOT_THROUGH_THE_PROXY,
        "no_proxy": _NOT_THROUGH_THE_PROXY,
        # Without it Node's own fetch looks at no proxy.
        "NODE_USE_ENV_PROXY": "1",
    }
