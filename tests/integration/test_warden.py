"""The warden, its buriers and their client, with real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from capsule_runtime.errors import HarnessError, HostError
from capsule_runtime.host import process as host_process
from capsule_runtime.host.locks import is_free, take
from capsule_runtime.host.process import (
    Burial,
    Exit,
    Spawn,
    Tree,
    Warden,
    bury_through_warden,
    open_warden,
)
from capsule_runtime.host.sweep import children, scan_families
from support.processes import parent_of, processes_of, wait_gone

PATIENCE_SECONDS = 10

PAUSES = "import os, signal; os.write(1, b'ready'); signal.pause()"

LEAVES_CHILDREN = """
import os
for options in ({}, {"setsid": True}, {"setsigmask": range(1, 64)}):
    os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, **options)
os.write(1, b"ready")
os._exit(3)
"""

# Every process of it is a daemon by the book, and none listens to what can be ignored.
DETACHES = """
import os, signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
os.write(1, b"ready")
while True:
    signal.pause()
"""

# Daemons that start others all the time. Those live for a moment, so some hundred are there.
BOMB = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(1, b"ready")
        while True:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.setsid()
                time.sleep(0.05)
                os._exit(0)
            time.sleep(0.004)
signal.pause()
"""

KILLS_ITS_BURIER = """
import os, signal
os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)
os.write(1, b"ready")
os.kill(os.getppid(), signal.SIGKILL)
signal.pause()
"""

# A wrapper that ignores what it is told, as those of some harnesses do, and waits for its child.
LAUNCHES = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.write(1, b"ready")
    signal.sigwait([signal.SIGINT])
    os.write(1, b"interrupted")
    os._exit(0)
os.wait()
"""

# A launcher that hands on what it hears too, so the program behind it hears it twice.
FORWARDS = """
import os, signal
signal.signal(signal.SIGINT, lambda *_: os.kill(program, signal.SIGINT))
program = os.fork()
if program == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.write(1, b"ready")
    signal.sigwait([signal.SIGINT])
    os.write(1, b"interrupted")
    os._exit(0)
os.wait()
"""

# A tool in a session of its own. The harness, once interrupted, has it say what it heard.
KEEPS_A_TOOL = """
import os, signal
heard = []
signals = [signal.SIGINT, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
tool = os.fork()
if tool == 0:
    os.setsid()
os.write(1, b"ready")
while True:
    number = signal.sigwait(signals)
    if tool:
        os.kill(tool, signal.SIGTERM)
    elif number == signal.SIGTERM:
        os.write(1, repr(heard).encode())
    else:
        heard.append("SIGINT")
"""

STOPS_ITS_BURIER = """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
os.write(1, b"ready")
signal.pause()
"""

WITHOUT_SIBLINGS = """
import runpy, sys
sys.path.append({folder!r})
import linux
linux.SYS_CLONE3 = 1_000_000
runpy.run_path({folder!r} + "/warden.py", run_name="__main__")
"""
HOST_FOLDER = Path(host_process.__file__).parent

DESCRIBES_ITSELF = """
import os, signal
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
own = os.getpid() == os.getsid(0) == os.getpgid(0)
descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
ignored = int(status["SigIgn"], 16) & ~(1 << 12 | 1 << 24)  # Python's own: SIGPIPE, SIGXFSZ
print(own, os.getcwd(), descriptors, int(status["SigBlk"], 16), ignored, end="")
"""


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was started, and the reading end of its output."""

    tree: Tree
    output: int
    run: str

    async def read(self) -> bytes:
        """Return the next output; at the end, nothing."""
        with anyio.fail_after(PATIENCE_SECONDS):
            await anyio.wait_readable(self.output)
        return os.read(self.output, 65536)

    async def ready(self, times: int = 1) -> None:
        said = b""
        while said.count(b"ready") < times:
            said += await self.read()

    async def buried(self) -> Burial:
        """Wait for the burial, and look whether it is true."""
        with anyio.fail_after(PATIENCE_SECONDS):
            burial = await self.tree.buried()
        assert processes_of(self.run) == []
        return burial


class Kit:
    """Starts harnesses through one warden, and closes what belongs to them."""

    def __init__(self, warden: Warden, state: Path) -> None:
        self.warden = warden
        self.state = state
        self.outputs: list[int] = []
        self.runs: list[str] = []

    async def start(self, *argv: str, cwd: str = "/", **env: str) -> Started:
        run = f"run_{uuid.uuid4().hex}"
        self.runs.append(run)
        output, writer = os.pipe()
        self.outputs.append(output)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            spawn = Spawn(run, argv, {"CAPSULE_RUN": run, **env}, cwd)
            tree = await self.warden.spawn(spawn, null, writer, null)
        finally:
            os.close(writer)
            os.close(null)
        return Started(tree, output, run)

    async def python(self, code: str, *arguments: str, **env: str) -> Started:
        return await self.start(sys.executable, "-I", "-S", "-c", code, *arguments, **env)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncGenerator[Kit]:
    lock, socket = tmp_path / "it.warden", tmp_path / "it.sock.warden"
    async with open_warden(str(lock), str(socket)) as warden:
        kit = Kit(warden, tmp_path)
        yield kit
    for output in kit.outputs:
        os.close(output)
    # When its warden was killed, a burier has said its last word a moment before it ends.
    freed = await take(lock, PATIENCE_SECONDS)
    assert freed is not None
    freed.release()


def warden_of(started: Started) -> int:
    return parent_of(parent_of(started.tree.pid))


def name_of(pid: int) -> str:
    """Return what *pid* is called; nothing for one that has just gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def zygotes_of(started: Started) -> list[int]:
    return [pid for pid in children(warden_of(started)) if name_of(pid) == "capsule-zygote"]


def zygote_of(started: Started) -> int:
    (zygote,) = zygotes_of(started)
    return zygote


async def test_a_clean_exit_ends_what_it_left_behind(kit: Kit) -> None:
    started = await kit.python(LEAVES_CHILDREN)

    assert await started.tree.exited() == Exit(3, None)
    burial = await started.buried()
    assert (burial.killed, burial.left, burial.lost) == (3, 0, False)


async def test_output_ends_though_a_grandchild_has_it(kit: Kit) -> None:
    started = await kit.python(LEAVES_CHILDREN)

    assert [await started.read(), await started.read()] == [b"ready", b""]
    assert (await started.buried()).left == 0


async def test_an_exit_with_nothing_behind_it(kit: Kit) -> None:
    started = await kit.start("/bin/true")

    assert await started.tree.exited() == Exit(0, None)
    assert (await started.buried()).killed == 0


async def test_daemons_that_ignore_every_signal(kit: Kit) -> None:
    started = await kit.python(DETACHES)
    await started.ready()

    started.tree.bury()

    assert await started.tree.exited() == Exit(None, signal.SIGKILL)
    assert (await started.buried()).killed == 6


async def test_a_fork_bomb(kit: Kit) -> None:
    started = await kit.python(BOMB)
    await started.ready(times=8)

    started.tree.bury()

    assert (await started.buried()).left == 0


async def test_a_burier_that_its_harness_kills(kit: Kit) -> None:
    started = await kit.python(KILLS_ITS_BURIER)

    assert await started.tree.exited() == Exit(None, None)
    burial = await started.buried()
    assert (burial.killed, burial.left, burial.lost) == (2, 0, True)


async def test_a_burier_that_its_harness_stops(kit: Kit) -> None:
    started = await kit.python(STOPS_ITS_BURIER)
    await started.ready()

    started.tree.bury()

    assert (await started.buried()).lost is False


async def test_a_burial_touches_no_other_run(kit: Kit) -> None:
    one, other = await kit.python(PAUSES), await kit.python(PAUSES)
    await one.ready()
    await other.ready()

    one.tree.bury()
    await one.buried()

    assert processes_of(other.run) == [other.tree.pid]
    other.tree.signal(signal.SIGTERM)
    assert await other.tree.exited() == Exit(None, signal.SIGTERM)
    await other.buried()


async def test_the_orphans_of_one_run_are_not_those_of_another(kit: Kit) -> None:
    other = await kit.python(PAUSES)
    await other.ready()

    lost = await kit.python(KILLS_ITS_BURIER)
    await lost.buried()

    assert processes_of(other.run) == [other.tree.pid]


async def test_runs_outlive_their_warden_and_end_as_asked(kit: Kit) -> None:
    before = await kit.python(PAUSES)
    await before.ready()
    killed = warden_of(before)

    os.kill(killed, signal.SIGKILL)
    wait_gone(killed)
    after = await kit.python(PAUSES)
    await after.ready()

    assert warden_of(after) != killed
    assert processes_of(before.run) == [before.tree.pid]
    for started in (before, after):
        started.tree.bury()
        assert (await started.buried()).left == 0


async def test_a_zygote_that_is_killed_is_replaced(kit: Kit) -> None:
    before = await kit.python(PAUSES)
    killed = zygote_of(before)

    os.kill(killed, signal.SIGKILL)
    wait_gone(killed)
    after = await kit.python(PAUSES)
    await after.ready()

    assert warden_of(after) == warden_of(before)
    assert zygote_of(after) != killed
    for started in (before, after):
        started.tree.bury()
        assert (await started.buried()).lost is False


async def test_a_zygote_that_is_stopped_is_replaced(kit: Kit) -> None:
    before = await kit.python(PAUSES)
    stopped = zygote_of(before)

    os.kill(stopped, signal.SIGSTOP)
    after = await kit.python(PAUSES)
    await after.ready()

    assert zygote_of(after) != stopped
    for started in (before, after):
        started.tree.bury()
        assert (await started.buried()).lost is False


async def test_zygotes_killed_all_the_time_cost_no_run_that_was_started(kit: Kit) -> None:
    first = await kit.python(PAUSES)
    lost = 0
    for _ in range(40):
        for zygote in zygotes_of(first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)
        try:
            started = await kit.python(PAUSES)
        except HostError:
            lost += 1
            continue
        await started.ready()
        started.tree.bury()
        assert (await started.buried()).left == 0

    assert lost < 40
    assert processes_of(first.run) == [first.tree.pid]


async def test_a_system_that_forks_no_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(WITHOUT_SIBLINGS.format(folder=str(HOST_FOLDER)))
    monkeypatch.setattr(
        "capsule_runtime.host.warden_process._COMMAND", (sys.executable, "-I", "-S", str(wrapper))
    )
    lock, socket = tmp_path / "it.warden", tmp_path / "it.sock.warden"
    async with open_warden(str(lock), str(socket)) as warden:
        kit = Kit(warden, tmp_path)
        started = await kit.python(PAUSES)
        await started.ready()
        name = name_of(parent_of(started.tree.pid))
        started.tree.bury()
        burial = await started.buried()
    for output in kit.outputs:
        os.close(output)

    assert name == "capsule-burier"
    assert (burial.left, burial.lost) == (0, False)


async def test_the_lock_is_held_until_every_tree_is_buried(kit: Kit) -> None:
    started = await kit.python(PAUSES)
    await started.ready()
    warden, zygote = warden_of(started), zygote_of(started)
    held = [is_free(kit.state / "it.warden")]

    os.kill(warden, signal.SIGKILL)
    wait_gone(warden)
    held.append(is_free(kit.state / "it.warden"))

    assert held == [False, False]
    burier = parent_of(started.tree.pid)
    started.tree.bury()
    await started.buried()
    for holder in (burier, zygote):
        wait_gone(holder)
    assert is_free(kit.state / "it.warden")


async def test_a_signal_reaches_the_program_behind_its_launcher(kit: Kit) -> None:
    started = await kit.python(LAUNCHES)
    await started.ready()

    started.tree.signal(signal.SIGINT)

    assert await started.read() == b"interrupted"
    await started.buried()


async def test_a_launcher_that_hands_signals_on_does_no_harm(kit: Kit) -> None:
    started = await kit.python(FORWARDS)
    await started.ready()

    started.tree.signal(signal.SIGINT)

    assert [await started.read(), await started.read()] == [b"interrupted", b""]
    await started.buried()


async def test_a_signal_is_not_for_the_tools_that_the_burial_is_for(kit: Kit) -> None:
    started = await kit.python(KEEPS_A_TOOL)
    await started.ready(times=2)

    started.tree.signal(signal.SIGINT)

    assert await started.read() == b"[]"
    started.tree.bury()
    assert (await started.buried()).killed == 2


async def test_large_arguments_and_environment(kit: Kit) -> None:
    env = {f"NAME_{number}": "v" * 1000 for number in range(1000)}
    code = "import os, sys; print(sum(map(len, sys.argv[1:])), 'NAME_999' in os.environ, end='')"

    started = await kit.python(code, *("a" * 100_000 for _ in range(5)), **env)

    assert await started.read() == b"500000 True"
    await started.buried()


async def test_a_harness_starts_clean(kit: Kit) -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        started = await kit.start(
            sys.executable, "-I", "-S", "-c", DESCRIBES_ITSELF, cwd=str(kit.state)
        )
    finally:
        signal.signal(signal.SIGUSR2, before)

    assert (await started.read()).decode() == f"True {kit.state} [0, 1, 2] 0 0"
    await started.buried()


@pytest.mark.parametrize(
    ("content", "mode", "hint"),
    [
        (None, 0, ""),
        ("#!/bin/sh\n", 0o600, ""),
        ("#!/nowhere/sh\n", 0o700, "the file is there, but the interpreter it names is not"),
        ("no program\n", 0o700, ""),
    ],
    ids=["missing", "not-executable", "no-interpreter", "no-format"],
)
async def test_a_program_that_cannot_run(
    kit: Kit, content: str | None, mode: int, hint: str
) -> None:
    program = kit.state / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)

    with pytest.raises(HarnessError, match=f"cannot run {program}: ") as refused:
        await kit.start(str(program))

    assert (refused.value.code, refused.value.hint) == ("E-HAR-001", hint)


async def test_a_work_directory_that_is_not_there(kit: Kit) -> None:
    with pytest.raises(HostError, match="cannot enter /nowhere: No such file") as refused:
        await kit.start("/bin/true", cwd="/nowhere")

    assert refused.value.code == "E-HOST-001"


async def test_a_warden_that_cannot_start_says_why(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none" / "it")

    async with open_warden(nowhere + ".warden", nowhere + ".sock.warden") as warden:
        with pytest.raises(HostError, match=r"No such file .*it\.warden'") as refused:
            await Kit(warden, tmp_path).start("/bin/true")

    assert refused.value.code == "E-HOST-001"


async def test_a_warm_warden_takes_the_first_run(kit: Kit) -> None:
    kit.warden.warm()
    kit.warden.warm()
    (warden,) = children(os.getpid())

    started = await kit.python(PAUSES)

    assert warden_of(started) == warden


async def test_burying_through_the_warden(kit: Kit) -> None:
    started = await kit.python(DETACHES)
    await started.ready()

    with anyio.fail_after(PATIENCE_SECONDS):
        known = await bury_through_warden(str(kit.state / "it.sock.warden"), started.run)

    assert known
    assert processes_of(started.run) == []
    assert (await started.buried()).killed == 6


async def test_burying_through_the_warden_what_it_does_not_know(kit: Kit) -> None:
    started = await kit.python(PAUSES)
    await started.ready()

    known = await bury_through_warden(str(kit.state / "it.sock.warden"), "run_other")

    assert not known
    assert processes_of(started.run) == [started.tree.pid]


async def test_whoever_cannot_read_the_state_has_no_run_buried(kit: Kit) -> None:
    """A harness may find the socket and be of our user; its walls keep the key from it."""
    started = await kit.python(PAUSES)
    await started.ready()
    answers: list[bytes] = []
    for words in (f"bury {started.run}", f"bury {'0' * 32} {started.run}", f"bury  {started.run}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
            visitor.settimeout(PATIENCE_SECONDS)
            visitor.connect(str(kit.state / "it.sock.warden"))
            visitor.send(words.encode())
            answers.append(visitor.recv(64))

    assert answers == [b"unknown"] * 3
    assert processes_of(started.run) == [started.tree.pid]
    assert (kit.state / "it.sock.warden.key").stat().st_mode & 0o777 == 0o600


async def test_visitors_who_only_stand_there_keep_nobody_out(kit: Kit) -> None:
    started = await kit.python(PAUSES)
    await started.ready()
    with contextlib.ExitStack() as crowd:
        for _ in range(100):
            idle = crowd.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            idle.connect(str(kit.state / "it.sock.warden"))

        known = await bury_through_warden(str(kit.state / "it.sock.warden"), started.run)

    assert known


async def test_burying_through_a_warden_that_is_gone(kit: Kit) -> None:
    path = str(kit.state / "it.sock.warden")
    known = [await bury_through_warden(path, "run_1")]
    started = await kit.python(PAUSES)
    await started.ready()

    warden = warden_of(started)
    os.kill(warden, signal.SIGKILL)
    wait_gone(warden)
    known.append(await bury_through_warden(path, started.run))

    assert known == [False, False]


async def test_a_socket_path_longer_than_an_address(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30)
    state.mkdir()
    path = str(state / "it.sock.warden")

    async with open_warden(str(state / "it.warden"), path) as warden:
        kit = Kit(warden, state)
        started = await kit.python(PAUSES)

        assert await bury_through_warden(path, started.run)
        await started.buried()
        os.close(started.output)


async def test_leaving_the_block_buries(tmp_path: Path) -> None:
    lock = tmp_path / "it.warden"

    socket = tmp_path / "it.sock.warden"
    kits: list[Kit] = []

    with anyio.CancelScope() as scope:
        async with open_warden(str(lock), str(socket)) as warden:
            kits.append(Kit(warden, tmp_path))
            started = await kits[0].python(DETACHES)
            await started.ready()
            scope.cancel()
            await started.tree.exited()

    assert scope.cancelled_caught
    assert processes_of(kits[0].runs[0]) == []
    assert is_free(lock)
    assert not socket.exists()
    os.close(kits[0].outputs[0])


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 5, 10, 15, 20, 30])
async def test_a_start_that_is_cancelled_leaves_nothing(kit: Kit, milliseconds: int) -> None:
    started: list[Started] = []

    with anyio.move_on_after(milliseconds / 1000):
        started.append(await kit.python(PAUSES))
    for it in started:
        it.tree.bury()
        await it.buried()

    assert processes_of(kit.runs[0]) == []


async def test_many_wait_for_one_tree_and_one_of_them_gives_up(kit: Kit) -> None:
    started = await kit.python(PAUSES)
    await started.ready()
    exits: list[Exit] = []
    burials: list[Burial] = []

    async def hear_exit() -> None:
        exits.append(await started.tree.exited())

    async def hear_burial() -> None:
        burials.append(await started.tree.buried())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(hear_exit)
            tasks.start_soon(hear_burial)
        with anyio.move_on_after(0.01):
            await started.tree.exited()
        started.tree.signal(signal.SIGINT)

    assert exits == [Exit(None, signal.SIGINT)] * 3
    assert len(set(burials)) == 1
    assert len(burials) == 3


async def test_words_to_a_tree_that_is_gone(kit: Kit) -> None:
    started = await kit.start("/bin/true")
    burial = await started.buried()

    started.tree.signal(signal.SIGTERM)
    started.tree.bury()

    assert await started.buried() == burial


async def test_a_signal_that_does_not_exist(kit: Kit) -> None:
    started = await kit.python(PAUSES)

    with pytest.raises(ValueError, match="999 is not a valid Signals"):
        started.tree.signal(999)


async def test_200_runs_start_together_and_end_together(kit: Kit) -> None:
    started: list[Started] = []

    async def start() -> None:
        started.append(await kit.start("/bin/sleep", "1000"))

    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(start)
    for it in started:
        it.tree.bury()
    burials = [await it.tree.buried() for it in started]

    assert len(burials) == 200
    assert {(burial.killed, burial.left) for burial in burials} == {(1, 0)}


def test_without_a_children_file_all_of_proc_says_the_same() -> None:
    """Kernels are built without CONFIG_PROC_CHILDREN too."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as child:
        try:
            assert child.pid in children(os.getpid())
            assert scan_families()[os.getpid()] == children(os.getpid())
        finally:
            child.kill()
