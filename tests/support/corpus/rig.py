"""What a probe works with: a harness in a tier, and what it is not to reach."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.host.process import Warden
from capsule_runtime.host.run_users import run_users
from support.cell import Cell, read_all
from support.corpus.tiers import Tier
from support.processes import processes_of

PRELUDE = """
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    ctypes.set_errno(0)
    return 0 if libc.syscall(ctypes.c_long(number), *words) >= 0 else ctypes.get_errno()
def route(name, deed):
    try:
        found = deed()
    except (OSError, ValueError, AttributeError, MemoryError, TypeError) as refusal:
        found = f"refused {refusal!r}"
    print(f"{name}\\t{found}", flush=True)
def read(path):
    with open(path, "rb") as file:
        return file.read(65536)
def done(_):
    return "done"
"""
"""What the code of all probes begins with."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A harness at work, and the end of its output."""

    run: str
    pid: int
    output: int
    end: Callable[[], Awaitable[object]]

    def processes(self) -> list[int]:
        """Return what is alive of it, as the host sees it."""
        return processes_of(self.run)


class Rig:
    """A cell in which one probe is tried in one *tier*."""

    def __init__(self, folder: Path, warden: Warden, tier: Tier, door: Path) -> None:
        """*door* is where *warden* can be called."""
        folder.mkdir(exist_ok=True)
        self.door = door
        self.cell = Cell(folder, warden)
        self.tier = tier
        self.folder = folder
        self.outside = self.cell.secret.parent
        self.secret, self.workdir = self.cell.secret, self.cell.workdir
        self.canary = secrets.token_hex(16)
        """What stands in the file outside, and nowhere else."""
        self.secret.write_text(self.canary)
        self.stdin = self.outside / "stdin"
        self.stdin.write_text("")
        # So that nothing but walls keeps a harness from it.
        for path, mode in ((folder, 0o755), (self.outside, 0o777), (self.workdir, 0o777)):
            path.chmod(mode)
        for path in (self.secret, self.stdin):
            path.chmod(0o666)

    @property
    def is_walled(self) -> bool:
        return bool(self.tier.promises)

    def walls(self) -> WallPlan | None:
        """Return new walls, of a user of their own where root starts them."""
        return self.tier.walls(self.cell)

    def seen_home(self) -> str:
        """Return the path of HOME as the harness sees it."""
        walls = self.walls()
        self._release(walls)
        sealed = walls is not None and walls.seal is not None and self.cell.seen is not None
        return self.cell.seen.home if sealed and self.cell.seen else str(self.cell.home)

    async def said(self, launched: Launched) -> str:
        """Return all that *launched* says."""
        return (await read_all(launched.output)).decode(errors="replace")

    async def tries(self, code: str, *arguments: object, **env: str) -> str:
        """Return all that a harness of the Python *code* says until it and all of it are gone."""
        async with self.started(code, *arguments, **env) as launched:
            return await self.said(launched)

    async def routes(self, code: str, *arguments: object, **env: str) -> dict[str, str]:
        """Return what a harness says of each route that it tried."""
        said = await self.tries(code, *arguments, **env)
        lines = (line.partition("\t") for line in said.splitlines())
        found = {name: words for name, tab, words in lines if tab}
        assert found, f"the probe itself failed: {said}"
        return found

    async def leaks(self, code: str, *arguments: object, **env: str) -> list[str]:
        """Return the routes by which a harness came to know the canary."""
        found = await self.routes(code, *arguments, **env)
        return [name for name, words in found.items() if self.canary in words]

    async def successes(self, code: str, *arguments: object, **env: str) -> list[str]:
        """Return the routes of which a harness says that it is done."""
        found = await self.routes(code, *arguments, **env)
        return [name for name, words in found.items() if words == "done"]

    @asynccontextmanager
    async def started(self, code: str, *arguments: object, **env: str) -> AsyncGenerator[Launched]:
        """Start a harness of the Python *code*; at the end of the block it is no more."""
        async with self.started_behind(self.walls(), code, *arguments, **env) as launched:
            yield launched

    @asynccontextmanager
    async def started_behind(
        self, walls: WallPlan | None, code: str, *arguments: object, **env: str
    ) -> AsyncGenerator[Launched]:
        """Do the same behind these *walls*."""
        argv = (sys.executable, "-I", "-S", "-c", PRELUDE + code, *map(str, arguments))
        if not self.is_walled:
            async with self._bare(argv, env) as launched:
                yield launched
            return
        inherited = os.open(self.secret, os.O_RDONLY)
        os.set_inheritable(inherited, True)
        try:
            async with self.cell.launched(argv, walls, **env) as (tree, output):

                async def end() -> None:
                    tree.bury()
                    await tree.buried()

                yield Launched(tree.run, tree.pid, output, end)
        finally:
            os.close(inherited)
            self._release(walls)

    def _release(self, walls: WallPlan | None) -> None:
        if (user := user_of(walls)) is not None:
            run_users().release(user)

    @asynccontextmanager
    async def _bare(self, argv: Iterable[str], env: dict[str, str]) -> AsyncGenerator[Launched]:
        """Start *argv* as a program would that thinks of nothing."""
        run = f"run_{uuid.uuid4().hex}"
        output, writer = os.pipe()
        inherited = os.open(self.secret, os.O_RDONLY)
        os.set_inheritable(inherited, True)
        with self.stdin.open("rb") as stdin:
            process = subprocess.Popen(
                [*argv],
                stdin=stdin,
                stdout=writer,
                stderr=writer,
                env={**os.environ, "CAPSULE_RUN": run, **env},
                cwd=self.workdir,
                start_new_session=True,
                close_fds=False,
            )
        os.close(writer)
        os.close(inherited)

        async def end() -> None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)

        try:
            yield Launched(run, process.pid, output, end)
        finally:
            for pid in (process.pid, *processes_of(run)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            os.close(output)


def user_of(walls: WallPlan | None) -> int | None:
    """Return the user that a run behind *walls* becomes; None if it stays who it is."""
    made = walls and (walls.seal or walls.scope)
    return made.user if made else None
