"""Find out what walls can be built of here, by trying. Kept for the life of the process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from capsule_runtime.core.machine import Hierarchies, Machine
from capsule_runtime.host import landlock
from capsule_runtime.host.leftovers import new_cage_name

_SETPCAP = 1 << 8
_LIMITS = ("CORE", "NOFILE", "FSIZE", "CPU", "DATA", "NPROC")
_V1_FILES = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
_V2_FILES = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}


class _Mount(NamedTuple):
    kind: str
    controllers: tuple[str, ...]
    root: str
    place: str


@cache
def find_machine() -> Machine:
    """Return what this machine has, as far as this process may use it."""
    abi = landlock.version()
    hard = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in _LIMITS}
    status = dict(line.split(":", 1) for line in _lines("/proc/self/status"))
    return Machine(
        landlock_abi=max(0, abi),
        landlock_errata=landlock.errata() if abi > 0 else 0,
        landlock_why="" if abi > 0 else f"the kernel has no Landlock: {os.strerror(-abi)}",
        cgroups=_find_hierarchies(),
        hard_limits={name: one for name, one in hard.items() if one != resource.RLIM_INFINITY},
        is_root=os.geteuid() == 0,
        drops_bounding=bool(int(status["CapEff"], 16) & _SETPCAP),
        tasks=int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[1]),
        processors=os.cpu_count() or 1,
    )


def _find_hierarchies() -> Hierarchies:
    """Return where cgroups can be made: in our own one, so that its limits hold too."""
    own, mounts, troubles = _own_cgroups(), list(_mounts()), list[str]()
    kill = _folder("", own, mounts)
    kill = kill if kill and _can_have(kill, "cgroup.kill", "", troubles) else ""
    unified = _find_unified(own, mounts, troubles)
    if unified is not None:
        return unified
    found: dict[str, str] = {}
    for controller, file in _V1_FILES.items():
        folder = _folder(controller, own, mounts)
        value = "-1" if controller == "cpu" else str(2**40) if controller == "memory" else "1024"
        if folder and _can_have(folder, file, value, troubles):
            found[controller] = folder
    why = "; ".join(troubles) or "no cgroup controller is mounted"
    if not found:
        return Hierarchies(why=why)
    memory = found.get("memory", "")
    return Hierarchies(
        kind="cgroup1",
        memory=memory,
        processes=found.get("pids", ""),
        cpu=found.get("cpu", ""),
        kill=kill,
        counts_swap=os.path.exists(f"{memory}/memory.memsw.limit_in_bytes"),
        why="" if memory and "pids" in found else why,
    )


def _find_unified(
    own: dict[str, str], mounts: list[_Mount], troubles: list[str]
) -> Hierarchies | None:
    """Return the unified hierarchy, if it gives limits.

    A cgroup with processes in it gives its controllers to no other in it, and ours has us. So a
    place beside it is taken, if we may move processes there and our own has no limit to keep.
    """
    folder = _folder("", own, mounts)
    if not folder or "memory" not in _words(f"{folder}/cgroup.controllers"):
        return None
    place = folder if not os.path.exists(f"{folder}/cgroup.type") else os.path.dirname(folder)
    offered = _words(f"{place}/cgroup.subtree_control")
    limited = place != folder and any(
        _words(f"{folder}/{file}") not in ([], ["max"]) for file in ("memory.max", "pids.max")
    )
    if not {"memory", "pids"} <= set(offered) or limited:
        troubles.append(f"{folder} has processes of its own and is not delegated")
        return None
    if not os.access(f"{place}/cgroup.procs", os.W_OK):
        troubles.append(f"processes cannot be moved in {place}: it is another user's")
        return None
    if not _can_have(place, "memory.max", "max", troubles):
        return None
    return Hierarchies(
        kind="cgroup2",
        memory=place,
        processes=place,
        cpu=place if "cpu" in offered else "",
        kill=place,
        counts_swap=os.path.exists(f"{folder}/memory.swap.max"),
    )


def _can_have(parent: str, file: str, value: str, troubles: list[str]) -> bool:
    """Whether a cgroup can be made in *parent*, and *value* be written into its *file*."""
    folder = f"{parent}/{new_cage_name()}"
    try:
        os.mkdir(folder, 0o700)
        try:
            if value:
                Path(folder, file).write_text(value, encoding="ascii")
            return os.path.exists(f"{folder}/{file}")
        finally:
            os.rmdir(folder)
    except OSError as exc:
        troubles.append(f"{parent}: {exc.strerror}")
        return False


def _folder(controller: str, own: dict[str, str], mounts: list[_Mount]) -> str:
    """Return the folder of our own cgroup for *controller* ("": the unified hierarchy)."""
    for mount in mounts:
        if controller in mount.controllers and controller in own:
            path, root = own[controller], mount.root.rstrip("/")
            beneath = path.removeprefix(root) if path.startswith(root) else ""
            return mount.place + beneath.rstrip("/")
    return ""


def _own_cgroups() -> dict[str, str]:
    own: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    return own


def _mounts() -> Iterator[_Mount]:
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind == "cgroup2":
            yield _Mount(kind, ("",), fields[3], fields[4])
        elif kind == "cgroup":
            yield _Mount(kind, tuple(options.split(",")), fields[3], fields[4])


def _words(path: str) -> list[str]:
    with suppress(OSError):
        return Path(path).read_text(encoding="ascii").split()
    return []


def _lines(path: str) -> list[str]:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return []
