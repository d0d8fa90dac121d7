"""Which files make tools run something by themselves.

On the list is what is obeyed by a program that was started for something else: git, an editor, an
agent, a shell that enters the folder, a package manager, a pipeline. What somebody runs on purpose
(a Makefile, a test, a script) is not: that is the work itself, and nearly every run changes it.
"""

from __future__ import annotations

import os
from collections.abc import Container

GIT = "git, at nearly any command"
_EDITOR = "an editor that opens the folder"
_AGENT = "an agent that starts in the folder"
_PIPELINE = "a pipeline, once it is pushed"
_SHELL = "a shell that enters the folder"
_PACKAGES = "a package manager, when it installs or builds"
_HOOKS = "git, through a manager of hooks"

_FOLDERS = {
    **dict.fromkeys((".vscode", ".idea", ".devcontainer", ".zed", ".fleet"), _EDITOR),
    **dict.fromkeys(
        (
            *(".claude", ".codex", ".gemini", ".qwen", ".cursor", ".opencode", ".pi", ".copilot"),
            *(".windsurf", ".continue", ".kiro", ".roo", ".goose", ".amazonq"),
        ),
        _AGENT,
    ),
    ".github/workflows": _PIPELINE,
    ".github/actions": _PIPELINE,
    ".github/hooks": _AGENT,
    ".circleci": _PIPELINE,
    ".buildkite": _PIPELINE,
    ".forgejo/workflows": _PIPELINE,
    ".gitea/workflows": _PIPELINE,
    ".husky": _HOOKS,
    ".githooks": _HOOKS,
    ".cargo": _PACKAGES,
    ".yarn": _PACKAGES,
}
"""Everything beneath a folder of such a name, wherever it lies."""
_FILES = {
    ".gitattributes": "git, which runs the filters that it names",
    ".gitmodules": "git, when it updates submodules",
    **dict.fromkeys((".mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml"), _AGENT),
    **dict.fromkeys((".devcontainer.json", ".dir-locals.el", ".exrc", ".vimrc"), _EDITOR),
    **dict.fromkeys((".nvimrc", ".nvim.lua", ".lvimrc"), _EDITOR),
    **dict.fromkeys((".envrc", ".mise.toml", "mise.toml", ".autoenv", ".autoenv.zsh"), _SHELL),
    **dict.fromkeys((".gitlab-ci.yml", "Jenkinsfile", "azure-pipelines.yml"), _PIPELINE),
    **dict.fromkeys((".travis.yml", ".drone.yml", "bitbucket-pipelines.yml"), _PIPELINE),
    **dict.fromkeys((".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"), _HOOKS),
    **dict.fromkeys((".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", "package.json"), _PACKAGES),
    **dict.fromkeys(("binding.gyp", "setup.py", "pyproject.toml", "build.rs"), _PACKAGES),
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py"), "Python, whenever it starts there"),
}
_ENDINGS = {".code-workspace": _EDITOR}
_STARTS = {folder.split("/")[0] for folder in _FOLDERS} | {".git"}
_OF_GIT = ("config", "config.worktree", "commondir", "gitdir")
"""What of a folder of git's own makes it run or read something, beside its hooks."""
PLAIN_OF_GIT = ("objects", "refs", "logs", "lfs")
"""Contents of repositories, which nothing runs: there may be very many."""


def runner_of(path: str, git_folders: frozenset[str] = frozenset()) -> str | None:
    """Return who takes orders from the file *path*; None if nobody does by itself.

    Folders of git's own are known by their name, or given as *git_folders*.
    """
    parts = path.split("/")
    if (inside := _inside_git(parts, git_folders)) is not None:
        return GIT if _is_obeyed(inside) else None
    for depth, part in enumerate(parts):
        # The last part counts too: a link may stand where such a folder should.
        inner = "/".join(parts[depth : depth + 2])
        if (runner := _FOLDERS.get(part.lower()) or _FOLDERS.get(inner.lower())) is not None:
            return runner
    return of_name(parts[-1])


def of_name(name: str) -> str | None:
    """Return who takes orders from a file called *name*, wherever it lies."""
    if name.lower() in _STARTS:  # a link, or the file that says where a repository is
        return GIT if name.lower() == ".git" else _FOLDERS.get(name.lower(), _PIPELINE)
    return _FILES.get(name) or _ENDINGS.get(os.path.splitext(name)[1])


def is_special(folder: str, git_folders: Container[str]) -> bool:
    """Whether more than the name of a file in *folder* tells whether it is on the list."""
    parts = folder.split("/")
    return any(
        part.lower() in _STARTS or "/".join(parts[: depth + 1]) in git_folders
        for depth, part in enumerate(parts)
    )


def _inside_git(parts: list[str], git_folders: frozenset[str]) -> list[str] | None:
    """Return where in a folder of git's own something lies; None if it is in none."""
    for depth in range(1, len(parts)):
        if parts[depth - 1].lower() == ".git" or "/".join(parts[:depth]) in git_folders:
            return parts[depth:]
    return None


def _is_obeyed(inside: list[str]) -> bool:
    """Whether git obeys one of its own files, of the repository or of one within it."""
    if inside[0] in PLAIN_OF_GIT:
        return False
    is_hook = "hooks" in inside and not inside[-1].endswith(".sample")
    return is_hook or inside[-1] in _OF_GIT or inside[-2:] == ["info", "attributes"]
