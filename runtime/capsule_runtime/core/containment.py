"""What holds a run: axis by axis, with what holds it and what does not. The same object is planned,
recorded and shown.
"""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.units import show_size


class Resources(Struct, frozen=True):
    """What keeps each limit: `cgroup2`, `cgroup1`, `rlimit`, `poll`, `none`, or two of them."""

    memory: str
    processes: str
    files: str
    disk: str
    cpu: str


class Axes(Struct, frozen=True):
    """How strongly a run is contained, by what it could touch."""

    fs: str
    """`none (metadata)`: contents outside are denied; names, modes and times can be seen and changed."""
    tmp: str
    net: str
    proc: str
    """`landlock`: it can neither signal nor look into what is not its own; else `shared`."""
    kill: str
    resources: Resources
    priv: str
    syscalls: str


class Mechanism(Struct, frozen=True):
    """What of the kernel is in use."""

    landlock_abi: int
    landlock_errata: int
    cgroup: str
    bwrap: str = ""
    """The path of bubblewrap, where it composes a root."""
    bwrap_version: str = ""
    bwrap_digest: str = ""
    variant: str = ""
    """`userns` or `rootns`: who composes it."""


class Missing(Struct, frozen=True):
    """A wall that could not be had here."""

    axis: str
    want: str
    why: str


class Containment(Struct, frozen=True):
    """How one run is contained."""

    tier: str
    axes: Axes
    mechanism: Mechanism
    limits: dict[str, float]
    """What is enforced, which may be lower than what was asked for."""
    caveats: tuple[str, ...]
    missing: tuple[Missing, ...]


def in_one_line(containment: Containment) -> str:
    """Return what a person should know, in one line."""
    axes, limits = containment.axes, containment.limits
    if axes.fs == "absent":
        files = "nothing of this machine is there but the system's files and what was granted"
    elif containment.mechanism.landlock_abi:
        files = "it can open the system's files and the work directory, no others of yours"
    else:
        files = "every file of yours is open to it"
    memory = f"memory {show_size(int(limits['memory_bytes']))} ({axes.resources.memory})"
    processes = f"{limits['processes']:g} processes ({axes.resources.processes})"
    return (
        f"{containment.tier} ({files}; network {axes.net}; /tmp {axes.tmp}; {memory}; {processes})"
    )
