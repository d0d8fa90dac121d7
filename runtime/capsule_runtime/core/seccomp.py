"""Which system calls a harness may make: the programs that the kernel runs over each of them.

What is not named is allowed: harnesses are other people's binaries and change every week. But a call
that was not known when this was written answers ENOSYS, and so do the doors that a program tries
first and can do without. EPERM says that a call is not offered; EACCES, that its arguments were
judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

from msgspec import Struct

from capsule_runtime.core import bpf
from capsule_runtime.core.syscalls import (
    ARCHITECTURES,
    NUMBERS,
    TIOCGPTPEER,
    MachineName,
    known_machine,
)

Profile = Literal["sealed", "strict"]
"""`sealed` is for a run with namespaces of its own; `strict`, for one in the host's."""

ALLOW, NOTIFY, KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
EPERM, EACCES, ENOSYS = 1, 13, 38

_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _SEQPACKET = 1, 5
_SOCKET_TYPE = 0xF
_TCP = 6
_SOL_SOCKET, _TCP_DEFER_ACCEPT = 1, 9
_OF_SOCKET_FILTERS = (26, 27, 44, 50, 51, 52, 68)
"""Attached (three kinds, and two of groups), detached, locked, and preferred in a group."""
_MSG_FASTOPEN = 0x20000000
_CLONE_NEW = 0x7E020000
_PR_SET_DUMPABLE = 4
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_OF_FILES = (
    *(0x40086602, 0x40046602, 0x401C5820),  # flags, and flags with the project
    *(0x40087602, 0x40047602, 0x40086604, 0x40046604),  # the generation
    *(0x40806685, 0x800C6613),  # never to be written again; encrypted from now on
    *(0x50009401, 0x50009417, 0x5000940E, 0x50009418),  # subvolumes of btrfs: made,
    *(0x5000940F, 0x5000943F, 0x4008941A, 0xC0C89425),  # removed and marked
)
"""What changes a file, or a folder's entries, through a descriptor that may only read it."""

_SET_ID = 0o6000
_MODES = {
    **{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2},
    **{"creat": 1, "open": 2, "openat": 3, "mknod": 1, "mknodat": 2},
}
"""The argument that is the mode of a file."""

_NOT_THERE = "openat2 clone3 io_uring_setup io_uring_enter io_uring_register"
_NOT_OFFERED = """
    unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen
    fsconfig fsmount fspick mount_setattr statmount listmount

    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp perf_event_open
    lookup_dcookie

    bpf userfaultfd keyctl add_key request_key open_by_handle_at name_to_handle_at fanotify_init
    fanotify_mark memfd_secret vmsplice modify_ldt uselib

    init_module finit_module delete_module create_module get_kernel_syms query_module kexec_load
    kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd settimeofday clock_settime
    clock_adjtime adjtimex sethostname setdomainname syslog vhangup iopl ioperm ustat sysfs _sysctl
    nfsservctl

    mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node
"""
_SHARED_BY_A_USER = """
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
"""
_OF_ONESELF = "prlimit64 sched_setparam sched_setscheduler sched_setaffinity sched_setattr"
_METADATA = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
NOTIFIED = ("connect", "bind", "listen", *_METADATA.split())
"""What is done by the broker, in place of the harness; and of `ioctl`, `TIOCGPTPEER`."""


class Condition(Struct, frozen=True):
    """Whether one argument, cut to *bits*, is (or is not) one of *values*.

    Only the low 32 bits are looked at: the kernel itself looks at no more, and whoever compares all
    64 is passed by with a bit that counts for nothing.
    """

    argument: int
    values: tuple[int, ...]
    is_one: bool = True
    bits: int = 0xFFFFFFFF


class Rule(Struct, frozen=True):
    """Allow *call* where all *conditions* hold, else answer *error*; 0 is done, but nothing is.

    Where *where* does not hold, the next rule judges.
    """

    call: str
    error: int
    conditions: tuple[Condition, ...] = ()
    where: Condition | None = None


@cache
def build_filter(profile: Profile, machine: str, *, unix_sockets: bool = False) -> bytes:
    """Return the program that judges all calls of a run on *machine* (as of `uname -m`).

    With *unix_sockets* a run may make sockets that lie in files; where nothing but the program
    itself keeps it from those of the host (`strict`), that cannot be had.

    Raises:
        ValueError: the machine is not known, or a strict run is to have unix sockets.
    """
    if profile == "strict" and unix_sockets:
        raise ValueError("a strict run shares the host's files: it cannot have unix sockets")
    known = known_machine(machine)
    steps = [*_prologue(known), *_only_reviewed(known)]
    for rule in _rules(profile, unix_sockets):
        steps += _judged(rule, known)
    return bpf.assemble([*steps, bpf.Return(ALLOW)])


@cache
def build_notify_filter(machine: str, *, stays_readable: bool = False) -> bytes:
    """Return the program that hands the calls that the broker does to the broker.

    It goes with a `strict` filter, in any order: of two answers the stronger one counts. With
    *stays_readable* a program that wants to be unreadable for others is told that it is, and is
    not. A broker without CAP_SYS_PTRACE could read none of its arguments.

    Raises:
        ValueError: the machine is not known.
    """
    known = known_machine(machine)
    steps = _prologue(known)
    if stays_readable:
        hides = Condition(0, (_PR_SET_DUMPABLE,), is_one=False)
        steps += _judged(Rule("prctl", 0, (hides,)), known)
    for call in NOTIFIED:
        steps += _answered(call, NOTIFY, known)
    steps += _told_where("ioctl", Condition(1, (TIOCGPTPEER,)), known)
    return bpf.assemble([*steps, bpf.Return(ALLOW)])


def _rules(profile: Profile, unix_sockets: bool) -> Iterator[Rule]:
    yield from (Rule(call, ENOSYS) for call in _NOT_THERE.split())
    yield from (Rule(call, EPERM) for call in _NOT_OFFERED.split())
    yield Rule("clone", EPERM, (Condition(0, (0,), bits=_CLONE_NEW),))
    yield Rule("personality", EPERM, (Condition(0, (0, 0xFFFFFFFF)),))
    # A program that runs as its owner would do so for everybody: and its owner is the caller.
    for call, mode in _MODES.items():
        yield Rule(call, EPERM, (Condition(mode, (0,), bits=_SET_ID),))
    if not unix_sockets:
        # One of a pair of datagram sockets can still send to, and connect to, any other in a file.
        kinds = Condition(1, (_STREAM, _SEQPACKET), bits=_SOCKET_TYPE)
        yield Rule("socketpair", EACCES, (Condition(0, (_UNIX,)), kinds))
    if profile == "sealed":
        families = (_INET, _INET6, _UNIX) if unix_sockets else (_INET, _INET6)
        yield Rule("socket", EACCES, (Condition(0, families),))
        yield Rule("ioctl", EPERM, (Condition(1, (_TIOCSTI, _TIOCLINUX), is_one=False),))
    else:
        yield from _strict_rules()


def _strict_rules() -> Iterator[Rule]:
    """Yield what else a run may not do that has the host's network, files and other processes."""
    yield Rule(
        "socket",
        EACCES,
        (
            Condition(0, (_INET, _INET6)),
            Condition(1, (_STREAM,), bits=_SOCKET_TYPE),
            Condition(2, (0, _TCP)),
        ),
    )
    # What lets in nobody but the run itself is kept by a filter of the socket, which stays.
    of_filters = Condition(2, _OF_SOCKET_FILTERS, is_one=False)
    yield Rule("setsockopt", EPERM, (of_filters,), where=Condition(1, (_SOL_SOCKET,)))
    # Who is to be let in only with its first words comes when the filter lets in nobody any more.
    defers = Condition(2, (_TCP_DEFER_ACCEPT,), is_one=False)
    yield Rule("setsockopt", 0, (defers,), where=Condition(1, (_TCP,)))
    for call, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        yield Rule(call, EPERM, (Condition(flags, (0,), bits=_MSG_FASTOPEN),))
    for call in _SHARED_BY_A_USER.split():
        yield Rule(call, EPERM)
    # A limit of no seconds ends the process that gets it, whatever keeps us from signalling it.
    for call in _OF_ONESELF.split():
        yield Rule(call, EPERM, (Condition(0, (0,)),))
    for call, which in (("setpriority", (0, 1)), ("ioprio_set", (1, 2))):
        yield Rule(call, EPERM, (Condition(0, which), Condition(1, (0,))))
    ioctls = (_TIOCSTI, _TIOCLINUX, *_OF_FILES)
    yield Rule("ioctl", EPERM, (Condition(1, ioctls, is_one=False),))
    yield Rule("file_setattr", EPERM)


def _prologue(machine: MachineName) -> list[bpf.Step]:
    """Kill who calls as another architecture would: its numbers mean something else."""
    return [
        bpf.Load(bpf.ARCHITECTURE),
        bpf.Jump("equal", ARCHITECTURES[machine].audit, yes="ours"),
        bpf.Return(KILL),
        bpf.Mark("ours"),
        bpf.Load(bpf.NUMBER),
    ]


def _only_reviewed(machine: MachineName) -> Iterator[bpf.Step]:
    """Answer ENOSYS to numbers nobody has judged. Those of x32 are far above all others."""
    for first, last in ARCHITECTURES[machine].reviewed:
        if first:
            yield bpf.Jump("above", first - 1, no="unknown")
        yield bpf.Jump("above", last, no="known")
    yield bpf.Mark("unknown")
    yield bpf.Return(_refusal(ENOSYS))
    yield bpf.Mark("known")


def _judged(rule: Rule, machine: MachineName) -> Iterator[bpf.Step]:
    if not rule.conditions:
        yield from _answered(rule.call, _refusal(rule.error), machine)
        return
    number = NUMBERS[machine].get(rule.call)
    if number is None:
        return
    name = rule.call if rule.where is None else f"{rule.call} {rule.where.values}"
    other, refused, another = f"not {name}", f"{name} refused", f"another {name}"
    yield bpf.Jump("equal", number, no=other)
    if rule.where is not None:
        yield from _checked(rule.where, f"{name} meant", another)
    for index, condition in enumerate(rule.conditions):
        yield from _checked(condition, f"{name} passed {index}", refused)
    yield bpf.Return(ALLOW)
    yield bpf.Mark(refused)
    yield bpf.Return(_refusal(rule.error))
    if rule.where is not None:
        yield bpf.Mark(another)
        yield bpf.Load(bpf.NUMBER)
    yield bpf.Mark(other)


def _checked(condition: Condition, passed: str, refused: str) -> Iterator[bpf.Step]:
    yield bpf.Load(bpf.argument(condition.argument))
    if condition.bits != 0xFFFFFFFF:
        yield bpf.Mask(condition.bits)
    *others, last = condition.values
    if condition.is_one:
        yield from (bpf.Jump("equal", value, yes=passed) for value in others)
        yield bpf.Jump("equal", last, yes=passed, no=refused)
    else:
        yield from (bpf.Jump("equal", value, yes=refused) for value in condition.values)
    yield bpf.Mark(passed)


def _answered(call: str, answer: int, machine: MachineName) -> Iterator[bpf.Step]:
    number = NUMBERS[machine].get(call)
    if number is not None:
        yield bpf.Jump("equal", number, no=f"not {call}")
        yield bpf.Return(answer)
        yield bpf.Mark(f"not {call}")


def _told_where(call: str, condition: Condition, machine: MachineName) -> Iterator[bpf.Step]:
    yield bpf.Jump("equal", NUMBERS[machine][call], no=f"other than {call}")
    yield from _checked(condition, f"{call} told", f"other than {call}")
    yield bpf.Return(NOTIFY)
    yield bpf.Mark(f"other than {call}")


def _refusal(error: int) -> int:
    return 0x00050000 | error
