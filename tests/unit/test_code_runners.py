"""Which files make tools run something by themselves."""

from __future__ import annotations

import pytest

from capsule_runtime.host.code_runners import runner_of


@pytest.mark.parametrize(
    "path",
    """
    .git/config .git/config.worktree .git/hooks/pre-commit .git/info/attributes
    .git/modules/lib/config .git/modules/lib/hooks/post-checkout .git/worktrees/w/config.worktree
    vendor/x/.git vendor/x/.git/hooks/post-merge .GIT/config sub/.git/worktrees/w/gitdir
    .gitattributes a/b/.gitattributes .gitmodules
    .vscode/tasks.json a/.idea/workspace.xml .devcontainer/devcontainer.json x.code-workspace
    .mcp.json .claude/settings.json .codex/config.toml .gemini/settings.json a/.cursor/mcp.json
    .github/workflows/ci.yml .github/actions/x/action.yml .github/hooks/h.json .gitlab-ci.yml
    .git/hooks .vscode a/.claude .github .github/workflows
    .husky/pre-commit .pre-commit-config.yaml .envrc a/.envrc
    package.json a/package.json .npmrc setup.py pyproject.toml build.rs binding.gyp
    """.split(),
)
def test_on_the_list(path: str) -> None:
    assert runner_of(path) is not None


@pytest.mark.parametrize(
    "path",
    """
    .git/HEAD .git/index .git/objects/ab/config .git/refs/heads/hooks/x .git/logs/config
    .git/hooks/pre-commit.sample .git/COMMIT_EDITMSG .git/info/exclude
    Makefile run.sh src/main.py tests/conftest.py README.md config hooks/pre-commit
    .github/CODEOWNERS .github/ISSUE_TEMPLATE.md git/config .gitignore CLAUDE.md AGENTS.md
    """.split(),
)
def test_not_on_the_list(path: str) -> None:
    assert runner_of(path) is None


def test_a_repository_without_a_work_tree_is_known_by_its_folder() -> None:
    assert runner_of("x/config") is None
    assert runner_of("x/config", frozenset({"x"})) is not None
    assert runner_of("x/hooks/update", frozenset({"x"})) is not None
    assert runner_of("x/description", frozenset({"x"})) is None
