"""The corpus as a program: each tier in a process of its own, of the user who is to start its runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import anyio
import msgspec

from support.corpus.clearing import remove
from support.corpus.probe import PROBES
from support.corpus.tiers import TIERS, is_ours
from support.corpus.trying import (
    ESCAPED,
    Matrix,
    Result,
    lacking_tiers,
    matrix_of,
    show,
    try_all,
    useless,
    verdict,
)
from support.docker import in_docker

UNPRIVILEGED = 54_321
"""A user that nobody is."""
SYSTEM_PYTHON = "/usr/bin/python3"
_ROOTS = Path(__file__).parents[3]
_OURS = ("runtime", "drivers", "tests")
_TIER_SECONDS = 240
_LOADED_LATE = ("capsule_runtime.cli.verbs", "rich", "platformdirs")


class Report(msgspec.Struct, frozen=True):
    """What the process of a tier tells."""

    lacking: dict[str, str]
    results: tuple[Result, ...]


def main(arguments: Sequence[str], folder: Path) -> int:
    """Try what *arguments* name, print the matrix, and store it; in *folder*, if not told where."""
    parser = ArgumentParser(description="Try the corpus of escapes on this machine.")
    parser.add_argument("tiers", nargs="*", choices=[*TIERS, []])
    parser.add_argument("--json", type=Path, default=folder / "capsule-matrix.json")
    parser.add_argument("--only", default="", help="a part of the names of probes")
    told = parser.parse_args(arguments)
    matrix = try_tiers(told.tiers or list(TIERS), told.only)
    told.json.write_bytes(msgspec.json.format(msgspec.json.encode(matrix)) + b"\n")
    proves_nothing = useless(matrix)
    nothing = "".join(f"{name} got out nowhere, and so proves nothing\n" for name in proves_nothing)
    sys.stdout.write(f"{show(matrix)}\nstored as {told.json}\n{nothing}")
    return ESCAPED if proves_nothing else verdict(matrix)


def try_tiers(tiers: Sequence[str], pattern: str = "") -> Matrix:
    """Try the probes with *pattern* in their name in *tiers*, as far as this machine has them."""
    reports = [report_of(tier, pattern) for tier in tiers]
    lacking = {name: why for report in reports for name, why in report.lacking.items()}
    return matrix_of((one for report in reports for one in report.results), lacking)


def report_of(tier: str, pattern: str = "") -> Report:
    """Try the probes with *pattern* in their name in *tier*, in a process of whom it needs."""
    words = [tier, pattern]
    if TIERS[tier].in_docker:
        return _from_docker(tier, words)
    if is_ours(TIERS[tier]):
        path = os.pathsep.join(str(_ROOTS / name) for name in _OURS)
        return _said([sys.executable, "-c", _WORK, *words], {"PYTHONPATH": path})
    if TIERS[tier].by_root:
        return Report({tier: "only root can start it"}, ())
    if (why := why_not_another()) is not None:
        return Report({tier: why}, ())
    with readable_copy() as copy:
        names = {"PYTHONPATH": str(copy), "HOME": str(copy / "home")}
        return _said([SYSTEM_PYTHON, "-c", _WORK, *words], names, UNPRIVILEGED)


def _from_docker(tier: str, words: list[str]) -> Report:
    if (why := why_not_another()) is not None:
        return Report({tier: why}, ())
    with readable_copy() as copy:
        names = {"PYTHONPATH": str(copy), "HOME": str(copy / "home")}
        return _said([*in_docker(), SYSTEM_PYTHON, "-c", _WORK, *words], names)


_WORK = "import sys; from support.corpus.program import work; work(*sys.argv[1:])"


def work(tier: str, pattern: str) -> None:
    """Try *tier* in this process, and tell of it on stdout."""
    lacking = lacking_tiers([tier])
    probes = [probe for probe in PROBES if pattern in str(probe)]
    results = () if lacking else tuple(anyio.run(try_all, tier, probes))
    sys.stdout.buffer.write(msgspec.json.encode(Report(lacking, results)))


def _said(argv: list[str], names: dict[str, str], user: int | None = None) -> Report:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **names}
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=_TIER_SECONDS,
        check=False,
        cwd="/",
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return msgspec.json.decode(done.stdout, type=Report)


def why_not_another() -> str | None:
    """Say why nothing of ours can be started as somebody else; None if it can."""
    if os.geteuid() != 0:
        return "only root can start it as somebody else"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if os.path.realpath(SYSTEM_PYTHON) != f"/usr/bin/python{version}":
        return f"{SYSTEM_PYTHON} is not Python {version}: what we are made of cannot be loaded"
    return None


@contextmanager
def readable_copy() -> Generator[Path]:
    """Yield a folder with all that this process has loaded, for who cannot read where it lies."""
    folder = Path(tempfile.mkdtemp(prefix="corpus-copy-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        for name in _OURS:
            for found in (_ROOTS / name).iterdir():
                _copy(found, folder)
        for name in _LOADED_LATE:
            import_module(name)
        for found in {Path(path) for path in _loaded()}:
            _copy(found, folder)
        ours = distribution("capsule-runtime")
        for file in ours.files or ():
            if file.name == "entry_points.txt":  # drivers are found by it
                described = Path(str(ours.locate_file(file))).parent
                shutil.copytree(described, folder / described.name)
        (folder / "home").mkdir()
        os.chown(folder / "home", UNPRIVILEGED, UNPRIVILEGED)
        yield folder
    finally:
        remove(folder)


def _loaded() -> Iterator[str]:
    """Yield the packages that others made and we have loaded."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and file and "site-packages" in file:
            yield os.path.dirname(file) if file.endswith("__init__.py") else file


def _copy(found: Path, folder: Path) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", "transcripts", "live", "mock_llm")
    if found.is_dir() and found.name not in ("__pycache__", "conformance", "live"):
        shutil.copytree(found, folder / found.name, ignore=unwanted, dirs_exist_ok=True)
    elif found.is_file():
        shutil.copy(found, folder)
