"""A scoped run has terminals of its own, and none of those that its user has beside it."""

from __future__ import annotations

import errno
import json
import os
import pty
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest

from capsule_runtime.core.notices import Refused
from capsule_runtime.core.wanted import OpenTerminal
from capsule_runtime.host.caller import Caller
from capsule_runtime.host.filtering import find_filtering
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.mediated_terminals import open_terminal
from support.mediated import STRANGER, Place, open_place

WHY_NOT = find_filtering().mediation or find_machine().landlock_why
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is a broker")

NAMED = """
import fcntl, os, pty, signal, termios
def named(function, *arguments):
    try:
        function(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno]
    return "done"
def master():
    ours = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(ours, 0x40045431, bytes(4))  # unlocked
    return ours
"""


@pytest.fixture
def place() -> Iterator[Place]:
    """Return a host where the run is kept from all files but its own: from /dev/pts, too."""
    with open_place() as place:
        place.behind_landlock = True
        yield place


@pytest.fixture
def terminal() -> Generator[str]:
    """Return the name of a terminal of the run's user, which is none of the run's."""
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    if os.geteuid() == 0:
        os.chown(name, STRANGER, STRANGER)
    yield name
    os.close(ours)
    os.close(theirs)


SHELL = """
child, ours = pty.fork()
if child == 0:
    os.execv("/bin/sh", ["sh", "-c", "test -t 0 && stty size && echo to $(ps -o tty= -p $$ | cut -d / -f 1)"])
said = b""
try:
    while part := os.read(ours, 1000):
        said += part
except OSError:
    pass  # Nobody has the other end any more.
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode().split()]))
"""


async def test_a_program_runs_on_a_terminal_of_its_own(place: Place) -> None:
    assert await place.tells(NAMED + SHELL) == [0, ["0", "0", "to", "pts"]]


STATES = """
ours = master()
seen = []
for flags in (os.O_RDWR | os.O_NOCTTY, os.O_RDWR | os.O_CLOEXEC, os.O_RDONLY | os.O_NONBLOCK):
    other = fcntl.ioctl(ours, 0x5441, flags)
    opened = fcntl.fcntl(other, fcntl.F_GETFL)
    seen.append([os.get_inheritable(other), opened & os.O_ACCMODE, bool(opened & os.O_NONBLOCK)])
os.write(ours, b"typed\\n")
print(json.dumps([seen, os.read(other, 100).decode()]))
"""


async def test_it_is_opened_as_it_was_asked_for(place: Place) -> None:
    seen = [[True, os.O_RDWR, False], [False, os.O_RDWR, False], [True, os.O_RDONLY, True]]

    assert await place.tells(NAMED + STATES) == [seen, "typed\n"]


ODD = """
locked = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
pipe, _ = os.pipe()
peer = fcntl.ioctl(master(), 0x5441, os.O_RDWR | os.O_NOCTTY)
file = os.open("file", os.O_RDWR | os.O_CREAT)
def asks(descriptor, flags=os.O_RDWR):
    return named(fcntl.ioctl, descriptor, 0x5441, flags)
print(json.dumps([
    asks(locked), asks(pipe), asks(peer), asks(file), call(16, 99, 0x5441, 2),
    asks(master(), os.O_RDWR | os.O_TRUNC), asks(master(), os.O_ACCMODE),
    asks(os.open("/dev/ptmx", os.O_PATH)),
]))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it makes a call by its number")
async def test_what_is_no_master_has_no_other_end(place: Place) -> None:
    assert await place.tells(NAMED + ODD) == [
        *("EIO", "ENOTTY", "ENOTTY", "ENOTTY", "EBADF"),
        *("EINVAL", "EINVAL", "ENOTTY"),
    ]


BESIDE = """
flags = os.O_RDWR | os.O_NOCTTY
print(json.dumps([named(os.open, sys.argv[1], flags), named(os.listdir, "/dev/pts")]))
"""


async def test_a_terminal_of_the_same_user_stays_closed(place: Place, terminal: str) -> None:
    assert await place.tells(NAMED + BESIDE, terminal) == ["EACCES", "EACCES"]


SWAPPED = """
import threading
stops = threading.Event()
ours = master()
def swap():
    while not stops.is_set():
        os.dup2(master_of_another(), ours)
def master_of_another():
    other = master()
    kept.append(other)
    while len(kept) > 3:
        os.close(kept.pop(0))
    return other
kept = []
threading.Thread(target=swap).start()
odd = []
for _ in range(500):
    try:
        other = fcntl.ioctl(ours, 0x5441, os.O_RDWR | os.O_NOCTTY)
    except OSError as exc:
        if exc.errno not in (errno.EIO, errno.ENOENT):
            odd.append(errno.errorcode[exc.errno])
    else:
        name = os.readlink(f"/proc/self/fd/{other}")
        if name == sys.argv[1]:
            odd.append(name)
        os.close(other)
stops.set()
print(json.dumps(odd))
"""


async def test_who_swaps_the_master_meanwhile_gets_one_of_its_own(
    place: Place, terminal: str
) -> None:
    assert await place.tells(NAMED + SWAPPED, terminal) == []


class Swapping(Caller):
    """A caller that has the master of another terminal each time that it is looked at."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(os.getpid())
        self.numbers = iter(numbers)

    def terminal_of(self, descriptor: int) -> int:
        return next(self.numbers)


def test_a_terminal_whose_master_the_caller_has_no_more_is_not_given(terminal: str) -> None:
    number = int(os.path.basename(terminal))
    before = set(os.listdir("/proc/self/fd"))
    wanted = OpenTerminal(0, os.O_RDWR)

    with closing(Swapping(number, number + 1)) as caller, pytest.raises(Refused) as refused:
        open_terminal(wanted, caller)

    assert refused.value.number == errno.EIO
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_terminal_does_not_become_that_of_the_broker(terminal: str) -> None:
    number = int(os.path.basename(terminal))

    child = os.fork()
    if child == 0:
        os.setsid()  # Who leads a session becomes the owner of a terminal by opening it.
        with closing(Swapping(number, number)) as caller:
            open_terminal(OpenTerminal(0, os.O_RDWR), caller)
        owner = open("/proc/self/stat", encoding="utf-8").read().rpartition(")")[2].split()[4]
        os._exit(owner != "0")

    assert os.waitpid(child, 0)[1] == 0


NODE = """
const { spawn } = require("child_process")
const child = spawn("python3", ["-I", "-S", "-c", "import pty; pty.spawn(['sh', '-c', 'tty'])"])
child.stdout.on("data", (words) => console.log(JSON.stringify(String(words))))
"""


async def test_a_terminal_is_opened_for_what_a_program_starts(place: Place) -> None:
    node = shutil.which("node", path="/usr/bin:/usr/local/bin")
    if node is None:
        pytest.skip("there is no node that another user could run")

    code, told, complaint = await place.runs(node, "-e", NODE)

    assert code == 0, complaint
    assert "pts" in json.loads(told.splitlines()[0])
