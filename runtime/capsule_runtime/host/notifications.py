"""The descriptor at which the kernel tells of the calls that a filter hands over."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct

from capsule_runtime.core.notices import NOTICE_BYTES

_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_AT_A_NUMBER, _AS_THE_ANSWER = 1, 2
_ANSWER = struct.Struct("<QqiI")
_ID = struct.Struct("<Q")
_DESCRIPTOR = struct.Struct("<QIIII")


class Notifications:
    """One run's calls. There is one receiver: what is there when it looks, it gets."""

    def __init__(self, listener: int) -> None:
        self.listener = listener
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def close(self) -> None:
        """Stop: calls that wait, and all that come, answer ENOSYS."""
        os.close(self.listener)

    def is_over(self) -> bool:
        """Whether everybody has ended whose calls would be told here."""
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in self._poll.poll(0))

    def take(self) -> bytes | None:
        """Return a call that waits for its answer, if one does."""
        # The kernel knows no receiving that does not wait.
        if not any(event & select.POLLIN for _, event in self._poll.poll(0)):
            return None
        notice = bytearray(NOTICE_BYTES)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, notice, True)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTCONN):
                raise
            return None  # The caller was killed meanwhile.
        return bytes(notice)

    def is_waiting(self, notice: int) -> bool:
        """Whether the caller of *notice* still waits, and so is who it was when it was told."""
        try:
            fcntl.ioctl(self.listener, _IS_VALID, _ID.pack(notice))
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return False
        return True

    def answer(self, notice: int, error: int) -> None:
        """End the call with *error*; 0: it is done."""
        try:
            fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(notice, 0, -error, 0))
        except OSError as exc:
            if exc.errno != errno.ENOENT:  # or else the caller was killed
                raise

    def put(self, notice: int, ours: int, theirs: int, *, closes_on_exec: bool) -> None:
        """Give the caller our descriptor *ours*, in the place of its descriptor *theirs*.

        Raises:
            OSError: it was killed, or may have no more descriptors.
        """
        self._add(notice, _AT_A_NUMBER, ours, theirs, closes_on_exec)

    def answer_with(self, notice: int, ours: int, *, closes_on_exec: bool) -> None:
        """End the call with a new descriptor of the caller's, which is our descriptor *ours*.

        Raises:
            OSError: it was killed, or may have no more descriptors; the call has not ended.
        """
        self._add(notice, _AS_THE_ANSWER, ours, 0, closes_on_exec)

    def _add(self, notice: int, how: int, ours: int, theirs: int, closes_on_exec: bool) -> None:
        flags = os.O_CLOEXEC if closes_on_exec else 0
        request = _DESCRIPTOR.pack(notice, how, ours, theirs, flags)
        fcntl.ioctl(self.listener, _ADD_DESCRIPTOR, request)
