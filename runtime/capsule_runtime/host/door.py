"""The warden's door: other processes of the same user, or root, that come when the supervisor is stuck.

Loaded by path into the warden's bare interpreter: the standard library only. A visitor says
`bury KEY RUN` and waits for the answer: `done`, `left N` or `unknown`.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from capsule_runtime.host.linux import accept
else:
    from linux import accept

VISITORS_AT_MOST = 32
WORDS_BYTES = 4096


class Door:
    """The listening socket *listener*, and who came in. *key* is what a visitor must know."""

    def __init__(self, listener: int, key: bytes, poll: select.poll) -> None:
        self.listener = listener
        self._key = key
        self._poll = poll
        # By the descriptor of a visitor: the run that it waits for, if it has asked.
        self._visitors: dict[int, str] = {}
        poll.register(listener, select.POLLIN)

    def __contains__(self, visitor: int) -> bool:
        return visitor in self._visitors

    def admit(self) -> None:
        """Let the next visitor in."""
        visitor = accept(self.listener)
        if visitor is None:
            return
        self._visitors[visitor] = ""
        self._poll.register(visitor, select.POLLIN)
        if len(self._visitors) > VISITORS_AT_MOST:
            # Whoever asked is waited for; one that only stands there makes room.
            idle = (one for one, run in self._visitors.items() if not run)
            self.answer(next(idle), b"unknown")

    def hear(self, visitor: int) -> str | None:
        """Return the run that *visitor* wants buried; None if it may not, or is gone."""
        try:
            words = os.read(visitor, WORDS_BYTES)
        except ConnectionResetError:
            words = b""
        _, told, run = words.decode(errors="replace").partition(f"bury {self._key.decode()} ")
        return run if told else None

    def keep_waiting(self, visitor: int, run: str) -> None:
        """Let *visitor* wait until *run* is settled."""
        self._visitors[visitor] = run

    def settle(self, run: str, answer: bytes) -> None:
        """Answer all who wait for *run*."""
        for visitor in [fd for fd, waited in self._visitors.items() if waited == run]:
            self.answer(visitor, answer)

    def answer(self, visitor: int, answer: bytes) -> None:
        """Answer *visitor*, and let it go."""
        try:
            os.write(visitor, answer)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It did not wait for us.
        self._poll.unregister(visitor)
        del self._visitors[visitor]
        os.close(visitor)
