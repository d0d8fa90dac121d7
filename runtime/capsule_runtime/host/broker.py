"""Do for one run what its harness may not do itself: connect, and change what is known of files.

The kernel stops a harness in such a call and tells us of it. It never lets the call itself go on
after all: between our look at its arguments and the kernel's, another thread could write new ones.
So a connection is a socket of ours, put in the place of the harness's own; and a file is changed by
us, on a descriptor of ours. Each call is done at once or refused: nothing is kept of it, and no
number of them takes more than a turn in the event loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import anyio

from capsule_runtime.core.mediation import (
    Endpoint,
    locate,
    named_descriptor,
    read_endpoint,
)
from capsule_runtime.core.notices import Notice, Refused, read_notice, understand
from capsule_runtime.core.syscalls import MachineName, known_machine
from capsule_runtime.core.wanted import Change, Connect, Deed, OpenTerminal, Owner, Subject, Wanted
from capsule_runtime.host.caller import Caller, may_read_everything
from capsule_runtime.host.mediated_sockets import Dial, MediatedSockets, OfSocket, Seen
from capsule_runtime.host.mediated_terminals import open_terminal
from capsule_runtime.host.metadata import (
    Identity,
    Roots,
    acting_as,
    change,
    file_of,
    is_regular,
    is_same,
)
from capsule_runtime.host.notifications import Notifications

_AT_ONCE = 16
"""So many calls are done before others have their turn."""
_VERDICTS_AT_MOST = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a harness went, or would have gone: *error* is 0, or what it was told."""

    endpoint: Endpoint
    error: int


@dataclass(frozen=True, slots=True)
class Granted:
    """What one run's broker does."""

    endpoints: Mapping[Endpoint, Dial] = field(default_factory=dict[Endpoint, Dial])
    """Where the run may go, as it sees it; and what is there."""
    roots: tuple[str, ...] = ()
    """What the run may write: absolute, with no links in them."""
    identity: Identity | None = None
    """Who the harness is; None: the same user as we are."""
    shown_as: int | None = None
    """Whom the harness sees as the owner of its files, whosever they are."""

    @property
    def runs_as(self) -> Identity | None:
        """Return the user that the harness is, whosever its files are; None: who we are."""
        if self.identity is None and self.shown_as is not None:
            return Identity(self.shown_as, self.shown_as)
        return self.identity


class Broker:
    """The broker of one run."""

    def __init__(
        self, listener: int, granted: Granted, tell: Callable[[Verdict], None] | None = None
    ) -> None:
        """Serve the descriptor *listener*, which is ours from now on.

        *tell* hears of each endpoint, and of each way it ended there, once; of 100 at most.

        Raises:
            OSError: a root is not there, or has become a link.
        """
        self._calls = Notifications(listener)
        try:
            self._roots = Roots(granted.roots)
        except OSError:
            self._calls.close()
            raise
        self._granted = granted
        # A harness without capabilities can be looked into as who it is, else only by who may all.
        self._reads_as = None if may_read_everything() else granted.runs_as
        looking = partial(acting_as, self._reads_as)
        self._sockets = MediatedSockets(self._calls, granted.endpoints, looking)
        self._tell = tell
        self._told: set[Verdict] = set()
        self._machine: MachineName = known_machine(os.uname().machine)

    def close(self) -> None:
        """Serve no more; `serve` has ended. What the harness still asks for answers ENOSYS."""
        self._calls.close()
        self._sockets.close()
        self._roots.close()

    async def serve(self) -> None:
        """Serve the run until its last process has ended."""
        while not self.attend():
            await anyio.wait_readable(self._calls.listener)

    def attend(self) -> bool:
        """Do some of the calls that wait, and wait for none; return whether the run has ended."""
        for _ in range(_AT_ONCE):
            notice = self._calls.take()
            if notice is None:
                return self._calls.is_over()
            self._do(read_notice(notice, self._machine))
        return False

    def _do(self, notice: Notice) -> None:
        try:
            with acting_as(self._reads_as), closing(Caller(notice.thread)) as caller:
                act = self._looked_at(notice, understand(notice, caller), caller)
            error = act()
        except Refused as refused:
            error = refused.number
        except OSError as exc:
            error = exc.errno or errno.EIO
        if error is not None:
            self._calls.answer(notice.id, error)

    def _looked_at(
        self, notice: Notice, wanted: Wanted, caller: Caller
    ) -> Callable[[], int | None]:
        """Return what does what is *wanted*, and returns what the call is to end with.

        It returns None where the call has ended with a descriptor.
        """
        if isinstance(wanted, Change):
            held = self._hold(wanted.subject, caller)
            return partial(self._change, notice, wanted.deed, held)
        if isinstance(wanted, OpenTerminal):
            return partial(self._give, notice, wanted, open_terminal(wanted, caller))
        seen = self._sockets.look(wanted.descriptor, caller)
        return partial(self._do_with_socket, notice, wanted, seen)

    def _do_with_socket(self, notice: Notice, wanted: OfSocket, seen: Seen) -> int:
        if not self._calls.is_waiting(notice.id):
            return errno.EINTR  # What was read may be another's.
        try:
            error = self._sockets.do(notice, wanted, seen)
        except Refused as refused:
            error = refused.number
        except OSError as exc:
            error = exc.errno or errno.EIO
        if isinstance(wanted, Connect):
            self._say(Verdict(read_endpoint(wanted.address), error))
        return error

    def _say(self, verdict: Verdict) -> None:
        if self._tell and verdict not in self._told and len(self._told) < _VERDICTS_AT_MOST:
            self._told.add(verdict)
            self._tell(verdict)

    def _give(self, notice: Notice, wanted: OpenTerminal, opened: int) -> int | None:
        try:
            if not self._calls.is_waiting(notice.id):
                return errno.EINTR
            closes_on_exec = bool(wanted.flags & os.O_CLOEXEC)
            self._calls.answer_with(notice.id, opened, closes_on_exec=closes_on_exec)
            return None
        finally:
            os.close(opened)

    # Files.

    def _change(self, notice: Notice, deed: Deed, held: int) -> int:
        try:
            if not self._calls.is_waiting(notice.id):
                return errno.EINTR
            if isinstance(deed, Owner) and self._granted.shown_as is not None:
                # They are its own in its eyes. On disk they stay whose they are.
                is_same_owner = {deed.uid, deed.gid} <= {-1, self._granted.shown_as}
                return 0 if is_same_owner else errno.EPERM
            with acting_as(self._granted.identity):
                change(held, deed)
            return 0
        finally:
            os.close(held)

    def _hold(self, subject: Subject, caller: Caller) -> int:
        """Return a descriptor of the file that *subject* is, if it may be changed."""
        if subject.path is None:
            return self._hold_opened(subject.descriptor, caller)
        descriptor = named_descriptor(subject.path)
        if descriptor is not None and subject.follow:
            return self._hold_opened(descriptor, caller)
        relative = not subject.path.startswith(b"/")
        base = caller.place_of(subject.descriptor) if relative else b""
        located = locate(subject.path, base, self._roots.paths)
        with acting_as(self._granted.identity):
            return self._roots.hold(located, follow=subject.follow)

    def _hold_opened(self, descriptor: int | None, caller: Caller) -> int:
        """Return a descriptor of the file of their *descriptor*, if it may be changed.

        It may if it was opened to be written, or lies where everything may be written.
        """
        held = caller.hold(descriptor)
        try:
            if descriptor is not None and is_regular(held):
                opened = caller.opened(descriptor)
                if opened.is_writable and opened.file == file_of(held):
                    return os.dup(held)
            return self._find_again(held, caller.place_of(descriptor))
        finally:
            os.close(held)

    def _find_again(self, held: int, place: bytes) -> int:
        """Return another descriptor of what is *held*, if it is found at its *place*."""
        located = locate(place, b"", self._roots.paths)
        try:
            found = self._roots.hold(located, follow=False, as_written=True)
        except Refused as refused:
            raise Refused(errno.EPERM) from refused  # It was moved or removed.
        if not is_same(found, held):
            os.close(found)
            raise Refused(errno.EPERM)
        return found
