"""The places of a run as they lie on this machine, for the plan of its walls."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.sandbox_plan import DEVICES, SHARED, SYSTEM, Ground, readable
from capsule_runtime.core.scope import ETC
from capsule_runtime.host.capsule import Capsule, Launch, Places
from capsule_runtime.host.footprint import program_of, search_prefixes
from capsule_runtime.host.own_paths import CREDENTIALS
from capsule_runtime.host.written import leads_through

_REACHED_BY_LINK = ("/etc/resolv.conf", "/etc/hosts", "/etc/localtime")
_GIT_FILE_BYTES = 4096


def ground_of(
    capsule: Capsule, places: Places, launch: Launch, state: Path, grants: Grants
) -> Ground:
    """Return the ground on which *launch* stands, which gets *grants*."""
    home, workdir = str(Path.home()), os.path.realpath(places.workdir)
    system = [*SYSTEM, *(os.path.realpath(link) for link in _REACHED_BY_LINK)]
    program = launch.launcher or launch.argv[0]  # the caller chose that one
    written = (workdir, os.path.realpath(places.original), str(capsule.folder), *grants.write)
    made_of, found_on = (
        program_of(program, launch.env, written),
        tuple(_search_path(launch.env, written)),
    )
    needed = (
        workdir,
        capsule.folder,
        places.agent,
        places.out,
        places.home,
        places.tmp,
        *found_on,
        *made_of.files,
        *made_of.prefixes,
    )
    ground = Ground(
        capsule=str(capsule.folder),
        workdir=workdir,
        workdir_mode=places.workdir_mode,
        writable=tuple(map(os.path.realpath, (places.home, places.tmp, places.out))),
        agent=str(places.agent),
        program=made_of,
        search_path=found_on,
        system=tuple(filter(os.path.exists, system)),
        system_links=tuple((path, os.readlink(path)) for path in SYSTEM if os.path.islink(path)),
        devices=tuple(filter(os.path.exists, (f"/dev/{name}" for name in DEVICES))),
        shared=tuple(map(os.path.realpath, filter(os.path.isdir, SHARED))),
        git=tuple(git_folders(Path(os.path.realpath(places.original)))),
        caller_home=os.path.realpath(home),
        state=os.path.realpath(state),
        credentials=tuple(os.path.join(home, name) for name in CREDENTIALS),
        etc=tuple(filter(os.path.exists, (f"/etc/{name}" for name in ETC))),
        closed=tuple(closed_above(map(str, needed))),
        barred=tuple(_barred([*map(str, needed), *grants.read, *grants.write], workdir)),
        foreign_workdir=places.workdir_mode == "rw" and os.stat(workdir).st_uid != os.geteuid(),
    )
    return replace(ground, real_paths=tuple(_real_paths(readable(ground), written)))


def _real_paths(paths: Iterable[str], written: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield those of *paths* that have a link on the way, and what they lead to.

    What a harness may have written is taken as it is called: a link in it is followed by nobody.
    """
    for path in paths:
        if (real := os.path.realpath(path)) != path and not leads_through(path, written):
            yield path, real


def closed_above(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders of the caller's above *paths* that nobody else may enter."""
    for folder in barred_above(paths):
        if os.stat(folder).st_uid == os.geteuid():
            yield folder


def _barred(paths: Iterable[str], workdir: str) -> Iterator[str]:
    yield from barred_above(paths)
    with suppress(FileNotFoundError):  # A copy is made later, and belongs to the run's user.
        if not os.stat(workdir).st_mode & stat.S_IXOTH:
            yield workdir


def barred_above(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders above *paths* that only their owners, and their groups, may enter."""
    above = {str(parent) for path in paths for parent in Path(os.path.realpath(path)).parents}
    for folder in sorted(above):
        with suppress(FileNotFoundError):  # It is made beneath one that is there, and as closed.
            if not os.stat(folder).st_mode & stat.S_IXOTH:
                yield folder


def _search_path(env: Mapping[str, str], written: Sequence[str]) -> Iterator[str]:
    """Yield the folders of the search path, and the installations they belong to.

    A link in one of the *written* folders must not open what lies elsewhere.
    """
    for folder in env.get("PATH", "").split(os.pathsep):
        if os.path.isabs(folder) and os.path.isdir(folder):
            real = os.path.realpath(folder)
            if any(is_beneath(real, one) for one in written) or not leads_through(folder, written):
                yield from search_prefixes(real)


def git_folders(workdir: Path) -> Iterator[str]:
    """Yield what git reads outside *workdir*: a worktree's or a submodule's folder, a parent's.

    A harness may have written the file that names the folder. So the folder must name the work
    directory in return, which no harness can make one do that it cannot write.
    """
    for folder in (workdir, *workdir.parents):
        git = folder / ".git"
        if git.is_file() and (named := _named_by(git)) is not None:
            yield from _linked(named, git)
            return
        if (git / "HEAD").is_file():
            if folder not in (workdir, Path.home()):
                yield str(git.resolve())
            return


def _linked(folder: Path, git: Path) -> Iterator[str]:
    """Yield *folder*, and the repository it belongs to, if it names *git* in return."""
    with suppress(OSError, ValueError):
        if (back := folder / "gitdir").is_file():
            if Path(_first_line(back)).resolve() == git.resolve():
                yield str(folder)
                yield str((folder / _first_line(folder / "commondir")).resolve())
        elif f"worktree = {os.path.relpath(git.parent, folder)}\n" in _text(folder / "config"):
            yield str(folder)


def _named_by(git: Path) -> Path | None:
    with suppress(OSError, ValueError):
        word, _, path = _first_line(git).partition(": ")
        return (git.parent / path).resolve() if word == "gitdir" and path else None
    return None


def _first_line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(_GIT_FILE_BYTES)
