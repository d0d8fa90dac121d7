"""The walls that a harness raises around itself, before its first instruction.

Loaded by path into the warden's bare interpreter: the standard library only. Runs in the forked
child that becomes the harness. The order matters: a process without capabilities may not shrink its
bounding set, and one behind Landlock cannot join a cgroup. What is reported is read back, or tried.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from capsule_runtime.host.filters import install, install_notifying
    from capsule_runtime.host.landlock import restrict

    Limits = tuple[tuple[str, int], ...]
    Rules = tuple[tuple[bytes, str], ...] | None
    Walls = tuple[Limits, Rules, int | None, tuple[bytes, bytes] | None]
else:
    from filters import install, install_notifying
    from landlock import restrict

UMASK = 0o077
_CAPBSET_DROP, _SET_NO_NEW_PRIVS, _AMBIENT, _AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_CAPABILITIES_AT_MOST = 64
_CAPSET_VERSION = 0x20080522
_INTERFACES_AT_MOST = 8
"""A run's own network has one. A host may have thousands, and a report is one message."""
_NAMESPACES = ("mnt", "uts", "ipc", "pid", "net", "cgroup", "user")
_STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Umask", "Seccomp")

_libc = ctypes.CDLL(None, use_errno=True)


def raise_walls(walls: Walls) -> tuple[dict[str, object], int | None]:
    """Put up *walls* around this process; return what is there now, and who hears of its calls.

    They are limits by name, Landlock's rules, if there are to be any, the user to become, if it is to
    be another one, and two filters: of the calls of the first, if there is one, somebody else is told.

    Raises:
        OSError: one cannot be put up.
    """
    limits, rules, user, programs = walls
    os.umask(UMASK)
    for name, limit in limits:
        lower_limit(number_of(name), limit)
    drop_privileges(user)
    abi, count = (0, 0) if rules is None else restrict(rules)
    told = None
    if programs is not None:
        asking, refusing = programs
        told = install_notifying(asking) if asking else None
        install(refusing)
    return {
        "landlock": abi,
        "rules": count,
        "sees_root": _can_list(b"/"),
        "parent": os.getppid(),
        "reaches_parent": _can_signal(os.getppid()),
        "limits": [(name, *resource.getrlimit(number_of(name))) for name, _ in limits],
        "descriptors": _descriptors(),
        "users": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
        "interfaces": _interfaces(),
        "namespaces": _namespaces(),
        "numbers": [os.getpid(), int(os.readlink("/proc/self"))],
        **_status(),
    }, told


def number_of(name: str) -> int:
    number: int = getattr(resource, f"RLIMIT_{name}")
    return number


def lower_limit(number: int, limit: int) -> None:
    """Set both ends of a limit, but never above the one that was inherited."""
    _, hard = resource.getrlimit(number)
    lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(number, (lowest, lowest))


def drop_privileges(user: int | None = None) -> None:
    """Give up every capability, and for good: no program that is run can bring one back.

    Become *user*, and the group of that number, on the way.
    """
    for capability in range(_CAPABILITIES_AT_MOST):
        if _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # There is no such capability, or it is not ours to drop.
    if user is not None:
        os.setgroups(())
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no-new-privs")
    _libc.prctl(_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    if _libc.capset(struct.pack("Ii", _CAPSET_VERSION, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _read_lines(path: str) -> Iterable[str]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 65536).decode(errors="replace").splitlines()
    finally:
        os.close(file)


def _status() -> dict[str, object]:
    status = (line.partition(":") for line in _read_lines("/proc/self/status"))
    return {name: value.strip() for name, _, value in status if name in _STATUS}


def _interfaces() -> list[str]:
    lines = _read_lines("/proc/self/net/dev")
    named = [name.strip() for name, colon, _ in (line.partition(":") for line in lines) if colon]
    return named[:_INTERFACES_AT_MOST]


def _namespaces() -> dict[str, int]:
    """Return the number of each namespace of this process that the kernel has."""
    found = (name for name in _NAMESPACES if os.path.exists(f"/proc/self/ns/{name}"))
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in found}


def _can_list(folder: bytes) -> bool:
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        return False
    return True


def _can_signal(pid: int) -> bool:
    if pid == 0:
        return False  # It is outside of all that we can name.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def _descriptors() -> list[int]:
    """Return what this process has open, without the one that lists them."""
    return sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
