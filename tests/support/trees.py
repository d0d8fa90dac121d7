"""Trees of files for tests: made, changed at random, compared, and offered to the real git."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

Tree = dict[str, tuple[str, int, bytes]]
"""Each path with its kind, its permissions and what it holds."""

_GIT = ("git", "-c", "core.quotepath=off", "-c", "core.autocrlf=false")


def tree_of(top: Path, *, modes: bool = True) -> Tree:
    """Return all that is beneath *top*; of modes, without *modes*, only whether it can be run."""
    found: Tree = {}
    for path in [*top.rglob("*")]:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode) if modes else status.st_mode & 0o100
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        elif path.is_dir():
            if modes:
                found[name] = ("folder", mode, b"")
        elif path.is_file():
            found[name] = ("file", mode, path.read_bytes())
        else:
            found[name] = ("special", mode, b"")
    return found


def apply_with_git(patch: Path, top: Path) -> None:
    """Have git apply *patch* to *top*, which is no repository."""
    if patch.stat().st_size:
        words = (*_GIT, "apply", "--whitespace=nowarn", str(patch))
        subprocess.run(words, cwd=top, check=True, env=clean_env(top))


def clean_env(top: Path) -> dict[str, str]:
    """Return an environment in which git sees no repository around *top*, and no settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(top),
        "GIT_CEILING_DIRECTORIES": str(top.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def git(top: Path, *words: str) -> str:
    """Run git in *top* and return what it says."""
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    done = subprocess.run(
        (*_GIT, *who, *words), cwd=top, check=True, env=clean_env(top), capture_output=True
    )
    return done.stdout.decode()


def grow(top: Path, chance: random.Random, count: int = 30) -> None:
    """Put *count* files and links of all kinds into *top*."""
    for _ in range(count):
        path = top / _name(chance)
        inside = [parent for parent in path.parents if parent.is_relative_to(top)]
        if any(it.is_symlink() or (it.exists() and not it.is_dir()) for it in inside):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() and not path.is_symlink():
            _write(path, chance)


def change(top: Path, chance: random.Random, count: int = 15) -> None:
    """Change *count* things in *top* at random: contents, modes, kinds, what is there at all."""
    for _ in range(count):
        there = sorted(path for path in top.rglob("*") if path.is_symlink() or path.is_file())
        if not there:
            return
        path = chance.choice(there)
        match chance.randrange(6):
            case 0:
                path.unlink()
            case 1:
                path.unlink()
                _write(path, chance)
            case 2 if path.is_file() and not path.is_symlink():
                path.chmod(0o755 if chance.random() < 0.5 else 0o644)
            case 3 if path.is_file() and not path.is_symlink():
                _edit(path, chance)
            case 4:
                path.unlink()
                path.mkdir()
                _write(path / "inner", chance)
            case _ if path.parent != top:
                shutil.rmtree(path.parent)
                _write(path.parent, chance)
            case _:
                grow(top, chance, 3)


def _name(chance: random.Random) -> str:
    letters = ["a", "b b", "c\n", "d\udcff", 'e"', "f\\", "g\t", "\u00e9", "h" * 255, "-i", ":j"]
    return "/".join(chance.choice(letters) for _ in range(chance.randrange(1, 5)))


def _write(path: Path, chance: random.Random) -> None:
    if chance.random() < 0.15:
        path.symlink_to(chance.choice(["nowhere", "no\udcff", "../x"]))
        return
    path.write_bytes(_contents(chance))
    if chance.random() < 0.3:
        path.chmod(0o755)


def _contents(chance: random.Random) -> bytes:
    lines = [b"%d\n" % chance.randrange(30) for _ in range(chance.randrange(60))]
    match chance.randrange(8):
        case 0:
            return b""
        case 1:
            return chance.randbytes(chance.randrange(3000))
        case 2:
            return b"".join(lines) + b"no end"
        case 3:
            return b"\r\n".join(lines) + b"\x80\xff\n"
        case _:
            return b"".join(lines)


def _edit(path: Path, chance: random.Random) -> None:
    lines = path.read_bytes().split(b"\n")
    at = chance.randrange(len(lines))
    lines[at : at + chance.randrange(3)] = [b"edited"] * chance.randrange(3)
    path.write_bytes(b"\n".join(lines))
