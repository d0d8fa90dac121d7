"""A driver may be anybody's code: what it raises or returns must hurt its own run only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, get_args

from capsule_runtime.driver import Description, Driver, Said
from capsule_runtime.events import Event
from capsule_runtime.messages import Decision, Exit, Remember, Send

T = TypeVar("T")

BESIDE_EVENTS = frozenset[type]({Send, Remember})
"""What a driver may say that is no event."""

_EVENTS = frozenset[type](get_args(Event))
_SAYABLE = _EVENTS | BESIDE_EVENTS
_NOT_DESCRIBED = Description(harness="")
_NOTHING_SAID: Sequence[Said] = ()
_NO_EVENTS: Sequence[Event] = ()


class GuardedDriver:
    """The verbs of a driver that cannot raise. Once it has failed, `fault` says how."""

    def __init__(self, driver: Driver) -> None:
        self.fault = ""
        self._driver = driver

    def describe(self) -> Description:
        """Return what the driver says of its harness."""
        return self._ask(self._driver.describe, _NOT_DESCRIBED)

    def receive(self, lines: bytes) -> Sequence[Said]:
        """Return what the driver makes of *lines*."""
        if self.fault:
            return _NOTHING_SAID
        try:  # what `_ask` does, in the place where each call counts
            said = self._driver.receive(lines)
            return said if _SAYABLE.issuperset(map(type, said)) else _checked(said, _SAYABLE)
        except Exception as exc:
            return self._failed(exc, _NOTHING_SAID)

    def interrupt(self) -> Send | None:
        """Return what asks the harness to stop."""
        return self._ask(self._driver.interrupt, None)

    def steer(self, id: str, text: str) -> Send | None:
        """Return what hands *text* to the working harness."""
        return self._ask(lambda: self._driver.steer(id, text), None)

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return what tells the harness the *decision* on its request *id*."""
        return self._ask(lambda: self._driver.answer(id, decision), None)

    def ended(self, exit: Exit) -> Sequence[Event]:
        """Return the last events."""
        return self._ask(lambda: _checked(self._driver.ended(exit), _EVENTS), _NO_EVENTS)

    def _ask(self, ask: Callable[[], T], otherwise: T) -> T:
        if self.fault:
            return otherwise
        try:
            return ask()
        except Exception as exc:
            return self._failed(exc, otherwise)

    def _failed(self, exc: Exception, otherwise: T) -> T:
        self.fault = f"the driver failed: {type(exc).__name__}: {exc}"
        return otherwise


def _checked(said: Sequence[T], sayable: frozenset[type]) -> Sequence[T]:
    """Return what a driver *said*, if it is what drivers may say.

    Raises:
        TypeError: it is not.
    """
    kinds = set(map(type, said))
    if not kinds <= sayable:
        odd = ", ".join(sorted(kind.__name__ for kind in kinds - sayable))
        raise TypeError(f"it said {odd}, which is nothing that a driver may say")
    return said
