"""A harness behind walls, and the same one without: what it reached is judged from outside."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from capsule_runtime.containing import sealing_with
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.sandbox_plan import (
    SHARED,
    Ground,
    Program,
    WallPlan,
    plan_walls,
    readable,
)
from capsule_runtime.core.scope import ETC
from capsule_runtime.core.scoped_walls import plan_scoped
from capsule_runtime.core.sealed_walls import plan_sealed
from capsule_runtime.core.seen_places import SeenPlaces
from capsule_runtime.core.wall_limits import ResourceLimits
from capsule_runtime.host.broker import Broker, Granted
from capsule_runtime.host.footprint import program_of
from capsule_runtime.host.ground import closed_above
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.metadata import Identity
from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.process import Spawn, Tree, Warden, open_warden
from capsule_runtime.host.run_users import run_users
from capsule_runtime.host.scoping import find_scopes
from capsule_runtime.host.shifting import why_not_shifted
from support.processes import processes_of

PATIENCE_SECONDS = 20
CANARY = "the canary sings"
NOTHING = Grants()
USUAL = ResourceLimits(memory=2**30, processes=64, files=64, disk=2**30, wall=60)


class Cell:
    """Folders outside of /tmp, a warden, and harnesses in Python that try things."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self.folder = folder
        self.secret = folder / "outside" / "secret"
        self.workdir = folder / "work"
        self.home = folder / "home"
        for made in (self.secret.parent, self.workdir, self.home):
            made.mkdir()
        self.secret.write_text(CANARY)
        self.warden = warden
        self.seen: SeenPlaces | None = None

    def ground(self, mode: str = "rw") -> Ground:
        """Return the ground of a harness in Python."""
        program = program_of(sys.executable, os.environ)
        system = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt")
        return Ground(
            capsule=str(self.workdir),
            workdir=str(self.workdir),
            workdir_mode=mode,
            writable=(str(self.home),),
            agent=str(self.workdir),
            program=program,
            search_path=(),
            system=tuple(filter(os.path.exists, system)),
            system_links=tuple(
                (path, os.readlink(path)) for path in system if os.path.islink(path)
            ),
            devices=("/dev/null", "/dev/zero", "/dev/urandom"),
            shared=SHARED,
            git=(),
            caller_home=str(Path.home()),
            state=str(self.folder / "state"),
            credentials=(),
            etc=tuple(filter(os.path.exists, (f"/etc/{name}" for name in ETC))),
            closed=tuple(closed_above([sys.executable, *program.files, str(self.workdir)])),
        )

    def walls(
        self,
        mode: str = "rw",
        ceilings: ResourceLimits = USUAL,
        grants: Grants = NOTHING,
        machine: Machine | None = None,
    ) -> WallPlan:
        """Return the walls of this machine, or of what *machine* says it has."""
        return plan_walls(self.ground(mode), grants, ceilings, machine or find_machine())

    def sealed(
        self,
        mode: str = "rw",
        ceilings: ResourceLimits = USUAL,
        machine: Machine | None = None,
    ) -> WallPlan:
        """Return the walls of a run with a root of its own, as this machine can make one."""
        sealing = sealing_with(find_namespaces())
        if os.geteuid() == 0:
            sealing = replace(sealing, user=run_users().lease())
        self.seen = sealing.seen
        ground = replace(self.ground(mode), writable=self._own_folders())
        return plan_sealed(ground, NOTHING, ceilings, machine or find_machine(), sealing)

    def scoped(self, mode: str = "rw", ceilings: ResourceLimits = USUAL) -> WallPlan:
        """Return the walls of a run that shares the machine's root."""
        scoping = find_scopes().scoping()
        ground = replace(self.ground(mode), writable=self._own_folders())
        if os.geteuid() == 0:
            user = run_users().lease()
            shifts = not why_not_shifted(str(self.folder))
            scoping = replace(scoping, user=user, shifts=shifts)
            if not shifts:
                self._give(user, (*ground.writable, ground.workdir))
        ground = replace(
            ground,
            devices=("/dev/null", "/dev/zero", "/dev/urandom", "/dev/ptmx", "/dev/pts", "/dev/tty"),
        )
        ground = replace(ground, closed=tuple(closed_above([*readable(ground), ground.workdir])))
        return plan_scoped(ground, NOTHING, ceilings, find_machine(), scoping)

    def _own_folders(self) -> tuple[str, ...]:
        folders = [self.folder / name for name in ("home", "tmp", "out")]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        return tuple(map(str, folders))

    def _give(self, user: int, folders: tuple[str, ...]) -> None:
        """Have *folders*, and what is in them, belong to *user*, as a run's own folders do."""
        for folder in folders:
            for path in (Path(folder), *Path(folder).rglob("*")):
                os.chown(path, user, user, follow_symlinks=False)

    async def tries(self, code: str, walls: WallPlan | None, *arguments: str) -> str:
        """Return all that a harness of the Python *code* says, once its tree is buried."""
        async with self.started(code, walls, *arguments) as (_, output):
            return (await read_all(output)).decode()

    def spawn_of(self, argv: tuple[str, ...], walls: WallPlan | None, **env: str) -> Spawn:
        """Return what the warden is asked for a harness that is *argv*."""
        run = f"run_{uuid.uuid4().hex}"
        env = {"CAPSULE_RUN": run, "HOME": str(self.home), "PATH": "/usr/bin:/bin", **env}
        workdir = self.seen.workdir if walls and walls.seal and self.seen else str(self.workdir)
        return Spawn(run, argv, env, workdir, walls)

    @asynccontextmanager
    async def started(
        self, code: str, walls: WallPlan | None, *arguments: str
    ) -> AsyncGenerator[tuple[Tree, int]]:
        """Start a harness of the Python *code*; at the end of the block it is buried."""
        argv = (sys.executable, "-I", "-S", "-c", code, *arguments)
        async with self.launched(argv, walls) as started:
            yield started

    @asynccontextmanager
    async def launched(
        self, argv: tuple[str, ...], walls: WallPlan | None, **env: str
    ) -> AsyncGenerator[tuple[Tree, int]]:
        """Start *argv*, and hold the reading end of its stdout and stderr."""
        spawn = self.spawn_of(argv, walls, **env)
        run = spawn.run
        output, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            tree = await self.warden.spawn(spawn, null, writer, writer)
        finally:
            os.close(null)
            os.close(writer)
        try:
            async with self._brokered(walls, tree):
                yield tree, output
        finally:
            tree.bury()
            with anyio.CancelScope(shield=True):
                await tree.buried()
            os.close(output)
            assert processes_of(run) == []

    @asynccontextmanager
    async def _brokered(self, walls: WallPlan | None, tree: Tree) -> AsyncGenerator[None]:
        """Have a broker do for a scoped run what that may not do itself; it connects it to nothing."""
        if walls is None or walls.scope is None:
            yield
            return
        (descriptor,) = tree.handed
        user = walls.scope.user
        owned = Identity(user, user) if user is not None and walls.scope.owns else None
        granted = Granted({}, walls.scope.roots, owned, None if owned else user)
        broker = Broker(descriptor, granted, lambda _: None)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(broker.serve)
                yield
                tasks.cancel_scope.cancel()
        finally:
            broker.close()


def program_ground(program: str, env: dict[str, str]) -> Program:
    """Return what *program* needs, found on the PATH of *env*."""
    found = shutil.which(program, path=env["PATH"])
    assert found is not None
    return program_of(found, env)


async def read_all(output: int) -> bytes:
    """Read the pipe *output* to its end."""
    said = b""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            await anyio.wait_readable(output)
            part = os.read(output, 65536)
            if not part:
                return said
            said += part


@asynccontextmanager
async def open_cell() -> AsyncGenerator[Cell]:
    """Make a cell where nothing is shared: /tmp is open to everybody."""
    folder = Path(tempfile.mkdtemp(prefix="cell-", dir="/var/tmp"))
    try:
        async with open_warden(str(folder / "lock"), str(folder / "socket")) as warden:
            yield Cell(folder, warden)
    finally:
        shutil.rmtree(folder)
