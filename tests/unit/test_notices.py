"""What a call means, and that nothing a caller can write there does more than end its call."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.notices import Notice, Refused, read_notice, understand
from capsule_runtime.core.seccomp import NOTIFIED
from capsule_runtime.core.syscalls import TIOCGPTPEER
from capsule_runtime.core.wanted import (
    Attribute,
    Bind,
    Change,
    Connect,
    Listen,
    Mode,
    OpenTerminal,
    Owner,
    Subject,
    Times,
    Wanted,
)

HERE = 2**64 - 100
UNCHANGED = 0xFFFFFFFF
PATH, NAME, VALUE, TIMES, PACKED = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000


class Pages:
    """The memory of a caller: some texts at some addresses."""

    def __init__(self, texts: dict[int, bytes]) -> None:
        self.texts = texts

    def read(self, address: int, size: int) -> bytes:
        for start, text in self.texts.items():
            if start <= address and address + size <= start + len(text):
                return text[address - start :][:size]
        raise Refused(errno.EFAULT)

    def read_text(self, address: int, at_most: int) -> bytes | None:
        if address not in self.texts:
            raise Refused(errno.EFAULT)
        before, nul, _ = self.texts[address][:at_most].partition(b"\0")
        return before if nul else None


MEMORY = Pages(
    {
        PATH: b"a/b\0",
        NAME: b"user.mark\0",
        VALUE: b"value",
        TIMES: struct.pack("<4q", 5, 6, 7, 8),
        PACKED: struct.pack("<QII", VALUE, 5, 1),
    }
)


def meant(call: str, *arguments: int, memory: Pages = MEMORY) -> Wanted:
    filled = (*arguments, *(0,) * (6 - len(arguments)))
    return understand(Notice(1, 2, call, filled), memory)


def error_of(call: str, *arguments: int, memory: Pages = MEMORY) -> int:
    with pytest.raises(Refused) as refused:
        meant(call, *arguments, memory=memory)
    return refused.value.number


def test_a_server_tells_where_it_wants_to_be() -> None:
    assert meant("bind", 3, VALUE, 5) == Bind(3, b"value")
    assert meant("listen", 1 << 32 | 4, 100) == Listen(4)
    assert error_of("bind", 3, VALUE, 1000) == errno.EINVAL
    assert error_of("bind", 3, 1, 16) == errno.EFAULT


def test_the_other_end_of_a_terminal() -> None:
    flags = 0o2 | 0o400 | 0o4000 | 0o2000000

    assert meant("ioctl", 1 << 32 | 3, TIOCGPTPEER, flags) == OpenTerminal(3, flags)
    assert error_of("ioctl", 3, TIOCGPTPEER, 0o3) == errno.EINVAL
    assert error_of("ioctl", 3, TIOCGPTPEER, 0o1000 | 0o2) == errno.EINVAL
    assert error_of("ioctl", 3, TIOCGPTPEER - 1, 0o2) == errno.ENOSYS


def test_a_notice_is_read_as_the_kernel_writes_it() -> None:
    raw = struct.pack("<QIIiIQ6Q", 77, 1234, 0, 42, 0xC000003E, 0x99, 3, PATH, 16, 0, 0, 0)

    assert read_notice(raw, "x86_64") == Notice(77, 1234, "connect", (3, PATH, 16, 0, 0, 0))


def test_connect() -> None:
    assert meant("connect", 1 << 32 | 3, VALUE, 5) == Connect(3, b"value")


@pytest.mark.parametrize(
    ("call", "arguments", "subject"),
    [
        ("chmod", (PATH, 0o600), Subject(None, b"a/b")),
        ("fchmod", (4, 0o600), Subject(4, None)),
        ("fchmodat", (HERE, PATH, 0o600), Subject(None, b"a/b")),
        ("fchmodat", (5, PATH, 0o600, 0x100), Subject(5, b"a/b")),
        ("fchmodat2", (5, PATH, 0o600, 0x100), Subject(5, b"a/b", follow=False)),
        ("fchmodat2", (5, PATH, 0o600, 0), Subject(5, b"a/b")),
    ],
)
def test_modes(call: str, arguments: tuple[int, ...], subject: Subject) -> None:
    assert meant(call, *arguments) == Change(subject, Mode(0o600))


@pytest.mark.parametrize(
    ("call", "arguments", "subject"),
    [
        ("chown", (PATH, 7, UNCHANGED), Subject(None, b"a/b")),
        ("lchown", (PATH, 7, UNCHANGED), Subject(None, b"a/b", follow=False)),
        ("fchown", (4, 7, UNCHANGED), Subject(4, None)),
        ("fchownat", (5, PATH, 7, UNCHANGED, 0x100), Subject(5, b"a/b", follow=False)),
    ],
)
def test_owners(call: str, arguments: tuple[int, ...], subject: Subject) -> None:
    assert meant(call, *arguments) == Change(subject, Owner(7, -1))


def test_an_owner_may_have_a_great_number() -> None:
    assert meant("chown", PATH, 0xFFFFFFFE, 2**31) == Change(
        Subject(None, b"a/b"), Owner(0xFFFFFFFE, 2**31)
    )


@pytest.mark.parametrize(
    ("call", "arguments", "subject", "times"),
    [
        ("utime", (PATH, TIMES), Subject(None, b"a/b"), ((5, 0), (6, 0))),
        ("utimes", (PATH, TIMES), Subject(None, b"a/b"), ((5, 6000), (7, 8000))),
        ("futimesat", (5, PATH, TIMES), Subject(5, b"a/b"), ((5, 6000), (7, 8000))),
        ("futimesat", (5, 0, TIMES), Subject(5, None), ((5, 6000), (7, 8000))),
        ("utimensat", (HERE, PATH, TIMES, 0), Subject(None, b"a/b"), ((5, 6), (7, 8))),
        ("utimensat", (5, 0, TIMES, 0), Subject(5, None), ((5, 6), (7, 8))),
        ("utimensat", (5, PATH, 0, 0x100), Subject(5, b"a/b", follow=False), None),
    ],
)
def test_times(
    call: str,
    arguments: tuple[int, ...],
    subject: Subject,
    times: tuple[tuple[int, int], tuple[int, int]] | None,
) -> None:
    assert meant(call, *arguments) == Change(subject, Times(times))


@pytest.mark.parametrize("part", [-1, 10**9, 2**40])
def test_times_that_are_none(part: int) -> None:
    memory = Pages({**MEMORY.texts, TIMES: struct.pack("<4q", 5, part, 7, 8)})

    assert error_of("utimensat", HERE, PATH, TIMES, memory=memory) == errno.EINVAL
    assert error_of("utimes", PATH, TIMES, memory=memory) == errno.EINVAL


@pytest.mark.parametrize("part", [(1 << 30) - 1, (1 << 30) - 2])
def test_now_and_unchanged(part: int) -> None:
    memory = Pages({**MEMORY.texts, TIMES: struct.pack("<4q", 5, part, 7, 8)})

    wanted = meant("utimensat", HERE, PATH, TIMES, memory=memory)

    assert wanted == Change(Subject(None, b"a/b"), Times(((5, part), (7, 8))))


@pytest.mark.parametrize(
    ("call", "arguments", "subject", "value", "flags"),
    [
        ("setxattr", (PATH, NAME, VALUE, 5, 1), Subject(None, b"a/b"), b"value", 1),
        ("lsetxattr", (PATH, NAME, VALUE, 5), Subject(None, b"a/b", False), b"value", 0),
        ("fsetxattr", (4, NAME, VALUE, 0), Subject(4, None), b"", 0),
        ("setxattrat", (5, PATH, 0x100, NAME, PACKED, 16), Subject(5, b"a/b", False), b"value", 1),
        ("removexattr", (PATH, NAME), Subject(None, b"a/b"), None, 0),
        ("lremovexattr", (PATH, NAME), Subject(None, b"a/b", False), None, 0),
        ("fremovexattr", (4, NAME), Subject(4, None), None, 0),
        ("removexattrat", (5, PATH, 0, NAME), Subject(5, b"a/b"), None, 0),
    ],
)
def test_attributes(
    call: str, arguments: tuple[int, ...], subject: Subject, value: bytes | None, flags: int
) -> None:
    assert meant(call, *arguments) == Change(subject, Attribute(b"user.mark", value, flags))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (b"security.capability", errno.EPERM),
        (b"trusted.overlay.opaque", errno.EPERM),
        (b"system.posix_acl_access", errno.EOPNOTSUPP),
        (b"user", errno.EPERM),
        (b"", errno.ERANGE),
        (b"user." + b"x" * 300, errno.ERANGE),
    ],
)
def test_attributes_that_the_kernel_heeds_are_left(name: bytes, error: int) -> None:
    memory = Pages({**MEMORY.texts, NAME: name + b"\0"})

    assert error_of("setxattr", PATH, NAME, VALUE, 5, memory=memory) == error
    assert error_of("removexattr", PATH, NAME, memory=memory) == error


@pytest.mark.parametrize("call", ["fchmodat2", "fchownat"])
def test_an_empty_path_is_the_descriptor_where_that_is_said(call: str) -> None:
    memory = Pages({PATH: b"\0"})
    empty, flags = 0x1000, {"fchmodat2": 3, "fchownat": 4}[call]
    arguments = [5, PATH, 0, 0, 0]

    assert error_of(call, *arguments, memory=memory) == errno.ENOENT
    arguments[flags] = empty
    wanted = meant(call, *arguments, memory=memory)
    assert isinstance(wanted, Change) and wanted.subject == Subject(5, None)


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("connect", (3, PATH, 129), errno.EINVAL),
        ("connect", (3, 0xDEAD, 16), errno.EFAULT),
        ("chmod", (0, 0o600), errno.EFAULT),
        ("chmod", (0xDEAD, 0o600), errno.EFAULT),
        ("fchmodat2", (HERE, PATH, 0o600, 0x2), errno.EINVAL),
        ("utimensat", (HERE, PATH, 0xDEAD, 0), errno.EFAULT),
        ("setxattr", (PATH, NAME, VALUE, 65537), errno.E2BIG),
        ("setxattr", (PATH, NAME, VALUE, 6), errno.EFAULT),
        ("setxattrat", (HERE, PATH, 0, NAME, PACKED, 12), errno.EINVAL),
        ("getpid", (), errno.ENOSYS),
    ],
)
def test_what_makes_no_sense_ends_as_in_the_kernel(
    call: str, arguments: tuple[int, ...], error: int
) -> None:
    assert error_of(call, *arguments) == error


def test_a_path_that_does_not_end() -> None:
    memory = Pages({PATH: b"a" * 5000})

    assert error_of("chmod", PATH, 0o600, memory=memory) == errno.ENAMETOOLONG


ANY = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, PATH, NAME, HERE, 3, 16, 0x1000]))


@given(st.sampled_from((*NOTIFIED, "ioctl")), st.tuples(*[ANY] * 6), st.binary(max_size=80))
def test_nothing_is_understood_or_it_is_refused(
    call: str, arguments: tuple[int, ...], content: bytes
) -> None:
    memory = Pages({PATH: content + b"\0", NAME: b"user." + content + b"\0", 3: content})

    try:
        meant(call, *arguments, memory=memory)
    except Refused as refused:
        assert 0 < refused.number < 4096
