"""The filters, judged call by call on both architectures by a machine of our own."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from capsule_runtime.core import seccomp
from capsule_runtime.core.seccomp import (
    ALLOW,
    KILL,
    NOTIFIED,
    NOTIFY,
    Profile,
    build_filter,
    build_notify_filter,
)
from capsule_runtime.core.syscalls import ARCHITECTURES, NUMBERS, TIOCGPTPEER, MachineName
from support.bpf_machine import answer

MACHINES: tuple[MachineName, ...] = ("x86_64", "aarch64")
PROFILES: tuple[Profile, ...] = ("sealed", "strict")
I386, ARM = 0x40000003, 0x40000028
X32 = 0x40000000
HIGH = 1 << 40
"""A bit that the kernel does not look at."""
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK, XDP, SMC = 1, 2, 10, 16, 17, 38, 40, 44, 43
STREAM, DATAGRAM, RAW, SEQPACKET, NONBLOCK, CLOEXEC = 1, 2, 3, 5, 0o4000, 0o2000000
MPTCP, TCP, UDP, SCTP = 262, 6, 17, 132

pytestmark = pytest.mark.parametrize("machine", MACHINES)
each_profile = pytest.mark.parametrize("profile", PROFILES)

NAMESPACES = """unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount
    fsopen fsconfig fsmount fspick mount_setattr statmount listmount"""
OTHERS = """ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    perf_event_open"""
DOORS = """bpf userfaultfd keyctl add_key request_key open_by_handle_at name_to_handle_at
    fanotify_init fanotify_mark memfd_secret vmsplice modify_ldt uselib"""
MACHINERY = """init_module finit_module delete_module kexec_load kexec_file_load reboot swapon
    swapoff acct quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname
    setdomainname syslog iopl ioperm sysfs mbind set_mempolicy get_mempolicy migrate_pages
    move_pages"""
SHARED = "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open"


def refused(error: int) -> int:
    return 0x00050000 | error


def judge(
    machine: MachineName, profile: Profile, call: str, *arguments: int, unix_sockets: bool = False
) -> int:
    program = build_filter(profile, machine, unix_sockets=unix_sockets)
    return answer(program, machine, NUMBERS[machine][call], *arguments)


@each_profile
@pytest.mark.parametrize("call", f"{NAMESPACES} {OTHERS} {DOORS} {MACHINERY}".split())
def test_what_no_run_is_offered(machine: MachineName, profile: Profile, call: str) -> None:
    if call not in NUMBERS[machine]:
        assert machine == "aarch64"
        return

    assert judge(machine, profile, call) == refused(errno.EPERM)


@each_profile
@pytest.mark.parametrize(
    "call", ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"]
)
def test_what_a_program_tries_first_is_not_there(
    machine: MachineName, profile: Profile, call: str
) -> None:
    assert judge(machine, profile, call) == refused(errno.ENOSYS)


@each_profile
def test_every_call_that_is_named_nowhere_is_allowed(
    machine: MachineName, profile: Profile
) -> None:
    program = build_filter(profile, machine)
    named = set(NUMBERS[machine].values())
    reviewed = ARCHITECTURES[machine].reviewed

    refusing = [
        number
        for first, last in reviewed
        for number in range(first, last + 1)
        if number not in named and answer(program, machine, number) != ALLOW
    ]

    assert refusing == []


@each_profile
def test_a_number_nobody_has_reviewed_is_not_there(machine: MachineName, profile: Profile) -> None:
    program = build_filter(profile, machine)
    (_, old), (new, newest) = ARCHITECTURES[machine].reviewed
    strangers = (old + 1, new - 1, newest + 1, 1000, 0x7FFFFFFF, 0xFFFFFFFF)

    answers = {number: answer(program, machine, number) for number in strangers}

    assert set(answers.values()) == {refused(errno.ENOSYS)}
    assert answer(program, machine, new) == ALLOW


@each_profile
def test_a_call_of_x32_is_not_there(machine: MachineName, profile: Profile) -> None:
    program = build_filter(profile, machine)

    assert answer(program, machine, X32 | 41, INET, STREAM) == refused(errno.ENOSYS)


@each_profile
@pytest.mark.parametrize("audit", [I386, ARM, 0, 0xFFFFFFFF])
def test_a_call_of_another_architecture_ends_the_process(
    machine: MachineName, profile: Profile, audit: int
) -> None:
    for program in (build_filter(profile, machine), build_notify_filter(machine)):
        assert answer(program, machine, 1, audit=audit) == KILL


SET_ID = {
    **{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2},
    **{"creat": 1, "open": 2, "openat": 3, "mknod": 1, "mknodat": 2},
}


@each_profile
def test_no_program_runs_as_its_owner(machine: MachineName, profile: Profile) -> None:
    calls = [(call, (0,) * before) for call, before in SET_ID.items() if call in NUMBERS[machine]]

    for mode, expected in ((0o4755, refused(errno.EPERM)), (0o2755, refused(errno.EPERM))):
        told = {judge(machine, profile, call, *others, mode) for call, others in calls}
        assert told == {expected}
    assert {judge(machine, profile, call, *others, 0o755) for call, others in calls} == {ALLOW}


@each_profile
@pytest.mark.parametrize("flag", [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)])
def test_no_clone_makes_a_namespace(machine: MachineName, profile: Profile, flag: int) -> None:
    assert judge(machine, profile, "clone", flag | 17) == refused(errno.EPERM)
    assert judge(machine, profile, "clone", HIGH | flag) == refused(errno.EPERM)


@each_profile
def test_processes_and_threads_are_made(machine: MachineName, profile: Profile) -> None:
    assert judge(machine, profile, "clone", 0x01200011) == ALLOW
    assert judge(machine, profile, "clone", 0x003D0F00) == ALLOW


@each_profile
@pytest.mark.parametrize("request_number", [0x5412, 0x541C])
def test_nothing_is_typed_into_a_terminal(
    machine: MachineName, profile: Profile, request_number: int
) -> None:
    assert judge(machine, profile, "ioctl", 0, request_number) == refused(errno.EPERM)
    assert judge(machine, profile, "ioctl", 0, HIGH | request_number) == refused(errno.EPERM)


@each_profile
@pytest.mark.parametrize("request_number", [0x5401, 0x5413, 0x541B, 0x40049409])
def test_other_requests_to_devices_and_files_pass(
    machine: MachineName, profile: Profile, request_number: int
) -> None:
    """Modes and size of a terminal, bytes waiting, and a file that is copied by reference."""
    assert judge(machine, profile, "ioctl", 0, request_number) == ALLOW


@pytest.mark.parametrize("request_number", [0x40086602, 0x401C5820, 0x40806685, 0x5000940E])
def test_a_file_that_may_be_read_keeps_its_flags_and_a_folder_its_volumes(
    machine: MachineName, request_number: int
) -> None:
    assert judge(machine, "strict", "ioctl", 3, request_number) == refused(errno.EPERM)
    assert judge(machine, "sealed", "ioctl", 3, request_number) == ALLOW


@each_profile
@pytest.mark.parametrize(
    ("wanted", "passes"),
    [(0, True), (0xFFFFFFFF, True), (0x40000, False), (8, False), (0xFFFF, False)],
)
def test_a_process_stays_what_it_is(
    machine: MachineName, profile: Profile, wanted: int, passes: bool
) -> None:
    verdict = judge(machine, profile, "personality", wanted)

    assert verdict == (ALLOW if passes else refused(errno.EPERM))


# Sockets.


@each_profile
@pytest.mark.parametrize("family", [0, UNIX, NETLINK, PACKET, ALG, VSOCK, XDP, SMC, 31, 0xFFFF])
def test_no_socket_of_another_family(machine: MachineName, profile: Profile, family: int) -> None:
    for kind in (STREAM, DATAGRAM, RAW, SEQPACKET):
        assert judge(machine, profile, "socket", family, kind) == refused(errno.EACCES)


@each_profile
@pytest.mark.parametrize("family", [INET, INET6])
@pytest.mark.parametrize("flags", [0, NONBLOCK, CLOEXEC, NONBLOCK | CLOEXEC])
@pytest.mark.parametrize("protocol", [0, TCP])
def test_tcp(
    machine: MachineName, profile: Profile, family: int, flags: int, protocol: int
) -> None:
    assert judge(machine, profile, "socket", HIGH | family, STREAM | flags, protocol) == ALLOW


@pytest.mark.parametrize("family", [INET, INET6])
@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        *((DATAGRAM, 0), (DATAGRAM, UDP), (DATAGRAM | NONBLOCK, 136), (RAW, 1), (SEQPACKET, SCTP)),
        *((STREAM, MPTCP), (STREAM, SCTP), (STREAM, HIGH | MPTCP), (4, 0), (6, 0)),
    ],
)
def test_on_the_hosts_network_there_is_nothing_but_tcp(
    machine: MachineName, family: int, kind: int, protocol: int
) -> None:
    assert judge(machine, "strict", "socket", family, kind, protocol) == refused(errno.EACCES)
    assert judge(machine, "sealed", "socket", family, kind, protocol) == ALLOW


@pytest.mark.parametrize(("call", "place"), [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)])
def test_on_the_hosts_network_nothing_is_sent_while_connecting(
    machine: MachineName, call: str, place: int
) -> None:
    fast = [0, 0, 0, 0, 0, 0]
    fast[place] = 0x20004000

    assert judge(machine, "strict", call, *fast) == refused(errno.EPERM)
    assert judge(machine, "sealed", call, *fast) == ALLOW
    assert judge(machine, "strict", call, 0, 0, 0, 0x4000) == ALLOW


@pytest.mark.parametrize("option", [26, 27, 44, 50, 51, 52, 68])
def test_on_the_hosts_network_the_filter_of_a_socket_stays(
    machine: MachineName, option: int
) -> None:
    assert judge(machine, "strict", "setsockopt", 3, 1, option) == refused(errno.EPERM)
    assert judge(machine, "strict", "setsockopt", 3, 1 | 1 << 40, option) == refused(errno.EPERM)
    assert judge(machine, "strict", "setsockopt", 3, 41, option) == ALLOW
    assert judge(machine, "strict", "setsockopt", 3, 1, 2) == ALLOW
    assert judge(machine, "sealed", "setsockopt", 3, 1, option) == ALLOW


def test_on_the_hosts_network_nobody_is_let_in_late(machine: MachineName) -> None:
    assert judge(machine, "strict", "setsockopt", 3, 6, 9) == refused(0)
    assert judge(machine, "strict", "setsockopt", 3, 6, 1) == ALLOW
    assert judge(machine, "strict", "setsockopt", 3, 0, 9) == ALLOW
    assert judge(machine, "sealed", "setsockopt", 3, 6, 9) == ALLOW


@pytest.mark.parametrize("call", SHARED.split())
def test_memory_and_messages_of_the_host_are_out_of_reach(machine: MachineName, call: str) -> None:
    assert judge(machine, "strict", call) == refused(errno.EPERM)
    assert judge(machine, "sealed", call) == ALLOW


@pytest.mark.parametrize(
    "call",
    ["prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"],
)
def test_limits_and_turns_are_set_of_nobody_else(machine: MachineName, call: str) -> None:
    assert judge(machine, "strict", call, HIGH | 1234) == refused(errno.EPERM)
    assert judge(machine, "strict", call, 0) == ALLOW
    assert judge(machine, "sealed", call, 1234) == ALLOW


@pytest.mark.parametrize(("call", "first"), [("setpriority", 0), ("ioprio_set", 1)])
def test_nobody_else_gets_another_priority(machine: MachineName, call: str, first: int) -> None:
    """Neither one process, nor the others of a group, nor all of a user."""
    process, group, user = range(first, first + 3)

    assert {judge(machine, "strict", call, one, 0) for one in (process, group)} == {ALLOW}
    for which, who in ((process, 1234), (group, 1234), (user, 0), (user, 1000)):
        assert judge(machine, "strict", call, which, who) == refused(errno.EPERM)


@each_profile
def test_a_pair_of_sockets_leads_nowhere_else(machine: MachineName, profile: Profile) -> None:
    """A datagram socket sends to any address it is given, also one of a pair."""
    for kind in (STREAM, SEQPACKET, STREAM | CLOEXEC, SEQPACKET | NONBLOCK):
        assert judge(machine, profile, "socketpair", UNIX, kind) == ALLOW
    for family, kind in ((UNIX, DATAGRAM), (UNIX, RAW), (INET, STREAM), (30, STREAM)):
        assert judge(machine, profile, "socketpair", family, kind) == refused(errno.EACCES)


def test_unix_sockets_are_had_when_granted(machine: MachineName) -> None:
    for call, kind in (("socket", STREAM), ("socket", DATAGRAM), ("socketpair", DATAGRAM)):
        assert judge(machine, "sealed", call, UNIX, kind, unix_sockets=True) == ALLOW
    netlink = judge(machine, "sealed", "socket", NETLINK, RAW, unix_sockets=True)
    assert netlink == refused(errno.EACCES)


def test_a_strict_run_cannot_have_unix_sockets(machine: MachineName) -> None:
    with pytest.raises(ValueError, match="cannot have unix sockets"):
        build_filter("strict", machine, unix_sockets=True)


# What the broker does.


def test_the_broker_is_told_of_connections_and_of_what_landlock_does_not_govern(
    machine: MachineName,
) -> None:
    program = build_notify_filter(machine)
    told = {
        call
        for call, number in NUMBERS[machine].items()
        if answer(program, machine, number) == NOTIFY
    }

    assert told == set(NOTIFIED) & set(NUMBERS[machine])
    assert {"connect", "fchmodat2", "fchownat", "utimensat", "setxattrat", "fsetxattr"} <= told


def test_the_broker_opens_the_other_end_of_a_terminal(machine: MachineName) -> None:
    ioctl, program = NUMBERS[machine]["ioctl"], build_notify_filter(machine)

    assert answer(program, machine, ioctl, 3, TIOCGPTPEER) == NOTIFY
    assert answer(program, machine, ioctl, 3, HIGH | TIOCGPTPEER) == NOTIFY
    assert answer(program, machine, ioctl, 3, TIOCGPTPEER + 1) == ALLOW
    assert judge(machine, "strict", "ioctl", 3, TIOCGPTPEER) == ALLOW


def test_a_strict_filter_leaves_the_broker_its_calls(machine: MachineName) -> None:
    judged = {judge(machine, "strict", call) for call in NOTIFIED if call in NUMBERS[machine]}

    assert judged == {ALLOW}


def test_nothing_else_is_said_of_files(machine: MachineName) -> None:
    assert judge(machine, "strict", "file_setattr") == refused(errno.EPERM)


def test_a_program_that_would_hide_from_the_broker_is_told_that_it_did(
    machine: MachineName,
) -> None:
    prctl, dumpable = NUMBERS[machine]["prctl"], 4
    shown = build_notify_filter(machine, stays_readable=True)

    assert answer(shown, machine, prctl, HIGH | dumpable, 0) == refused(0)
    assert answer(shown, machine, prctl, 15) == ALLOW
    assert answer(build_notify_filter(machine), machine, prctl, dumpable, 0) == ALLOW


# The tables.


def test_a_machine_that_is_not_known_gets_no_filter(machine: MachineName) -> None:
    with pytest.raises(ValueError, match=rf"riscv64.*{machine}"):
        build_filter("sealed", "riscv64")
    with pytest.raises(ValueError, match="riscv64"):
        build_notify_filter("riscv64")


def test_no_number_stands_for_two_calls(machine: MachineName) -> None:
    numbers = list(NUMBERS[machine].values())

    assert len(numbers) == len(set(numbers))


def test_every_call_that_has_a_number_has_a_rule(machine: MachineName) -> None:
    source = Path(seccomp.__file__).read_text(encoding="utf-8")

    assert [name for name in NUMBERS[machine] if not re.search(rf"\b{name}\b", source)] == []


HEADERS: dict[MachineName, tuple[str, ...]] = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


def test_the_numbers_are_those_of_the_headers(machine: MachineName) -> None:
    found = [path for path in map(Path, HEADERS[machine]) if path.exists()]
    if not found:
        pytest.skip(f"the kernel's headers are not installed: {HEADERS[machine][0]}")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", found[0].read_text())
    theirs = {name: int(number) for name, number in defined}
    newest = max(theirs.values())

    missing = set(NUMBERS[machine]) - set(theirs)
    assert {name: theirs.get(name) for name in NUMBERS[machine] if name not in missing} == {
        name: number for name, number in NUMBERS[machine].items() if name not in missing
    }
    assert all(NUMBERS[machine][name] > newest for name in missing)
