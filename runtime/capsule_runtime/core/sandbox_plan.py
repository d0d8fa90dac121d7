"""Which files a run may open, and all that is put up around it: decided here, done by the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from capsule_runtime.core.containment import Axes, Containment, Mechanism, Missing
from capsule_runtime.core.env_names import check_names
from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.machine import Machine
from capsule_runtime.core.scope import Scope
from capsule_runtime.core.seal import Seal
from capsule_runtime.core.wall_limits import LimitPlan, ResourceLimits, Settings, plan_limits
from capsule_runtime.errors import ContainmentError

TIER = "advisory"
"""The tier that runs get: there are walls, but the harness has its caller's uid and network."""

SCOPES_SINCE_ABI = 6
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
SHARED = ("/tmp", "/dev/shm")
_OF_THE_KERNEL = ("/proc", "/sys", "/dev", "/run")

Rule = tuple[str, str]
"""A path, and the kind of access that all beneath it gets: look, read, write or device."""


class Program(Struct, frozen=True):
    """What a harness's program is made of."""

    files: tuple[str, ...] = ()
    """Every link, script and interpreter on the way from its name to machine code."""
    prefixes: tuple[str, ...] = ()
    """The folders that it, or an interpreter of it, was installed into."""
    links: tuple[tuple[str, str], ...] = ()
    """Which of the files are links, and what each says."""


class Ground(Struct, frozen=True):
    """The places of a run, all absolute, with no link in those that may be written."""

    capsule: str
    workdir: str
    workdir_mode: str
    writable: tuple[str, ...]
    """HOME, TMPDIR and out."""
    agent: str
    program: Program
    search_path: tuple[str, ...]
    system: tuple[str, ...]
    """What there is of the system: SYSTEM and the like."""
    devices: tuple[str, ...]
    shared: tuple[str, ...]
    git: tuple[str, ...]
    """Folders outside the work directory that hold the repository it belongs to."""
    caller_home: str
    state: str
    credentials: tuple[str, ...]
    """What must stay closed: keys and logins of the caller."""
    foreign_workdir: bool = False
    """Whether the work directory belongs to another user than the harness runs as."""
    system_links: tuple[tuple[str, str], ...] = ()
    """Which of SYSTEM are links, and what each says."""
    real_paths: tuple[tuple[str, str], ...] = ()
    """Which of what may be read is reached by links, and where it lies."""
    etc: tuple[str, ...] = ()
    """What there is of /etc that anybody needs."""
    closed: tuple[str, ...] = ()
    """Folders of the caller's, above what a run needs, that nobody else may enter."""
    barred: tuple[str, ...] = ()
    """The same, whosever they are."""


class WallPlan(Struct, frozen=True):
    """What the harness puts up around itself, and what is said of it."""

    rules: tuple[Rule, ...] | None
    """None where there is no Landlock."""
    landlock_abi: int
    drops_bounding: bool
    limits: LimitPlan
    report: Containment
    seal: Seal | None = None
    """The root of its own that a sealed run has."""
    scope: Scope | None = None
    """What a scoped run has in its place."""

    @property
    def is_scoped(self) -> bool:
        """Whether the harness cannot signal what is not its own."""
        return self.landlock_abi >= SCOPES_SINCE_ABI

    @property
    def user(self) -> int | None:
        """Return whom the harness becomes; None where it stays who the caller is."""
        shell = self.seal or self.scope
        return shell.user if shell else None

    @property
    def groups(self) -> tuple[tuple[str, Settings], ...]:
        """Return where cgroups are made, and what is written into their files."""
        return self.limits.groups


def plan_walls(ground: Ground, grants: Grants, asked: ResourceLimits, machine: Machine) -> WallPlan:
    """Decide the walls of one run.

    Raises:
        ContainmentError: E-CAP-003, a grant would open what must stay closed.
        UsageError: E-USE-050, a variable was granted that nobody may give.
    """
    check_grants(ground, grants)
    limits = plan_limits(asked, machine)
    rules = tuple(dict.fromkeys(_rules(ground, grants))) if machine.landlock_abi else None
    report = Containment(
        tier=TIER,
        axes=Axes(
            fs="none (metadata)" if rules is not None else "none",
            tmp="shared",
            net="open",
            proc="landlock" if machine.landlock_abi >= SCOPES_SINCE_ABI else "shared",
            kill="warden",
            resources=limits.resources,
            priv="no-caps,nnp",
            syscalls="none",
        ),
        mechanism=Mechanism(machine.landlock_abi, machine.landlock_errata, machine.cgroups.kind),
        limits=limits.limits,
        caveats=tuple(_caveats(ground, machine)),
        missing=(*missing_walls(machine), *limits.missing),
    )
    return WallPlan(rules, machine.landlock_abi, machine.drops_bounding, limits, report)


def may_open(path: str, ground: Ground) -> bool:
    """Whether opening *path* opens neither a whole home, nor the state, nor a login."""
    closed = (ground.caller_home, ground.state, *ground.credentials)
    inside = (ground.state, *ground.credentials)
    return not (
        any(is_beneath(one, path) for one in closed) or any(is_beneath(path, one) for one in inside)
    )


def _rules(ground: Ground, grants: Grants) -> Iterator[Rule]:
    yield from _each("read", ground.system)
    yield "/proc", "look"
    yield from _each("device", ground.devices)
    yield from _each("write", ground.shared)
    yield from _each("read", readable(ground))
    yield ground.workdir, "read" if ground.workdir_mode == "ro" else "write"
    yield from _each("write", ground.writable)
    yield from _each("read", grants.read)
    yield from _each("write", grants.write)


def readable(ground: Ground) -> Iterator[str]:
    """Yield what a run may read beside the system and what was granted."""
    yield from ground.program.files
    for prefix in (*ground.program.prefixes, *ground.search_path):
        if may_open(prefix, ground):
            yield prefix
    yield from (ground.capsule, ground.agent, *ground.git)


def _each(kind: str, paths: Iterable[str]) -> Iterator[Rule]:
    return ((path, kind) for path in paths)


def check_grants(ground: Ground, grants: Grants) -> None:
    """Refuse what no run is ever given. Raises as `plan_walls`."""
    check_names((*grants.env, *grants.secrets), by_caller=False)
    for path in (*grants.read, *grants.write):
        for closed in (ground.state, *ground.credentials, *_OF_THE_KERNEL):
            if is_beneath(closed, path) or is_beneath(path, closed):
                raise ContainmentError(
                    "E-CAP-003",
                    f"{path} cannot be granted: it would open {closed}",
                    "Grant the folders beside it one by one.",
                )


def _caveats(ground: Ground, machine: Machine) -> Iterator[str]:
    yield "the network is open, and so are sockets that lie in files"
    if not machine.landlock_abi:
        yield "the harness can open every file that you can, and signal your processes"
        if ground.workdir_mode == "ro":
            yield "the capsule promises to only read the work directory; nothing enforces it"
        return
    yield (
        "contents outside cannot be read or written; but names, sizes, modes and times can be seen,"
        " and modes and times of your own files can be changed"
    )
    yield "/tmp and /dev/shm are shared with everybody"
    if machine.landlock_abi < SCOPES_SINCE_ABI:
        yield "the harness can signal your processes, and so end what watches it"
    if any(path == "/dev/pts" for path in ground.devices):
        yield "your terminals can be written to"
    if machine.is_root:
        yield "the harness is root without capabilities: all of /etc can be read, /etc/shadow too"
    if ground.workdir_mode == "rw" and ground.foreign_workdir:
        yield "the work directory belongs to another user: the harness may not be able to write it"
    yield from caveats_of_places(ground, ground.shared)


def caveats_of_places(ground: Ground, shared: Iterable[str] = ()) -> Iterator[str]:
    """Yield what must stay closed, and lies in the work directory or what is *shared*."""
    for name, place in [("the work directory", ground.workdir), *((one, one) for one in shared)]:
        inside = [it for it in (ground.state, *ground.credentials) if is_beneath(it, place)]
        if len(inside) == 1:
            yield f"{inside[0]} lies in {name}, so it is open to the harness"
        elif inside:
            yield f"these lie in {name}, so they are open to the harness: {_by_folder(inside)}"


def _by_folder(paths: Iterable[str]) -> str:
    """Return *paths* in one line, those of one folder together, as a shell would take them."""
    folders = dict[str, list[str]]()
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return ", ".join(
        f"{folder}/{{{','.join(names)}}}" if len(names) > 1 else f"{folder}/{names[0]}"
        for folder, names in folders.items()
    )


def no_landlock(machine: Machine) -> Missing:
    """Return what is missing of a *machine* without Landlock."""
    return Missing("fs", "landlock", machine.landlock_why)


def missing_walls(machine: Machine) -> Iterator[Missing]:
    """Yield the walls that no run gets here."""
    yield Missing("net", "isolated", "this version builds no walls on the network")
    yield Missing("syscalls", "filtered", "this version filters no system calls")
    yield Missing("fs", "metadata", "Landlock governs no modes and times: chmod works outside too")
    if not machine.landlock_abi:
        yield no_landlock(machine)
    if machine.landlock_abi < SCOPES_SINCE_ABI:
        why = machine.landlock_why or f"Landlock ABI {machine.landlock_abi}; 6 is needed"
        yield Missing("proc", "landlock", why)
