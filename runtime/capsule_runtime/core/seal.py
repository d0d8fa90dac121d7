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


class _Opened:
    """What is opened before bubblewrap starts, at the numbers that its words name."""

    def __init__(self) -> None:
        self._numbers = iter(range(_FIRST_FREE, 1000))
        self.places: list[tuple[int, str]] = []
        self.data: list[tuple[int, bytes]] = []

    def content(self, content: bytes) -> str:
        """Return the number at which *content* is read."""
        number = next(self._numbers)
        self.data.append((number, content))
        return str(number)

    def file(self, content: bytes, path: str) -> tuple[str, ...]:
        """Return the words that make a file of *content* at *path*."""
        return ("--perms", "0444", "--ro-bind-data", self.content(content), path)

    def place(self, source: str, target: str, *, writable: bool) -> tuple[str, ...]:
        """Return the words that show *source* at *target*."""
        number = next(self._numbers)
        self.places.append((number, source))
        return ("--bind-fd" if writable else "--ro-bind-fd", str(number), target)


def seal(
    sources: Sources, seen: SeenPlaces, grants: Grants, found: Namespaces, user: int | None
) -> Seal:
    """Return the root of a run; *user* is whom the harness becomes, if it is started by root."""
    opened = _Opened()
    writes = tuple(_outermost(grants.write, ()))
    there = (*sources.system, *dict(sources.system_links), *writes)
    readable = tuple(_outermost(sources.readable, there))
    words = [
        *namespace_words(found),
        *_own_root(sources, seen, user, opened),
        *_read_places(sources, seen, readable, opened),
        *_written_places(sources, seen, writes, opened),
    ]
    if sources.filters:
        words += ("--add-seccomp-fd", opened.content(sources.filters))
    words += ("--remount-ro", "/dev", "--remount-ro", "/")
    arguments = opened.content(_encoded(words))
    return Seal(
        argv=(found.bwrap, "--args", arguments, "--", found.idler),
        places=tuple(opened.places),
        data=tuple(opened.data),
        user=user,
        shift=None if user is None else _shift(user, sources, writes, readable),
        rules=tuple(_rules(sources, seen, grants, readable)),
        filters=sources.filters,
    )


def _own_root(
    sources: Sources, seen: SeenPlaces, user: int | None, opened: _Opened
) -> Iterator[str]:
    """Yield the words for what every root has: the system, files of its own, and memory."""
    yield from _system(sources)
    for path, text in _own_files(user, seen.home):
        yield from opened.file(text, path)
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    yield from _memory("/dev/shm", _SHM_BYTES)
    yield from _memory(seen.tmp, sources.tmp_bytes)


def _read_places(
    sources: Sources, seen: SeenPlaces, readable: Iterable[str], opened: _Opened
) -> Iterator[str]:
    """Yield the words for what is only read, each where it lies outside."""
    texts, real = dict(sources.links), dict(sources.real_paths)
    for path in readable:
        assert not any(is_beneath(path, one) for one in (seen.workdir, seen.home, seen.out)), path
        yield from _parents(path)
        if path in texts:
            yield from ("--symlink", texts[path], path)
        else:
            yield from opened.place(real.get(path, path), path, writable=False)


def _written_places(
    sources: Sources, seen: SeenPlaces, writes: Iterable[str], opened: _Opened
) -> Iterator[str]:
    """Yield the words for what may be written, and for the work directory."""
    for source, target in (*((path, path) for path in writes), *sources.writable):
        yield from (*_parents(target), *opened.place(source, target, writable=True))
    yield from opened.place(sources.workdir, seen.workdir, writable=sources.workdir_is_writable)


def _encoded(words: Iterable[str]) -> bytes:
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


def _shift(user: int, sources: Sources, writes: tuple[str, ...], readable: Iterable[str]) -> Shift:
    texts, real = dict(sources.links), dict(sources.real_paths)
    folders = (*(source for source, _ in sources.writable), *writes, sources.workdir)
    return Shift(user, folders, tuple(real.get(it, it) for it in readable if it not in texts))


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
