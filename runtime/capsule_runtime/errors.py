"""Everything this package raises on purpose. Blame is in the type.

* `CapsuleError`
    * `UsageError`: the caller asked for something that cannot be
    * `ManifestError`: the author's capsule.toml is wrong
    * `HarnessError`: the agent program cannot be started or spoken to
    * `ContainmentError`: the wall that was asked for cannot be had
    * `TrustError`: nobody granted what the capsule asks for, or it has changed since
    * `SpendError`: a ceiling leaves nothing to spend
    * `HostError`: the machine refuses
    * `StoreError`: the log cannot be read or written

What stops a run (a limit, an interrupt, a failed turn) is an outcome, not an error.
"""

from __future__ import annotations

from typing import ClassVar


class CapsuleError(Exception):
    """Base class: catch this to catch every error the runtime raises itself.

    *code* is stable and explained by `capsule explain CODE`; *message* names the value and the
    choices; *hint* says what to do next. `exit_status` is what the command line exits with.
    """

    exit_status: ClassVar[int] = 70

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}"


class UsageError(CapsuleError):
    """Raised when the caller asked for something that cannot be."""

    exit_status = 2


class ManifestError(CapsuleError):
    """Raised when a capsule.toml does not say what a manifest must."""

    exit_status = 2


class HarnessError(CapsuleError):
    """Raised when the harness cannot be found, started or spoken to."""

    exit_status = 8


class ContainmentError(CapsuleError):
    """Raised when the containment that was asked for cannot be had here."""

    exit_status = 6


class TrustError(CapsuleError):
    """Raised when a capsule asks for what nobody granted, or is not what was trusted."""

    exit_status = 7


class SpendError(CapsuleError):
    """Raised when a ceiling leaves nothing to spend, so that nothing is started."""

    exit_status = 3


class HostError(CapsuleError):
    """Raised when the machine refuses what a run needs."""

    exit_status = 10


class StoreError(CapsuleError):
    """Raised when the log cannot be opened, read or written."""

    exit_status = 10
