"""The root of a sealed run: what is mounted where, as bubblewrap takes it. Decided here, and pure.

What the harness may read lies where it lies outside, read-only; what it may write has names of its
own. No mount lies beneath anything that a harness could have written to before: bubblewrap makes
mount points, and follows the links it meets (CVE-2026-87766). So all that lies in a work directory
is seen there only, and /tmp is a new file system each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from capsule_runtime.core.doors import NO_DOORS, DoorPlan
from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.namespaces import Namespaces
from capsule_runtime.core.seen_places import SeenPlaces

_FIRST_FREE = 10
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("ld.so.cache", "ssl", "ca-certificates", "alternatives", "localtime", "nsswitch.conf")
_SHM_BYTES = 64 * 1024**2
_SHARED = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")


class Shift(Struct, frozen=True):
    """Folders that a run sees as its own, while on disk all belongs to their owners."""

    user: int
    folders: tuple[str, ...]
    readable: tuple[str, ...]
    """What the caller can read, whatever its mode, the run can read too, where the kernel can do it."""


class Seal(Struct, frozen=True):
    """How a run's root comes about."""

    argv: tuple[str, ...]
    """bubblewrap's, with numbers of descriptors that are opened before."""
    places: tuple[tuple[int, str], ...]
    """What is bound by descriptor, so that nobody can put anything else in its place."""
    data: tuple[tuple[int, bytes], ...]
    """What is read by descriptor: arguments, filters, files that only the run has."""
    user: int | None
    """Whom the harness becomes; None where it stays who the caller is."""
    shift: Shift | None
    rules: tuple[tuple[str, str], ...]
    """What it may open, by the names inside."""
    filters: bytes
    """What the kernel refuses it, as a seccomp program; empty for nothing."""
    doors: DoorPlan = NO_DOORS
    """The only ways out."""


class Sources(Struct, frozen=True):
    """What of this machine goes into a root."""

    writable: tuple[tuple[str, str], ...]
    """Folders of the run, and their names inside."""
    workdir: str
    workdir_is_writable: bool
    readable: tuple[str, ...]
    """Files and folders that are seen where they are."""
    links: tuple[tuple[str, str], ...]
    """Links among them, and what each says."""
    real_paths: tuple[tuple[str, str], ...]
    """Which of them are reached by links, and where they lie."""
    system: tuple[str, ...]
    """Which folders there are of the system."""
    system_links: tuple[tuple[str, str], ...]
    tmp_bytes: int
    filters: bytes
    """What the kernel is to refuse, as a seccomp program; empty for nothing."""


def seal(
    sources: Sources, seen: SeenPlaces, grants: Grants, found: Namespaces, user: int | None
) -> Seal:
    """Return the root of a run; *user* is whom the harness becomes, if it is started by root."""
    descriptors = iter(range(_FIRST_FREE, 1000))
    data: list[tuple[int, bytes]] = []
    places: list[tuple[int, str]] = []
    real = dict(sources.real_paths)

    def file(content: bytes, path: str) -> tuple[str, ...]:
        number = next(descriptors)
        data.append((number, content))
        return ("--perms", "0444", "--ro-bind-data", str(number), path)

    def place(source: str, target: str, *, writable: bool) -> tuple[str, ...]:
        number = next(descriptors)
        places.append((number, source))
        return ("--bind-fd" if writable else "--ro-bind-fd", str(number), target)

    writes = tuple(_outermost(grants.write, ()))
    readable = tuple(
        _outermost(sources.readable, (*sources.system, *dict(sources.system_links), *writes))
    )
    words = [
        *namespace_words(found),
        *_system(sources),
        *(word for path, text in _own_files(user, seen.home) for word in file(text, path)),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
        *_memory("/dev/shm", _SHM_BYTES),
        *_memory(seen.tmp, sources.tmp_bytes),
    ]
    texts = dict(sources.links)
    for path in readable:
        assert not any(is_beneath(path, one) for one in (seen.workdir, seen.home, seen.out)), path
        words += _parents(path)
        if path in texts:
            words += ("--symlink", texts[path], path)
        else:
            words += place(real.get(path, path), path, writable=False)
    for path in writes:
        words += (*_parents(path), *place(path, path, writable=True))
    for source, target in sources.writable:
        words += (*_parents(target), *place(source, target, writable=True))
    words += place(sources.workdir, seen.workdir, writable=sources.workdir_is_writable)
    if sources.filters:
        number = next(descriptors)
        data.append((number, sources.filters))
        words += ("--add-seccomp-fd", str(number))
    words += ("--remount-ro", "/dev", "--remount-ro", "/")
    arguments = next(descriptors)
    data.append(
        (arguments, b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words))
    )
    shifted = (*(source for source, _ in sources.writable), *writes, sources.workdir)
    return Seal(
        argv=(found.bwrap, "--args", str(arguments), "--", found.idler),
        places=tuple(places),
        data=tuple(data),
        user=user,
        shift=None
        if user is None
        else Shift(
            user, shifted, tuple(real.get(path, path) for path in readable if path not in texts)
        ),
        rules=tuple(_rules(sources, seen, grants, readable)),
        filters=sources.filters,
    )


def namespace_words(found: Namespaces) -> Iterator[str]:
    """Yield what bubblewrap is told of namespaces and rights."""
    if found.variant == "userns":
        yield "--unshare-user"
    yield from _SHARED
    yield from ("--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--clearenv", "--hostname", "capsule")


def _system(sources: Sources) -> Iterator[str]:
    for path in sources.system:
        yield from ("--ro-bind", path, path)
    for path, text in sources.system_links:
        yield from ("--symlink", text, path)
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _own_files(user: int | None, home: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of /etc that tell a run about itself only."""
    if user is not None:
        yield "/etc/passwd", f"agent:x:{user}:{user}::{home}:/bin/sh\n".encode()
        yield "/etc/group", f"agent:x:{user}:\n".encode()
    yield "/etc/hosts", b"127.0.0.1 localhost\n"
    # No name server is there; this one fails at once.
    yield "/etc/resolv.conf", b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"


def _memory(path: str, size: int) -> tuple[str, ...]:
    return ("--perms", "1777", "--size", str(size), "--tmpfs", path)


def _outermost(paths: Iterable[str], there: Iterable[str]) -> Iterator[str]:
    """Yield those of *paths* that lie in none of the others, nor in what is *there*."""
    kept = list(there)
    for path in sorted(set(paths)):
        if not any(is_beneath(path, one) for one in kept):
            kept.append(path)
            yield path


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")[1:-1]
    for end in range(1, len(parts) + 1):
        yield from ("--perms", "0755", "--dir", "/" + "/".join(parts[:end]))


def _rules(
    sources: Sources, seen: SeenPlaces, grants: Grants, readable: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    yield "/", "list"
    for path in sources.system:
        yield path, "read"
    yield from (("/etc", "look"), ("/proc", "look"), ("/dev", "device"))
    links = dict(sources.links)
    for path in readable:
        if path not in links:
            yield path, "read"
    for path in ("/dev/shm", seen.tmp, seen.home, seen.out, *grants.write):
        yield path, "write"
    yield seen.workdir, "write" if sources.workdir_is_writable else "read"
