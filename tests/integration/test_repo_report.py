"""The capsule `repo-report` as a process that speaks the native protocol on pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CAPSULE = ROOT / "capsules" / "repo-report"
HELPER = ROOT / "runtime" / "capsule_runtime" / "agent"
STEPS = ["list_files", "count_lines", "find_markers", "recent_changes", "find_oddities"]
NOBODY = 65534


class Conversation:
    """The runtime's side of one run."""

    def __init__(self, process: subprocess.Popen[bytes], workdir: Path, out: Path) -> None:
        self.process = process
        self.workdir = workdir
        self.out = out
        self.seen: list[dict[str, Any]] = []

    def give_task(self, text: str, *data: object) -> None:
        parts: list[dict[str, object]] = [{"type": "text", "text": text}]
        parts.extend({"type": "data", "data": item} for item in data)
        self.say(
            {
                "type": "task",
                "protocol": 1,
                "run": "run_1",
                "message": {"id": "m1", "parts": parts},
                "context": "c1",
                "workdir": str(self.workdir),
                "out": str(self.out),
                "limits": {},
                "metadata": {},
            }
        )

    def say(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hang_up(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout
        for line in self.process.stdout:
            self.seen.append(json.loads(line))
            yield self.seen[-1]

    def wait_for(self, kind: str) -> dict[str, Any]:
        return next(event for event in self.events() if event["type"] == kind)

    def end(self) -> dict[str, Any]:
        """Read to the end of output and return the last event."""
        list(self.events())
        assert self.process.wait(timeout=10) == 0
        return self.seen[-1]


@dataclass(frozen=True, slots=True)
class Launch:
    """Where the agent comes from and who runs it."""

    path: str = os.environ["PATH"]
    capsule: Path = CAPSULE
    helper: Path = HELPER
    python: str = sys.executable
    user: int | None = None


@contextmanager
def talking(workdir: Path, out: Path, launch: Launch = Launch()) -> Generator[Conversation]:
    env = {
        "PATH": launch.path,
        "PYTHONPATH": str(launch.helper),
        "CAPSULE_OUT": str(out),
        "CAPSULE_RUN": "run_1",
    }
    process = subprocess.Popen(
        [launch.python, "-B", str(launch.capsule / "agent.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=workdir,
        env=env,
        user=launch.user,
    )
    with process:
        try:
            yield Conversation(process, workdir, out)
        finally:
            process.kill()


def report_on(workdir: Path, out: Path, text: str = "report on this repository") -> dict[str, Any]:
    """Run the agent to its `turn-end` and return that event."""
    with talking(workdir, out) as run:
        run.give_task(text)
        end = run.end()
    assert end["type"] == "turn-end", end
    assert (out / "report.md").read_text() == end["result"]
    return end


@pytest.fixture
def out(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    return out


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    return tree


def write(tree: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def git(tree: Path, *arguments: str, at: str = "2024-01-02T03:04:05Z") -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": at,
        "GIT_COMMITTER_DATE": at,
    }
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=tree, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(tree: Path, message: str, at: str) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", message, at=at)


def places(end: dict[str, Any], kind: str) -> list[str]:
    return [place["path"] for place in end["data"]["oddities"][kind]["places"]]


def languages(end: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {each["name"]: (each["files"], each["lines"]) for each in end["data"]["languages"]}


# The conversation


def test_the_steps_are_shown_and_the_report_is_streamed(tree: Path, out: Path) -> None:
    write(tree, {"a.py": "x = 1\n"})

    with talking(tree, out) as run:
        run.give_task("report on this repository")
        end = run.end()

    kinds = [event["type"] for event in run.seen]
    calls = {event["id"]: event["name"] for event in run.seen if event["type"] == "tool-call"}
    results = [event["id"] for event in run.seen if event["type"] == "tool-result"]
    streamed = "".join(event["text"] for event in run.seen if event["type"] == "text-delta")
    assert list(calls.values()) == STEPS
    assert results == list(calls)
    assert kinds[-1] == "turn-end"
    assert kinds.count("text-delta") > 3
    assert "activity" in kinds
    assert "usage" not in kinds
    assert streamed == end["result"]
    assert (out / "report.md").read_text() == end["result"]


@pytest.fixture
def slow_git(tmp_path: Path) -> str:
    """A PATH whose git never answers."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (programs / "git").chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


def test_an_interrupt_ends_the_turn_at_once(tree: Path, out: Path, slow_git: str) -> None:
    with talking(tree, out, Launch(path=slow_git)) as run:
        run.give_task("report")
        run.wait_for("tool-call")
        asked = time.monotonic()
        run.say({"type": "interrupt"})
        end = run.end()
        took = time.monotonic() - asked

    assert end == {"type": "turn-failed", "kind": "other", "message": "interrupted"}
    assert run.seen[-2]["is_error"]
    assert took < 5
    assert not (out / "report.md").exists()


def test_the_end_of_stdin_ends_the_turn(tree: Path, out: Path, slow_git: str) -> None:
    with talking(tree, out, Launch(path=slow_git)) as run:
        run.give_task("report")
        run.wait_for("tool-call")
        run.hang_up()
        end = run.end()

    assert end == {"type": "turn-failed", "kind": "other", "message": "interrupted"}


def test_a_work_directory_that_is_none_is_declined(tmp_path: Path, out: Path) -> None:
    with talking(tmp_path, out) as run:
        run.workdir = tmp_path / "missing"
        run.give_task("report")
        run.end()

    assert [(event["type"], event["kind"]) for event in run.seen] == [("turn-failed", "declined")]


def test_a_report_that_cannot_be_saved_fails_the_turn(tree: Path, out: Path) -> None:
    elsewhere = out.parent / "elsewhere"
    (out / "report.md").symlink_to(elsewhere)

    with talking(tree, out) as run:
        run.give_task("report")
        end = run.end()

    assert end["type"] == "turn-failed"
    assert "cannot be saved" in end["message"]
    assert not elsewhere.exists()


def test_the_task_may_name_a_folder_and_a_length(tree: Path, out: Path) -> None:
    write(tree, {"src/a.py": "1\n", "src/b.py": "1\n2\n", "src/c.py": "1\n", "other/d.py": "1\n"})

    end = report_on(tree, out, "top 2 in src please")

    assert end["data"]["folder"] == "src"
    assert [each["path"] for each in end["data"]["largest"]] == ["b.py", "a.py"]
    assert end["data"]["files"] == 3
    assert "On the folder `src`" in end["result"]


def test_the_wishes_may_come_as_data(tree: Path, out: Path) -> None:
    write(tree, {"src/a.py": "1\n", "d.py": "1\n"})

    with talking(tree, out) as run:
        run.give_task("report", {"folder": "src", "top": 1})
        end = run.end()

    assert (end["data"]["folder"], end["data"]["files"]) == ("src", 1)


# The numbers


KNOWN: dict[str, str | bytes] = {
    "README.md": "# Title\n\nTODO: write\n",
    "src/a.py": "import os\n\n# FIXME: no\n# TODO: yes, and TODO again\n",
    "src/b.py": "x = 1",
    "src/run": "#!/usr/bin/env python3\nprint()\n",
    "web/app.js": "a\r\nb\r\n",
    "web/mixed.js": "a\r\nb\n",
    "web/logo.png": b"\x89PNG\r\n\x1a\n\0\0",
    "web/lib.so": b"\x7fELF\x02\x01\x01\0",
    "empty.txt": "",
    "latin.txt": "größe\n".encode("latin-1"),
    "merge.c": "<<<<<<< a\nint x;\n=======\nint y;\n>>>>>>> b\n",
    "min.js": "x" * 6000,
}


def test_the_numbers_of_a_known_folder(tree: Path, out: Path) -> None:
    write(tree, KNOWN)

    end = report_on(tree, out)

    data = end["data"]
    assert (data["listed_by"], data["files"], data["lines"]) == ("walk", 12, 21)
    assert data["bytes"] == sum(len(each) for each in map(as_bytes, KNOWN.values()))
    assert languages(end) == {
        "Python": (3, 7),
        "JavaScript": (3, 5),
        "C": (1, 5),
        "Markdown": (1, 3),
        "Plain text": (2, 1),
        "Binary": (2, 0),
    }
    assert data["markers"]["counts"] == {"TODO": 3, "FIXME": 1, "XXX": 0}
    assert [(each["path"], each["line"], each["word"]) for each in data["markers"]["places"]] == [
        ("src/a.py", 3, "FIXME"),
        ("README.md", 3, "TODO"),
        ("src/a.py", 4, "TODO"),
    ]
    assert {kind: places(end, kind) for kind in data["oddities"]} == {
        "conflict": ["merge.c"],
        "blob": ["web/lib.so"],
        "encoding": ["latin.txt"],
        "mixed-endings": ["web/mixed.js"],
        "long-lines": ["min.js"],
    }
    assert "12 files in 2 folders, 21 lines of text" in end["result"]
    assert "| Python | 3 | 7 | 33.3% | 87 B |" in end["result"]
    assert "1 file with CRLF line endings." in end["result"]
    assert "3 TODO, 1 FIXME, on 3 lines in 2 files." in end["result"]
    assert "- `src/a.py:3` `# FIXME: no`" in end["result"]


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def test_an_empty_folder(tree: Path, out: Path) -> None:
    end = report_on(tree, out)

    assert (end["data"]["files"], end["data"]["lines"]) == (0, 0)
    assert "it holds no files" in end["result"]
    assert "Nothing odd was found." in end["result"]


def test_without_git_the_newest_files_are_by_time(tree: Path, out: Path) -> None:
    write(tree, {"old": "", "new": "", "mid": ""})
    for name, at in (("old", 1_000), ("new", 3_000), ("mid", 2_000)):
        os.utime(tree / name, (at, at))

    end = report_on(tree, out)

    assert [each["path"] for each in end["data"]["recent"]["files"]] == ["new", "mid", "old"]
    assert end["data"]["recent"]["dated_by"] == "mtime"
    assert "By modification time, because this is no git repository." in end["result"]


@pytest.mark.timeout(120)
def test_fifty_thousand_files(tree: Path, out: Path) -> None:
    """The measured time is 1.2 s on two cores; the bound only catches what grew out of hand."""
    body = b"a line of text\n" * 50
    for number in range(500):
        folder = tree / f"part{number % 10}" / f"folder{number}"
        folder.mkdir(parents=True)
        for index in range(100):
            file = os.open(folder / f"file{index}.py", os.O_WRONLY | os.O_CREAT)
            os.write(file, body)
            os.close(file)

    started = time.monotonic()
    end = report_on(tree, out)
    took = time.monotonic() - started

    assert (end["data"]["files"], end["data"]["lines"]) == (50_000, 2_500_000)
    assert took < 60


# Folders that are out to hurt


def test_names_that_could_break_the_report(tree: Path, out: Path) -> None:
    names = [b"pipe|tick`", b"new\nline", b"not-utf8-\xff", b"# [link](x) <b>", b"\x1b[31mred"]
    for name in names:
        (Path(os.fsdecode(os.fsencode(tree) + b"/" + name))).write_text("XXX | `a`\n")

    end = report_on(tree, out)

    assert end["data"]["files"] == len(names)
    assert {each["path"] for each in end["data"]["largest"]} == {
        "pipe|tick`",
        "new\nline",
        "not-utf8-\\xff",
        "# [link](x) <b>",
        "\x1b[31mred",
    }
    assert all(line == "" or line.isprintable() for line in end["result"].split("\n"))
    assert "`new\\nline`" in end["result"]
    assert "pipe&#124;tick&#96;" in end["result"]
    assert places(end, "odd-name") == ["\x1b[31mred", "new\nline", "not-utf8-\\xff"]


def test_links_pipes_sockets_and_loops(tree: Path, out: Path) -> None:
    write(tree, {"folder/file.py": "1\n"})
    (tree / "folder" / "loop").symlink_to("../folder")
    (tree / "self").symlink_to("self")
    (tree / "broken").symlink_to("nowhere")
    (tree / "outside").symlink_to("/etc/passwd")
    os.mkfifo(tree / "fifo.py")
    os.mknod(tree / "socket.py", 0o140600)

    end = report_on(tree, out)

    assert (end["data"]["files"], end["data"]["lines"]) == (1, 1)
    assert places(end, "looping-link") == ["self"]
    assert places(end, "broken-link") == ["broken"]
    assert places(end, "outside-link") == ["outside"]
    assert places(end, "special") == ["fifo.py", "socket.py"]
    assert "4 links, not followed." in end["data"]["left_out"]


def test_an_enormous_file_is_listed_but_not_read(tree: Path, out: Path) -> None:
    write(tree, {"a.py": "1\n"})
    with (tree / "enormous.py").open("wb") as file:
        file.truncate(1 << 40)

    end = report_on(tree, out)

    assert places(end, "huge") == ["enormous.py"]
    assert (end["data"]["files"], end["data"]["lines"]) == (2, 1)
    assert "1 file over 8.0 MiB: listed, but not read." in end["data"]["left_out"]


def test_files_that_may_not_be_read(out: Path) -> None:
    """Root may read everything, so as root the agent runs as somebody else, from a copy."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    is_root = os.geteuid() == 0
    if is_root and not python:
        pytest.skip("no python that another user could run")
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        base.chmod(0o755)
        shutil.copytree(CAPSULE, base / "capsule")
        shutil.copytree(HELPER, base / "helper")
        tree, own_out = base / "tree", base / "out"
        write(tree, {"open.py": "1\n", "closed.py": "1\n", "shut/inside.py": "1\n"})
        own_out.mkdir()
        own_out.chmod(0o777)
        (tree / "closed.py").chmod(0)
        (tree / "shut").chmod(0)
        launch = Launch(capsule=base / "capsule", helper=base / "helper")
        if is_root and python:
            launch = replace(launch, python=python, user=NOBODY)
        with talking(tree, own_out, launch) as run:
            run.give_task("report")
            end = run.end()
        (tree / "shut").chmod(0o755)

    assert end["data"]["lines"] == 1
    assert places(end, "unreadable") == ["closed.py", "shut"]
    assert "- Cannot be read: 2\n  - `closed.py` (permission denied)" in end["result"]


# Git


def test_a_repository_is_listed_and_dated_by_git(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {".gitignore": "build/\n*.log\n", "a.py": "1\n", "b.py": "1\n", "c/d.py": "1\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")
    write(tree, {"a.py": "1\n2\n", "c/\nodd": "x\n"})
    commit(tree, "two", "2024-02-01T00:00:00Z")
    write(tree, {"build/x.py": "1\n", "x.log": "1\n", "fresh.py": "1\n"})
    (tree / "b.py").unlink()

    end = report_on(tree, out)

    recent = end["data"]["recent"]
    head = git(tree, "rev-parse", "--short", "HEAD")
    assert (end["data"]["listed_by"], end["data"]["branch"]) == ("git", "main")
    assert languages(end)["Python"] == (3, 4)
    assert end["data"]["files"] == 5
    assert recent["dated_by"] == "git"
    assert [(each["path"], each["at"][:10]) for each in recent["files"][1:]] == [
        ("a.py", "2024-02-01"),
        ("c/\nodd", "2024-02-01"),
        (".gitignore", "2024-01-01"),
        ("c/d.py", "2024-01-01"),
    ]
    assert (recent["files"][0]["path"], recent["files"][0]["commit"]) == ("fresh.py", "")
    assert recent["files"][1]["commit"] == head
    assert "A git repository on branch `main`" in end["result"]
    assert end["data"]["left_out"] == [
        "Ignored by git: `build/`, `x.log`.",
        "Version control data: `.git`.",
        "1 file that git tracks but the disk lacks.",
    ]


def test_a_repository_without_commits(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {"a.py": "1\n"})

    end = report_on(tree, out)

    assert (end["data"]["listed_by"], end["data"]["files"]) == ("git", 1)
    assert end["data"]["recent"]["dated_by"] == "mtime"
    assert "because the repository has no commits yet" in end["result"]


def test_a_folder_in_a_repository(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {"src/a.py": "1\n", "b.py": "1\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")

    end = report_on(tree / "src", out)

    assert (end["data"]["listed_by"], end["data"]["files"]) == ("git", 1)
    assert [each["path"] for each in end["data"]["recent"]["files"]] == ["a.py"]


def test_a_folder_that_an_outer_repository_ignores(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {".gitignore": "*\n", "inner/a.py": "1\n"})

    end = report_on(tree / "inner", out)

    assert (end["data"]["listed_by"], end["data"]["files"]) == ("walk", 1)
    assert "because git knows no file here" in end["result"]


def test_a_worktree_and_nested_repositories(tree: Path, tmp_path: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {"a.py": "1\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")
    worktree = tmp_path / "worktree"
    git(tree, "worktree", "add", "-q", str(worktree))
    (worktree / "nested").mkdir()
    git(worktree / "nested", "init", "-q")
    write(worktree, {"nested/b.py": "1\n"})
    (worktree / "module").mkdir()
    head = git(tree, "rev-parse", "HEAD")
    git(worktree, "update-index", "--add", "--cacheinfo", f"160000,{head},module")

    end = report_on(worktree, out)

    assert (end["data"]["listed_by"], end["data"]["files"]) == ("git", 1)
    assert end["data"]["branch"] == "worktree"
    assert "Nested repositories, not entered: `module`, `nested`." in end["data"]["left_out"]


def test_a_git_file_that_leads_nowhere_is_walked_around(tree: Path, out: Path) -> None:
    write(tree, {".git": "gitdir: /nowhere/at/all\n", "a.py": "1\n", "sub/.git/config": "x\n"})

    end = report_on(tree, out)

    assert (end["data"]["listed_by"], end["data"]["files"]) == ("walk", 1)
    assert "Version control data: `.git`, `sub/.git`." in end["data"]["left_out"]


def test_a_tracked_path_that_became_a_link_out(tree: Path, tmp_path: Path, out: Path) -> None:
    write(tmp_path, {"secret/a.py": "TODO: secret\n"})
    git(tree, "init", "-q")
    write(tree, {"src/a.py": "1\n", "b.py": "1\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")
    shutil.rmtree(tree / "src")
    (tree / "src").symlink_to(tmp_path / "secret")

    end = report_on(tree, out)

    assert "secret`" not in json.dumps(end["data"]["markers"])
    assert (end["data"]["files"], end["data"]["lines"]) == (1, 1)
    assert places(end, "outside-link") == ["src"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nonexistent", "no git was found"), ("tree", "no git was found"), ("fake", "fatal: out")],
)
def test_git_that_is_missing_planted_or_broken(
    tree: Path, tmp_path: Path, out: Path, path: str, reason: str
) -> None:
    script = "#!/bin/sh\ntrue > ran\necho 'fatal: out of order' >&2\nexit 1\n"
    (tmp_path / "fake").mkdir()
    for folder in (tree, tmp_path / "fake"):
        (folder / "git").write_text(script)
        (folder / "git").chmod(0o755)

    with talking(tree, out, Launch(path=f"{tmp_path / path}:.")) as run:
        run.give_task("report")
        end = run.end()

    assert end["data"]["listed_by"] == "walk"
    assert reason in end["result"]
    assert (tree / "ran").exists() == (path == "fake")


def test_programs_that_a_repository_names_are_not_run(tree: Path, out: Path) -> None:
    """Every door at once: monitor, hooks, signatures, filters, converters, lazy fetching."""
    git(tree, "init", "-q")
    write(tree, {"a.py": "1\n", "d/b.py": "1\n", ".gitattributes": "* filter=x diff=x\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")
    trap = tree / ".git" / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $@ >> {tree}/.git/sprung\nexit 1\n")
    trap.chmod(0o755)
    hooks = tree / ".git" / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    hooks.mkdir()
    shutil.copy(trap, hooks / "post-index-change")
    signed = (
        f"tree {git(tree, 'rev-parse', 'HEAD^{tree}')}\nparent {git(tree, 'rev-parse', 'HEAD')}\n"
        "author a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\n"
        "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nsigned\n"
    )
    (tree / ".git" / "signed").write_text(signed)
    git(tree, "update-ref", "HEAD", git(tree, "hash-object", "-t", "commit", "-w", ".git/signed"))
    missing = git(tree, "rev-parse", "HEAD:d")
    (tree / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    for key, value in {
        "core.fsmonitor": str(trap),
        "log.showSignature": "true",
        "gpg.program": str(trap),
        "core.pager": str(trap),
        "pager.log": "true",
        "filter.x.clean": str(trap),
        "filter.x.process": str(trap),
        "diff.x.textconv": str(trap),
        "diff.external": str(trap),
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{trap} %S",
        "protocol.ext.allow": "always",
        "color.ui": "always",
    }.items():
        git(tree, "config", key, value)

    end = report_on(tree, out)

    was_sprung = (tree / ".git" / "sprung").exists()
    subprocess.run(["git", "log"], cwd=tree, capture_output=True, check=False)

    assert not was_sprung
    assert (tree / ".git" / "sprung").exists(), "the traps are armed"
    assert (end["data"]["listed_by"], end["data"]["files"]) == ("git", 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_is_read_all_the_same(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, {"a.py": "1\n"})
    commit(tree, "one", "2024-01-01T00:00:00Z")
    for path in (tree, *tree.rglob("*")):
        os.chown(path, NOBODY, NOBODY)

    end = report_on(tree, out)

    assert (end["data"]["listed_by"], end["data"]["recent"]["dated_by"]) == ("git", "git")


def test_nothing_in_the_work_directory_changes(tree: Path, out: Path) -> None:
    git(tree, "init", "-q")
    write(tree, KNOWN)
    commit(tree, "one", "2024-01-01T00:00:00Z")
    write(tree, {"src/a.py": "edited\n", "new.py": "1\n"})
    shutil.copytree(CAPSULE, tree / "capsule")
    before = snapshot(tree)

    with talking(tree, out, Launch(capsule=tree / "capsule")) as run:
        run.give_task("report")
        end = run.end()

    assert end["type"] == "turn-end"
    assert snapshot(tree) == before


def snapshot(tree: Path) -> dict[str, tuple[int, int, bytes]]:
    """Read modes, times and contents of everything in *tree*."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in (tree, *tree.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, data)
    return found
