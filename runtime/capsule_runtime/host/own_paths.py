"""The caller's own paths: what `~` means, and what no capsule is ever given."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from capsule_runtime.core.grants import is_beneath
from capsule_runtime.errors import UsageError
from capsule_runtime.host.config_file import config_path

_SYSTEM = ("/proc", "/sys", "/dev", "/run")
CREDENTIALS = """
    .ssh .gnupg .aws .azure .kube .docker .netrc .git-credentials .npmrc .pypirc .vault-token
    .password-store .claude .claude.json .codex .gemini .qwen .pi .cursor .copilot .aider
    .config/gcloud .config/gh .config/opencode .config/goose .config/github-copilot .config/op
    .local/share/opencode .local/share/keyrings .local/share/goose
    .cargo/credentials.toml .mozilla .config/google-chrome .config/chromium
""".split()
"""Where agents, clouds and tools that publish or log in keep their keys, in a home folder."""


def home_folder() -> str:
    """Return the caller's home folder."""
    return os.path.expanduser("~")


def real_path(path: str) -> str:
    """Return *path*, absolute or beginning with `~`, without any link in it.

    Raises:
        UsageError: E-USE-034, it begins with `~`, and the caller has no home.
    """
    if path == "~" or path.startswith("~/"):
        home = home_folder()
        if not os.path.isabs(home):
            raise UsageError("E-USE-034", f"you have no home folder, so {path!r} is no path here")
        path = home + path[1:]
    return os.path.realpath(path)


def why_never(path: str, state: Path) -> str | None:
    """Say why no capsule is ever given *path*, an absolute one without links; None if it may be."""
    if path == "/" or any(is_beneath(path, system) for system in _SYSTEM):
        return "it belongs to the system"
    homes = [os.path.realpath(home) for home in _homes()]
    for home in homes:
        if is_beneath(home, path):
            return "it holds your home folder"
    if _touch(path, os.path.realpath(state)):
        return "runs, contexts and what you trusted are kept there"
    config = config_path()
    if config is not None and is_beneath(os.path.realpath(config), path):
        return "your config.toml is in it"
    for home in homes:
        for name in CREDENTIALS:
            credentials = f"{home}/{name}"
            if _touch(path, credentials) or _touch(path, os.path.realpath(credentials)):
                return f"credentials are kept in ~/{name}"
    return _why_no_file(path)


def why_no_workdir(workdir: str, state: Path, *, is_copied: bool) -> str | None:
    """Say why no walls hold around *workdir*, a path without links; None if they do.

    A copy leaves the state directory out, and nothing else.
    """
    if _touch(workdir, own := os.path.realpath(state)) and not (is_copied and workdir != own):
        return f"runs, contexts and logins are kept in {own}"
    for home in map(os.path.realpath, _homes()):
        if is_beneath(home, workdir):
            return f"it holds your home folder {home}"
        for name in CREDENTIALS:
            kept = f"{home}/{name}"
            if os.path.lexists(kept) and any(
                _touch(workdir, place) for place in (kept, os.path.realpath(kept))
            ):
                return f"credentials are kept in ~/{name}"
    return None


def _why_no_file(path: str) -> str | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode
        if stat.S_ISSOCK(mode):
            return "it is a socket: whoever listens there would act for the capsule"
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return "it is neither a file nor a folder"
    return None


def _homes() -> list[str]:
    """Return the home that the environment names, and the one of the user database."""
    homes = [home_folder()]
    with suppress(KeyError):  # a user that no database knows, as in many containers
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    # A user without a home is given `/`, which holds everything.
    return [home for home in homes if home.startswith("/") and home != "/"]


def _touch(path: str, other: str) -> bool:
    return is_beneath(path, other) or is_beneath(other, path)
