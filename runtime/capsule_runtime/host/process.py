"""Start harnesses through the warden, and know when nothing of them is left.

`open_warden` is a lifeline: however its block ends, and also when this process is killed, every
tree that was spawned in it is buried.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import anyio

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.wall_report import WallReport, differences
from capsule_runtime.errors import HarnessError, HostError
from capsule_runtime.host.finishing import finish
from capsule_runtime.host.handshake import Handshake, Here, Refusal, open_talk
from capsule_runtime.host.leftovers import new_cage_name
from capsule_runtime.host.refusal_words import CANNOT_SHIFT
from capsule_runtime.host.spawn import Spawn
from capsule_runtime.host.tree import BURIAL_SECONDS, Burial, Exit, Tree
from capsule_runtime.host.warden_process import WardenProcess, Words

__all__ = ["Burial", "Exit", "Spawn", "Tree", "Warden", "bury_through_warden", "open_warden"]

START_SECONDS = 30.0
"""How long it may take from asking the warden until the harness's program runs."""

_STARTS_AT_ONCE = 32
_ANSWER_BYTES = 4096
_ITS_WORDS = "Its words are in the stderr.log of the run."
_OWN_IT = (
    "No file system there can show its files as another user's, or one that is mounted beneath it."
    " Run as the folder's owner instead of as root, or have the folder on ext4, xfs, btrfs or tmpfs."
)
# These are the machine's fault, though it is `execve` that reports them.
_MACHINE_ERRNOS = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO}


class Warden:
    """Starts harnesses. Its process is started by the first of them, or by `warm`."""

    def __init__(self, lock_path: str, socket_path: str) -> None:
        self._paths = (lock_path, socket_path)
        self._process: WardenProcess | None = None
        self._trees: list[Tree] = []
        # The kernel bounds the descriptors that are on their way, and a socket its queue.
        self._starting = anyio.Semaphore(_STARTS_AT_ONCE)

    def warm(self) -> None:
        """Start the process now and do not wait: it gets ready while we do other things.

        Raises:
            HostError: E-HOST-001, there is no process to be had.
        """
        self._running()

    async def spawn(self, spawn: Spawn, stdin: int, stdout: int, stderr: int) -> Tree:
        """Start a harness on the three descriptors, which the caller then closes.

        Raises:
            HarnessError: E-HAR-001, the program cannot be run.
            HostError: E-HOST-001, the warden or the machine failed.
        """
        async with self._starting:
            tree, handshake = self._request(spawn, (stdin, stdout, stderr))
            try:
                refusal: Refusal | None = Refusal(errno.ETIMEDOUT, "start")
                with anyio.move_on_after(START_SECONDS), closing(handshake):
                    refusal = await _launched(spawn, tree, handshake)
                if refusal is not None:
                    raise self._failure(spawn, refusal)
            except BaseException:
                # Cancelled in the middle of it, too late or refused: whatever is there is buried.
                for descriptor in tree.handed:
                    os.close(descriptor)
                with anyio.CancelScope(shield=True), suppress(HostError):
                    tree.bury()
                    await tree.buried()
                raise
            return tree

    async def close(self) -> None:
        """Bury every tree and let the process go, in bounded time.

        Raises:
            HostError: E-HOST-002, a tree cannot be shown to be empty.
        """
        living = [tree for tree in self._trees if not tree.is_over]
        doubts: list[HostError] = []
        for tree in living:
            tree.bury()
        for tree in living:
            try:
                await tree.buried()
            except HostError as doubt:
                doubts.append(doubt)
                tree.abandon()
        if self._process is not None:
            await self._process.end()
        if doubts:
            raise doubts[0]

    def _running(self) -> WardenProcess:
        if self._process is not None and self._process.is_dead():
            self._process.close()
            self._process = None
        if self._process is None:
            self._process = WardenProcess(*self._paths)
        return self._process

    def _request(self, spawn: Spawn, stdio: tuple[int, int, int]) -> tuple[Tree, Handshake]:
        """Ask for a start, and return the tree that it will be; nothing of it may be there yet."""
        groups = spawn.walls.groups if spawn.walls else ()
        cage = new_cage_name() if groups else ""
        words: Words = ("spawn", spawn.run, cage, groups)
        try:
            with ExitStack() as cleanup, ExitStack() as cleanup_on_fail:
                burier, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                cleanup_on_fail.callback(burier.close)
                cleanup.callback(its.close)
                talk, childs = open_talk()
                cleanup_on_fail.callback(talk.close)
                cleanup.callback(childs.close)
                for one in (burier, its, talk):
                    one.setblocking(False)
                spec = os.memfd_create("spawn")
                cleanup.callback(os.close, spec)
                os.write(spec, spawn.marshalled())
                descriptors = [its.fileno(), spec, childs.fileno(), *stdio]
                if not self._running().tell(words, descriptors):
                    # It was killed a moment ago. What it did not receive it did not start.
                    self._running().tell(words, descriptors)
                cleanup_on_fail.pop_all()
        except OSError as refusal:
            raise HostError("E-HOST-001", f"cannot ask the warden: {refusal}") from refusal
        tree = Tree(spawn.run, burier, self._remind, cage)
        self._trees = [*(tree for tree in self._trees if not tree.is_over), tree]
        return tree, Handshake(talk)

    def _remind(self, run: str) -> None:
        if self._process is not None:
            with suppress(OSError):
                self._process.tell(("bury", run))

    def _failure(self, spawn: Spawn, refusal: Refusal) -> HarnessError | HostError:
        program, reason = spawn.argv[0], os.strerror(refusal.number)
        match refusal.step:
            case "exec" if refusal.number not in _MACHINE_ERRNOS:
                message = f"cannot run {program}: {reason}"
                # The kernel means the interpreter that a script's first line names.
                missing = refusal.number == errno.ENOENT and os.path.exists(program)
                hint = "the file is there, but the interpreter it names is not" if missing else ""
                if refusal.number == errno.EACCES and spawn.walls and os.access(program, os.X_OK):
                    hint = "the walls keep it, or the interpreter it names, from being read"
                return HarnessError("E-HAR-001", message, hint)
            case step if step.startswith("walls: "):
                return HostError("E-HOST-030", f"cannot put up the walls: {step[7:]}")
            case step if step.startswith("seal: "):
                what = f"the root of the run cannot be made: {step[6:]}"
                hint = _OWN_IT if CANNOT_SHIFT in step else _ITS_WORDS
                return HostError("E-HOST-034", what, hint)
            case "cgroup":
                return HostError("E-HOST-030", f"cannot make the cgroups of the run: {reason}")
            case "chdir":
                return HostError("E-HOST-001", f"cannot enter {spawn.cwd}: {reason}")
            case "silent":
                words = self._process.last_words() if self._process else ""
                return HostError("E-HOST-001", f"the warden ended before {program} ran: {words}")
            case "lost":
                return HostError("E-HOST-001", f"the burier was killed before {program} ran")
            case step if step.startswith("ended: "):
                hint = f"a limit of the run was met: {step[7:]}" if step[7:] else ""
                return HostError("E-HOST-001", f"it was killed before {program} ran", hint)
            case step:
                return HostError("E-HOST-001", f"cannot start {program}: {step}: {reason}")


async def _launched(spawn: Spawn, tree: Tree, handshake: Handshake) -> Refusal | None:
    """Wait until the program runs (None), or it is known that it will not.

    Raises:
        HostError: E-HOST-030, the harness is not behind what was planned.
    """
    heard = await handshake.hear()
    if heard is None:
        return await tree.refused()
    if isinstance(heard, Refusal):
        return heard
    tree.pid, tree.handed = heard.pid, heard.handed
    if spawn.walls is not None:
        _check_walls(spawn.walls, heard.report, tree)
        if spawn.walls.seal is not None:
            tree.has_moved()
        handshake.go()
    end = await handshake.hear()
    assert not isinstance(end, Here), "a child is there once"
    return end


def _check_walls(walls: WallPlan, report: WallReport | None, tree: Tree) -> None:
    wrong = ["none are there"] if report is None else differences(walls, report, tree.cage)
    if wrong:
        raise HostError(
            "E-HOST-030", f"the walls of run {tree.run} are not as planned: {'; '.join(wrong)}"
        )


@asynccontextmanager
async def open_warden(lock_path: str, socket_path: str) -> AsyncGenerator[Warden]:
    """Hold a warden. When the block ends, however it ends, every tree spawned in it is buried.

    The lock on *lock_path* is held, shared, until nothing of any tree is left, also when this
    process is killed. *socket_path* is where `bury_through_warden` finds the warden.

    Raises:
        HostError: E-HOST-002, a tree cannot be shown to be empty.
    """
    warden = Warden(lock_path, socket_path)
    try:
        yield warden
    finally:
        await finish(warden.close)


def _read_key(path: str) -> bytes:
    return Path(f"{path}.key").read_bytes()


async def bury_through_warden(path: str, run_id: str) -> bool:
    """Bury a run of another process, whose warden listens at *path*; False if it knows no such run.

    Raises:
        HostError: E-HOST-002, the run's tree cannot be shown to be empty.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warden:
        warden.setblocking(False)
        answer = b""
        with anyio.move_on_after(BURIAL_SECONDS):
            try:
                connect(warden, path)
                warden.send(b"bury " + _read_key(path) + b" " + run_id.encode())
                await anyio.wait_readable(warden)
                answer = warden.recv(_ANSWER_BYTES)
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except (BrokenPipeError, ConnectionResetError):
                pass
    match answer:
        case b"done":
            return True
        case b"unknown":
            return False
        case _:
            said = answer.decode(errors="replace") or "nothing"
            raise HostError(
                "E-HOST-002", f"run {run_id}: asked to bury it, the warden said: {said}"
            )


def connect(warden: socket.socket, path: str) -> None:
    """Connect to the socket at *path*, which may be longer than a socket address can be."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        warden.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)
