"""Find out whether a run can have a root of its own here: by making one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from capsule_runtime.core.namespaces import SETTINGS, Namespaces, Variant, fix_for
from capsule_runtime.core.seal import namespace_words
from capsule_runtime.core.versions import find_version, is_within
from capsule_runtime.host.bwrap_files import (
    REPLACE,
    configured_bwrap,
    wheel_bwraps,
    why_not_trusted,
)
from capsule_runtime.host.kept_file import keep, read_kept
from capsule_runtime.host.leftovers import boot_id

CANDIDATES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap")
"""Where the system has bubblewrap. It is never looked for on a search path, where anybody may plant one."""
_IDLERS = ("/usr/bin/cat", "/bin/cat")
_OLDEST = ">=0.8"
_SECONDS = 10.0
TRIAL = str(Path(__file__).with_name("seal_trial.py"))
"""A program that shows a folder to a user, and becomes another one."""
_TRIAL_FOLDER = 10
"""The descriptor by which the trial's command finds a folder."""
TRIAL_USER = "2000065535"
_NOBODY, _OK = "-", "ok\n"
_INSTALL = (
    "Install bubblewrap: apt-get install bubblewrap; who may not:"
    " pip install 'capsule-runtime[bwrap]'."
)


@cache
def find_namespaces(state: Path | None = None) -> Namespaces:
    """Return what can be had, as far as this process may use it. Kept below *state* until the boot.

    Raises:
        UsageError: E-CFG-007, config.toml names a bubblewrap that others can change; it is wrong.
    """
    troubles: list[str] = []
    absent: list[str] = []
    fix = _INSTALL
    for path in _candidates():
        if not os.path.lexists(path):
            absent.append(f"{path} is not there")
            continue
        if (trouble := why_not_trusted(path)) is not None:
            troubles.append(trouble)
            fix = REPLACE
            continue
        found = _find_kept(path, state)
        if found.variant:
            return msgspec.structs.replace(found, passed_over="; ".join(absent + troubles))
        troubles.append(found.why)
        fix = found.fix
    return Namespaces(why="; ".join(troubles) or "bubblewrap is not installed", fix=fix)


def _candidates() -> Iterator[str]:
    """Yield where bubblewrap may be, the caller's own first; others only as far as they are needed."""
    if (named := configured_bwrap()) is not None:
        yield named
    yield from CANDIDATES
    yield from wheel_bwraps()


def _find_kept(path: str, state: Path | None) -> Namespaces:
    digest = sha256(Path(path).read_bytes()).hexdigest()
    kept = None
    if state is not None:
        key = sha256(f"{boot_id()} {standing()} {path} {digest}".encode()).hexdigest()
        kept = state / "cache" / "namespaces" / key
        if (data := read_kept(kept)) is not None:
            try:
                return msgspec.json.decode(data, type=Namespaces)
            except msgspec.MsgspecError:
                pass  # Written by another version of ours: it is found out anew.
    found = _try(path, digest)
    if kept is not None and found.variant:
        keep(kept, msgspec.json.encode(found))
    return found


def standing() -> str:
    """Return what decides, beside the program, whether this process can do it: it may not for another."""
    spaces = (os.stat(f"/proc/self/ns/{name}").st_ino for name in ("user", "mnt", "pid"))
    words = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{os.geteuid()} {[*spaces]} {[line for line in lines if line.startswith(words)]}"


def _try(path: str, digest: str) -> Namespaces:
    version = find_version(said([path, "--version"])) or "0"
    if not is_within(version, _OLDEST):
        return Namespaces(why=f"{path} is version {version}, and 0.8 is needed", fix=_INSTALL)
    idler = next((one for one in _IDLERS if os.access(one, os.X_OK)), None)
    if idler is None:
        return Namespaces(why=f"{_IDLERS[0]} is not there", fix="Install coreutils.")
    is_root = os.geteuid() == 0
    variant: Variant = "rootns" if is_root else "userns"
    found = Namespaces(variant, path, version, digest, idler, shifts_owners=is_root)
    with tempfile.TemporaryDirectory(prefix="capsule-seal-") as folder:
        trial = [sys.executable, "-I", "-S", TRIAL, folder]
        told = said([*trial, TRIAL_USER if is_root else _NOBODY, *_command(found)])
        if told != _OK and is_root and said([*trial, _NOBODY, *_command(found)]) == _OK:
            # Then a run's folders are given to its user, and work directories are copied.
            return msgspec.structs.replace(found, shifts_owners=False)
    if told != _OK:
        why = told.strip().rpartition("\n")[2] or "it says nothing"
        fix = fix_for(why, _settings(), is_root=is_root)
        return Namespaces(why=f"{path} cannot compose a root here: {why}", fix=fix)
    return found


def _settings() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in SETTINGS:
        with suppress(OSError):
            found[name] = Path("/proc/sys", name).read_text(encoding="ascii").strip()
    return found


def _command(found: Namespaces) -> list[str]:
    """Return a command that does what a seal does, and says so."""
    return [
        found.bwrap,
        *namespace_words(found),
        *("--ro-bind", "/", "/", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", "--perms", "1777", "--size", "65536", "--tmpfs", "/tmp"),
        *("--bind-fd", str(_TRIAL_FOLDER), "/mnt", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--", found.idler),
    ]


def said(command: list[str]) -> str:
    """Return what *command* says; what went wrong if it could not be started."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
            cwd="/",
            env={},
        )
    except (OSError, subprocess.SubprocessError) as exc:
        return str(exc)
    return done.stdout.decode("utf-8", "replace")
