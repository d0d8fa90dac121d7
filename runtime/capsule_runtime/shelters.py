"""What a supervisor carries out of reach of its callers' cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
import anyio.abc

from capsule_runtime.errors import UsageError

T = TypeVar("T")

Work = Callable[[], Awaitable[None]]
"""Something to do, once."""


class Shelters:
    """Works in one task group, which only `cancel` ends."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._scopes: set[anyio.CancelScope] = set()
        self._are_closed = False

    def shelter(self, work: Work) -> None:
        """Begin *work* out of reach of the caller's cancellation.

        Raises:
            UsageError: E-USE-060, the supervisor is closed.
        """
        if self._are_closed:
            raise closed()
        # Known from now on: `cancel` may come before the task has run for the first time.
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        self._tasks.start_soon(self._carry_out, work, scope)

    def cancel(self) -> None:
        """End all works, and take no more."""
        self._are_closed = True
        for scope in list(self._scopes):
            scope.cancel()

    async def _carry_out(self, work: Work, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await work()
        finally:
            self._scopes.discard(scope)


class Beginning(Generic[T]):
    """Something that one task makes and another one waits for, and may stop waiting for."""

    def __init__(
        self, make: Callable[[], Awaitable[T]], unwanted: Callable[[T], Awaitable[None]]
    ) -> None:
        """*unwanted* is done with what was made when nobody waits for it any more."""
        self.told = anyio.Event()
        """Set once it was made, or could not be."""
        self._make = make
        self._unwanted = unwanted
        self._answered = anyio.Event()
        self._is_taken = False
        self._made: T | None = None
        self._error: Exception = closed()

    async def carry_out(self) -> None:
        """Make it. What goes wrong is raised where it is waited for."""
        try:
            self._made = await self._make()
        except Exception as error:
            self._error = error
        finally:
            self.told.set()
        # Whoever waits may be cancelled even between our word and its hearing it.
        await self._answered.wait()
        if self._made is not None and not self._is_taken:
            await self._unwanted(self._made)

    async def made(self) -> T:
        """Wait for what is made, and return it.

        Raises:
            Exception: what making it raised.
        """
        try:
            await self.told.wait()
            self._is_taken = True
        finally:
            self._answered.set()
        if self._made is None:
            raise self._error
        return self._made


class Beginnings(Generic[T]):
    """What is being made for callers who may be cancelled meanwhile."""

    def __init__(self, shelters: Shelters, unwanted: Callable[[T], Awaitable[None]]) -> None:
        """*unwanted* is done with what was made when nobody waits for it any more."""
        self._shelters = shelters
        self._unwanted = unwanted
        self._under_way: set[Beginning[T]] = set()

    async def made(self, make: Callable[[], Awaitable[T]]) -> T:
        """Have *make* called out of reach of the caller's cancellation; return what it returns.

        Raises:
            UsageError: E-USE-060, the supervisor is closed.
            Exception: what *make* raised.
        """
        beginning = Beginning(make, self._unwanted)
        self._under_way.add(beginning)

        async def carry_out() -> None:
            try:
                await beginning.carry_out()
            finally:
                self._under_way.discard(beginning)

        self._shelters.shelter(carry_out)
        return await beginning.made()

    async def told(self) -> None:
        """Wait until all that was begun so far is made, or could not be."""
        for beginning in [*self._under_way]:
            await beginning.told.wait()


def closed() -> UsageError:
    """Return the error for what is asked of a supervisor at its end or after it."""
    return UsageError("E-USE-060", "the supervisor is closed", "Do it inside its `async with`.")
