"""What a program is made of: links, the interpreters of scripts, and where they were installed."""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from capsule_runtime.core.grants import is_beneath
from capsule_runtime.core.sandbox_plan import Program
from capsule_runtime.errors import HarnessError
from capsule_runtime.host.written import leads_through

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOPS_AT_MOST = 40
_FIRST_LINE_BYTES = 256
_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "shims", "Scripts")
"""A program in a folder that is called like that belongs to what lies in its parent."""
_PACKAGES = "node_modules"
_WHITE = re.compile(rb"[ \t]+")
"""What the kernel splits the first line of a script at."""


def search_path(given: str | None) -> str:
    """Return where a harness's program is looked for; *given* is the caller's PATH for it."""
    return given or os.environ.get("PATH", _DEFAULT_PATH)


def find_program(name: str, path: str, install: str) -> str:
    """Return where the program *name* is on the search path *path*; *install* is what installs it.

    Raises:
        HarnessError: E-HAR-001, it is not there.
    """
    if found := shutil.which(name, path=path):
        return os.path.abspath(found)
    what = "is not on PATH" if os.sep not in name else "is not an executable file"
    raise HarnessError(
        "E-HAR-001",
        f"the harness's program {name!r} {what}",
        f"Install it: {install}" if install else "Install it, or correct harness.command.",
    )


def program_of(argv0: str, env: Mapping[str, str], written: Sequence[str] = ()) -> Program:
    """Return what the program *argv0*, an absolute path, needs to run with *env*.

    Only what the caller chose opens anything: a program in a folder of the search path, or in the
    installation that we run from, and what it is made of. A manifest, a script of a capsule or a
    link may name any other, and what lies there is the caller's to grant. So is what lies in the
    *written* folders, where a harness may have put it.
    """
    chosen = _chosen_folders(env, written)
    files: dict[str, None] = {}
    prefixes: dict[str, None] = {}
    seen: set[tuple[str, bool]] = set()
    waiting = [(argv0, False)]
    while waiting:
        path, is_chosen = waiting.pop()
        is_chosen = is_chosen or os.path.dirname(path) in chosen
        is_chosen = is_chosen and not leads_through(path, written)
        if (path, is_chosen) in seen:
            continue
        seen.add((path, is_chosen))
        hops = list(_hops(path))
        if is_chosen:
            for hop in hops:
                files[hop] = None
                prefixes.update(dict.fromkeys(_prefixes(hop)))
        waiting += [(other, is_chosen) for other in (*hops[1:], *_interpreters(path, env))]
    links = tuple((path, os.readlink(path)) for path in files if os.path.islink(path))
    return Program(tuple(files), tuple(prefixes), links)


def _chosen_folders(env: Mapping[str, str], written: Sequence[str]) -> frozenset[str]:
    """Return the folders of programs that are the caller's choice."""
    found = env.get("PATH", "").split(os.pathsep)
    ours = [f"{prefix}/bin" for prefix in (sys.prefix, sys.base_prefix)]
    folders = (os.path.normpath(folder) for folder in (*found, *ours) if os.path.isabs(folder))
    return frozenset(
        folder
        for folder in folders
        if not any(is_beneath(os.path.realpath(folder), place) for place in written)
        and not leads_through(folder, written)
    )


def search_prefixes(folder: str) -> Iterator[str]:
    """Yield *folder*, of a search path, and what its programs were installed into.

    That is known of the shims of a version manager, and of a prefix of Python's or Node's. What else
    lies beside a `bin` may be anything: a login, for instance.
    """
    yield folder
    prefix = os.path.dirname(folder)
    if os.path.basename(prefix) == _PACKAGES and os.path.basename(folder) == ".bin":
        yield prefix  # its programs are links into the packages beside it
    is_installation = os.path.basename(folder) == "shims" or any(
        os.path.exists(f"{prefix}/{mark}") for mark in ("pyvenv.cfg", f"lib/{_PACKAGES}")
    )
    if is_installation:
        yield from _prefixes(f"{folder}/program")


def _hops(path: str) -> Iterator[str]:
    """Yield *path* and what it leads to, link by link, also where a folder is the link."""
    for _ in range(_HOPS_AT_MOST):
        if not os.path.lexists(path):
            return
        yield path
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    if (real := os.path.realpath(path)) != path:
        yield real


def _prefixes(path: str) -> Iterator[str]:
    """Yield the folders that *path* was installed into with all it needs."""
    folder, parts = os.path.dirname(path), Path(path).parts
    if _PACKAGES in parts:
        yield str(Path(*parts[: parts.index(_PACKAGES) + 1]))
    if os.path.basename(folder) not in _PROGRAM_FOLDERS:
        return
    prefix = os.path.dirname(folder)
    yield prefix
    if (base := _base_of_venv(prefix)) is not None:
        yield base


def _base_of_venv(prefix: str) -> str | None:
    """Return the installation that the virtual environment *prefix* was made of."""
    with suppress(OSError, ValueError):
        for line in Path(prefix, "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
            name, _, home = line.partition("=")
            if name.strip() == "home" and os.path.isabs(home.strip()):
                base = os.path.dirname(os.path.realpath(home.strip()))
                # Anybody can write such a file; it opens an installation of Python, and no other.
                return base if glob.glob(f"{glob.escape(base)}/lib*/python3*/os.py") else None
    return None


def _interpreters(path: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the programs that the first line of *path* names, if it is a script."""
    line = _first_line(path)
    if not line.startswith(b"#!"):
        return
    words = [os.fsdecode(word) for word in _WHITE.split(line[2:].partition(b"\0")[0]) if word]
    yield from words[:1]
    if words and os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(names[0], path=env.get("PATH")) if names else None
        yield from [os.path.abspath(found)] if found else []


def _first_line(path: str) -> bytes:
    """Return how the file *path* begins. A device or a pipe is not opened: that may hang, or act."""
    with suppress(OSError):
        if S_ISREG(os.stat(path).st_mode):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            with open(os.open(path, flags), "rb") as file:
                return file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    return b""
