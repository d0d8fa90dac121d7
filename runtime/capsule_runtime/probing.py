"""What is installed of a driver's harness: where it is, which version, and whether that was tested."""

from __future__ import annotations

import os
import shutil
import time
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule_runtime.core.versions import find_version, is_within
from capsule_runtime.driver import Description
from capsule_runtime.errors import HarnessError
from capsule_runtime.host.capsule import Capsule
from capsule_runtime.host.footprint import search_path
from capsule_runtime.host.kept_file import keep, read_kept
from capsule_runtime.host.state import default_state
from capsule_runtime.host.version_probe import ask_version

FAILURE_SECONDS = 600.0
"""How long it is remembered that a program told no version: to ask it may take 10 s each time."""
_FAILED = b"?"


class Installed(Struct, frozen=True):
    """A harness as it is on this machine."""

    program: str | None = None
    """Its path; None where it is not."""
    version: str | None = None
    """None where it does not say, or the driver does not know how to ask."""
    tested: bool | None = None
    """Whether the driver was tested with that version; None where nobody can tell."""

    def note(self, harness: str) -> str | None:
        """Return what a person should know of it before it is used."""
        if self.tested is not False:
            return None
        return f"{harness} {self.version} has not been tested with its driver"


def installed(
    described: Description, path: str, state: Path | None, *, insists: bool = False
) -> Installed:
    """Return what there is on the search path *path* of the harness that is *described*.

    It is asked for its version once: the answer is kept below *state* for the program as it is, and
    for some minutes that it gave none. Who *insists* has it asked again then.
    """
    program = shutil.which(described.command[0], path=path) if described.command else None
    if program is None:
        return Installed()
    program = os.path.abspath(program)
    if not described.version_args:
        return Installed(program)
    argv = (program, *described.command[1:], *described.version_args)
    version = _version_of(argv, path, state, insists)
    tested = described.tested_versions
    return Installed(program, version, version in tested if version and tested else None)


def installed_here(described: Description) -> Installed:
    """Return what the caller has of the harness that is *described*."""
    return installed(described, search_path(None), default_state(), insists=True)


def check_version(capsule: Capsule, given_path: str | None, state: Path | None) -> Installed | None:
    """Return what is installed of the harness of *capsule*; None if that is no matter.

    A command that a manifest names is not asked: it would run outside all walls.

    Raises:
        HarnessError: E-HAR-007, it is not a version that the capsule wants.
    """
    described, harness = capsule.described, capsule.manifest.harness
    if harness.command or not (
        described.version_args and (harness.version or described.tested_versions)
    ):
        return None
    # What is remembered refuses nothing: what kept it from answering may be mended by now.
    insists = bool(harness.version)
    found = installed(described, search_path(given_path), state, insists=insists)
    if found.program is None or not harness.version:
        return found
    if found.version is None or not is_within(found.version, harness.version):
        what = f"version {found.version}" if found.version else "a version that it does not tell"
        raise HarnessError(
            "E-HAR-007",
            f"the capsule {capsule.manifest.name!r} wants {described.harness} {harness.version},"
            f" and {found.program} is {what}",
            f"Install one that it wants: {described.install}" if described.install else "",
        )
    return found


def _version_of(argv: tuple[str, ...], path: str, state: Path | None, insists: bool) -> str | None:
    if state is None:
        return find_version(ask_version(argv, path))
    kept = state / "cache" / "versions" / _identity(argv)
    if data := read_kept(kept):
        if not data.startswith(_FAILED):
            return data.decode("utf-8", "replace")
        if not insists and _is_recent(data):
            return None
    version = find_version(ask_version(argv, path))
    keep(kept, version.encode() if version else _FAILED + str(int(time.time())).encode())
    return version


def _is_recent(failure: bytes) -> bool:
    """Whether a *failure* that was kept still counts. A clock that was set back ends it, too."""
    then = failure.removeprefix(_FAILED)
    return then.isdigit() and 0 <= time.time() - int(then) < FAILURE_SECONDS


def _identity(argv: tuple[str, ...]) -> str:
    """Return a name for what *argv* runs, which another program, or another version, has not."""
    real = os.path.realpath(argv[0])
    found = os.stat(real)
    marks = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return sha256(msgspec.json.encode((argv, real, marks))).hexdigest()
