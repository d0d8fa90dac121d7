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
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import anyio

from capsule_runtime.core.mediation import (
    Endpoint,
    check_endpoint,
    locate,
    named_descriptor,
    read_endpoint,
)
from capsule_runtime.core.notices import (
    Change,
    Connect,
    Deed,
    Notice,
    Owner,
    Refused,
    Subject,
    read_notice,
    understand,
)
from capsule_runtime.core.syscalls import MachineName, known_machine
from capsule_runtime.host.caller import Caller, may_read_everything
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
_REMEMBERED_AT_MOST = 4096
_SOCKET = re.compile(rb"socket:\[(\d+)\]")

Dial = Callable[[], socket.socket]
"""Return a socket that does not block, connected or about to be; raise OSError where it cannot."""


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
        self._tell = tell
        self._told: set[Verdict] = set()
        self._connected: OrderedDict[int, None] = OrderedDict()
        self._machine: MachineName = known_machine(os.uname().machine)

    def close(self) -> None:
        """Serve no more; `serve` has ended. What the harness still asks for answers ENOSYS."""
        self._calls.close()
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
        endpoint: Endpoint | None = None
        try:
            with acting_as(self._reads_as), closing(Caller(notice.thread)) as caller:
                wanted = understand(notice, caller)
                found = self._find(wanted, caller)
            if isinstance(wanted, Connect):
                endpoint = read_endpoint(wanted.address)
                error = self._connect(notice, wanted, found, endpoint)
            else:
                error = self._change(notice, wanted.deed, found)
        except Refused as refused:
            error = refused.number
        except OSError as exc:
            error = exc.errno or errno.EIO
        self._calls.answer(notice.id, error)
        if endpoint is not None:
            self._say(Verdict(endpoint, error))

    def _find(self, wanted: Connect | Change, caller: Caller) -> int:
        """Return the flags of the socket that is to be connected, or hold the file to be changed."""
        if isinstance(wanted, Connect):
            return self._flags_of_socket(wanted.descriptor, caller)
        return self._hold(wanted.subject, caller)

    # Connections.

    def _flags_of_socket(self, descriptor: int, caller: Caller) -> int:
        """Return how a socket was opened that is to be connected."""
        flags = caller.opened(descriptor).flags
        socket_of = _SOCKET.fullmatch(caller.place_of(descriptor))
        if socket_of is None:
            raise Refused(errno.ENOTSOCK)
        if int(socket_of[1]) in self._connected:
            raise Refused(errno.EISCONN)
        return flags

    def _connect(self, notice: Notice, wanted: Connect, flags: int, endpoint: Endpoint) -> int:
        if not self._calls.is_waiting(notice.id):
            return errno.EINTR  # What was read may be another's.
        check_endpoint(endpoint, self._granted.endpoints)
        return self._put(notice, wanted, flags, self._granted.endpoints[endpoint])

    def _put(self, notice: Notice, wanted: Connect, flags: int, dial: Dial) -> int:
        """Put a socket of ours in the place of theirs; return what the call ends with.

        One that is not connected yet is given away as it is. Who sends on it, or waits for it, waits
        for the connection as well; so we need not.
        """
        waits = not flags & os.O_NONBLOCK
        with dial() as ours:
            ours.setblocking(waits)
            self._calls.put(
                notice.id,
                ours.fileno(),
                wanted.descriptor,
                closes_on_exec=bool(flags & os.O_CLOEXEC),
            )
            self._remember(os.fstat(ours.fileno()).st_ino)
            return 0 if waits or _is_connected(ours) else errno.EINPROGRESS

    def _remember(self, inode: int) -> None:
        """Remember a socket: connecting it again must not give it another connection."""
        self._connected[inode] = None
        if len(self._connected) > _REMEMBERED_AT_MOST:
            self._connected.popitem(last=False)

    def _say(self, verdict: Verdict) -> None:
        if self._tell and verdict not in self._told and len(self._told) < _VERDICTS_AT_MOST:
            self._told.add(verdict)
            self._tell(verdict)

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


def _is_connected(ours: socket.socket) -> bool:
    try:
        ours.getpeername()
    except OSError as exc:
        if exc.errno != errno.ENOTCONN:
            raise
        return False
    return True
