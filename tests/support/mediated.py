"""Harnesses whose calls a broker does: in a folder of their own, as another user where we are root."""

from __future__ import annotations

import array
import base64
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from capsule_runtime.core.mediation import Endpoint
from capsule_runtime.core.seccomp import build_filter, build_notify_filter
from capsule_runtime.host import filters
from capsule_runtime.host.broker import Broker, Granted, Verdict
from capsule_runtime.host.mediated_sockets import Dial
from capsule_runtime.host.metadata import Identity
from support.filtered import ENV, RAW_CALLS

PATIENCE_SECONDS = 60
STRANGER = 65534

_BEHIND = f"""
import array, base64, os, socket, sys
sys.path.append({os.path.dirname(filters.__file__)!r})
from filters import install, install_notifying
from landlock import restrict
from walls import drop_privileges
talk, uid = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
if uid >= 0:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
drop_privileges()
if sys.argv[5]:
    system = ("/usr", "/bin", "/lib", "/lib64", "/etc")
    rules = [(path.encode(), "read") for path in system if os.path.exists(path)]
    rules += [(b"/proc", "look"), (b"/dev/null", "device"), (b"/dev/ptmx", "device")]
    restrict([*rules, (sys.argv[5].encode(), "write")])
told = install_notifying(base64.b64decode(sys.argv[3]))
talk.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [told]))])
talk.recv(1)
install(base64.b64decode(sys.argv[4]))
os.execvp(sys.argv[6], sys.argv[6:])
"""


class Place:
    """A host: what a harness was granted, and what is beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workdir = folder / "work"
        self.outside = folder / "outside"
        self.identity = Identity(STRANGER, STRANGER) if os.geteuid() == 0 else None
        self.behind_landlock = False
        self.verdicts: list[Verdict] = []
        self.serving: anyio.CancelScope
        self.ended: anyio.Event
        for made in (self.workdir, self.outside):
            made.mkdir()
            self.give(made)

    def give(self, path: Path) -> None:
        """Make *path* the harness's own."""
        if self.identity:
            os.lchown(path, self.identity.uid, self.identity.gid)

    def file(self, name: str, folder: Path | None = None) -> Path:
        """Return a new file of the harness's own."""
        path = (folder or self.workdir) / name
        path.write_text(name)
        path.chmod(0o600)
        self.give(path)
        return path

    @asynccontextmanager
    async def started(
        self, *argv: str, endpoints: Mapping[Endpoint, Dial] | None = None
    ) -> AsyncGenerator[Process]:
        """Start *argv*, and serve it to the end of the block, or until `serving` is cancelled."""
        machine = os.uname().machine
        uid = self.identity.uid if self.identity else -1
        programs = [build_notify_filter(machine, stays_readable=True)]
        programs.append(build_filter("strict", machine))
        beneath = str(self.workdir) if self.behind_landlock else ""
        encoded = [base64.b64encode(program).decode() for program in programs]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            number = str(theirs.fileno())
            process = await anyio.open_process(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    _BEHIND,
                    number,
                    str(uid),
                    *encoded,
                    beneath,
                    *argv,
                ],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                cwd=self.workdir,
                env={**ENV, "HOME": str(self.workdir)},
            )
            theirs.close()
            async with process:
                await anyio.wait_readable(ours)
                self.serving = anyio.CancelScope()
                broker = Broker(
                    _received(ours),
                    Granted(endpoints or {}, (str(self.workdir),), self.identity),
                    self.verdicts.append,
                )
                self.ended = anyio.Event()
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._serve, broker)
                        ours.send(b"x")
                        yield process
                        tasks.cancel_scope.cancel()
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    async def _serve(self, broker: Broker) -> None:
        with closing(broker), self.serving:
            await broker.serve()
            self.ended.set()

    async def runs(
        self, *argv: str, endpoints: Mapping[Endpoint, Dial] | None = None
    ) -> tuple[int, str, str]:
        """Run *argv* to its end; return its code, stdout and stderr."""
        async with self.started(*argv, endpoints=endpoints) as process:
            with anyio.fail_after(PATIENCE_SECONDS):
                said = ["", ""]

                async def read(index: int) -> None:
                    stream = (process.stdout, process.stderr)[index]
                    assert stream is not None
                    async for part in stream:
                        said[index] += part.decode()

                async with anyio.create_task_group() as tasks:
                    for index in (0, 1):
                        tasks.start_soon(read, index)
                return await process.wait(), said[0], said[1]

    async def tells(
        self, code: str, *arguments: str, endpoints: Mapping[Endpoint, Dial] | None = None
    ) -> object:
        """Return what a harness of the Python *code* prints as JSON."""
        argv = (python(), "-I", "-S", "-c", RAW_CALLS + code, *arguments)
        status, said, complaint = await self.runs(*argv, endpoints=endpoints)
        assert status == 0, complaint
        return json.loads(said)


def python() -> str:
    """Return a Python that every user can run."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not found:
        pytest.skip("there is no python3 that another user could run")
    return found


def _received(ours: socket.socket) -> int:
    words, rights, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    assert words, "the harness ended before it was behind its filters"
    descriptors = array.array("i", rights[0][2])
    return descriptors[0]


@contextmanager
def open_place() -> Generator[Place]:
    """Make a place that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="place-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield Place(folder)
    finally:
        shutil.rmtree(folder)


def dial_address(address: str, port: int) -> Dial:
    """Return what dials the IPv4 *address*."""

    def dial() -> socket.socket:
        ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        error = ours.connect_ex((address, port))
        if error == errno.EINPROGRESS:
            # On the same machine, the answer is there already.
            error = ours.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            ours.close()
            raise OSError(error, os.strerror(error))
        return ours

    return dial
