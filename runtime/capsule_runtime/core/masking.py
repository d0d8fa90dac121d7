"""A stream of bytes in which a secret is made unreadable, however it is cut into pieces."""

from __future__ import annotations

_SHORTEST = 8
"""What is shorter is no key, and would be found everywhere."""


class Mask:
    """Write asterisks over each occurrence of *secret*; all other bytes are as they were."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret if len(secret) >= _SHORTEST else b""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may pass of *data* and all before it; what may be a beginning is held."""
        secret = self._secret
        if not secret:
            return data
        data = self._held + data
        if secret in data:
            data = data.replace(secret, b"*" * len(secret))
        keep = self._beginning(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        """Return what was held."""
        held, self._held = self._held, b""
        return held

    def _beginning(self, data: bytes) -> int:
        """Return how many of the last bytes of *data* are the first ones of the secret."""
        secret = self._secret
        at = data.find(secret[:1], max(0, len(data) - len(secret) + 1))
        while at >= 0:
            if secret.startswith(data[at:]):
                return len(data) - at
            at = data.find(secret[:1], at + 1)
        return 0
