"""Do without a capability for a while."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Generator
from contextlib import contextmanager

_VERSION = struct.pack("Ii", 0x20080522, 0)
_SETS = struct.Struct("6I")  # effective, permitted, inheritable; twice 32 of them
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def lowered(capabilities: int) -> Generator[None]:
    """Have none of *capabilities*, of the first 32, in this thread and for this block."""
    held = ctypes.create_string_buffer(_SETS.size)
    _checked(_libc.capget(_VERSION, held))
    effective, *others = _SETS.unpack(held.raw)
    _checked(_libc.capset(_VERSION, _SETS.pack(effective & ~capabilities, *others)))
    try:
        yield
    finally:
        _checked(_libc.capset(_VERSION, held.raw))


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), "capabilities")
