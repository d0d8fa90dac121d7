"""What a program is made of: links, the interpreters of scripts, and where they were installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from capsule_runtime.core.sandbox_plan import Program

_HOPS_AT_MOST = 40
_FIRST_LINE_BYTES = 256
_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "shims", "Scripts")
"""A program in a folder that is called like that belongs to what lies in its parent."""
_PACKAGES = "node_modules"


def program_of(argv0: str, env: Mapping[str, str]) -> Program:
    """Return what the program *argv0*, an absolute path, needs to run with *env*."""
    files: dict[str, None] = {}
    prefixes: dict[str, None] = {}
    waiting = [argv0]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        for hop in _hops(path):
            files[hop] = None
            prefixes.update(dict.fromkeys(_prefixes(hop)))
        waiting += _interpreters(path, env)
    return Program(tuple(files), tuple(prefixes))


def search_prefixes(folder: str) -> Iterator[str]:
    """Yield *folder*, of a search path, and what its programs were installed into.

    That is known of the shims of a version manager, and of a prefix of Python's or Node's. What else
    lies beside a `bin` may be anything: a login, for instance.
    """
    yield folder
    prefix = os.path.dirname(folder)
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
                return os.path.dirname(os.path.realpath(home.strip()))
    return None


def _interpreters(path: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the programs that the first line of *path* names, if it is a script."""
    with suppress(OSError):
        with open(path, "rb") as file:
            line, _, _ = file.read(_FIRST_LINE_BYTES).partition(b"\n")
        if not line.startswith(b"#!"):
            return
        words = os.fsdecode(line[2:]).split()
        yield from words[:1]
        if words and os.path.basename(words[0]) == "env":
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            found = shutil.which(names[0], path=env.get("PATH")) if names else None
            yield from [os.path.abspath(found)] if found else []
