"""A run on a copy, and `capsule apply`: what people see of both."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.command import ADVISORY, HELLO, PATIENT, Command, Done
from support.trees import git, tree_of

EDITING = r"""
read task
echo more >> kept.txt
rm removed.txt
mkdir -p new/folder
printf 'a\0b' > new/folder/binary
chmod +x script.sh
ln -s kept.txt link
ln -s /etc/passwd outward
echo '{"type":"turn-end","result":"edited"}'
"""
PLANTING = r"""
read task
mkdir -p .vscode sub/.git/hooks .git/hooks .github/workflows
echo '{}' > .vscode/tasks.json
echo evil > .git/hooks/pre-commit
echo evil > sub/.git/hooks/post-checkout
echo evil > .envrc
echo fine > Makefile
echo '{"name":"x","version":"2","scripts":{"test":"true"}}' > package.json
echo '{"type":"turn-end","result":"planted"}'
"""
WAITING = r"""
read task
echo from the run > new.txt
echo '{"type":"text-delta","text":"working"}'
while :; do sleep 1000; done
"""
COPY = ("--workdir", "project", "--workdir-mode", "copy")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def project(command: Command) -> Path:
    folder = command.folder / "project"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    (folder / "removed.txt").write_text("removed\n")
    (folder / "script.sh").write_text("true\n")
    (folder / "script.sh").chmod(0o644)
    return folder


def edited(command: Command) -> Done:
    return command.run(EDITING, *COPY)


def shown(command: Command) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(command("show", "@last", "--json").out)
    return value


def test_a_run_on_a_copy_leaves_the_original_alone(command: Command, project: Path) -> None:
    before = tree_of(project)
    done = edited(command)
    run = done.err.split()[0]

    assert done.status == 0
    assert tree_of(project) == before
    assert f"copy: 3 added, 2 changed, 1 removed; capsule apply {run}\n" in done.err
    assert not (command.state / "runs" / run / "work").exists()
    assert os.listdir(command.state / "trash") == []


def test_what_it_changed_is_known(command: Command, project: Path) -> None:
    edited(command)
    result = shown(command)
    page = command("show", "@last").out

    assert (result["workdir"], result["workdir_mode"]) == (str(project), "copy")
    assert result["changes"]["tally"] == {"added": 3, "changed": 2, "removed": 1}
    assert Path(result["patch"]).read_bytes().startswith(b"diff --git a/kept.txt b/kept.txt\n")
    assert result["applied_at"] is None
    assert f"{project} (copy)" in page
    assert "3 added, 2 changed, 1 removed" in page


@pytest.mark.parametrize("tier", ["sealed", "scoped"])
def test_a_contained_run_changes_its_copy_alone(command: Command, project: Path, tier: str) -> None:
    before = tree_of(project)
    words = ("run", command.capsule(EDITING), "--task", "go", "--containment", tier)
    done = command(*words, *COPY)
    if done.status == 6:
        pytest.skip(f"{tier} cannot be had: {done.err}")
    after = tree_of(project)
    applied = command("apply", "@last", "--yes")

    assert done.status == 0
    assert f"containment: {tier}" in done.err
    assert after == before
    assert applied.out == f"applied to {project}: 2 added, 2 changed, 1 removed\n"
    assert {path.lstat().st_uid for path in project.rglob("*")} == {os.geteuid()}


def test_it_is_applied_once(command: Command, project: Path) -> None:
    edited(command)
    done = command("apply", "@last", "--yes")
    again = command("apply", "@last", "--yes")
    check = command("store", "check")

    assert (done.status, done.out) == (0, f"applied to {project}: 2 added, 2 changed, 1 removed\n")
    assert "A new/folder/binary (3 B)\n" in done.err
    assert "M kept.txt (10 B)\nA link (8 B)\n" in done.err
    assert "D removed.txt\nX script.sh (5 B)\n" in done.err
    assert "not applied: outward: it is a link that may lead out" in done.err
    assert (project / "kept.txt").read_text() == "kept\nmore\n"
    assert (project / "new/folder/binary").read_bytes() == b"a\0b"
    assert os.access(project / "script.sh", os.X_OK)
    assert not (project / "removed.txt").exists()
    assert not (project / "outward").is_symlink()
    assert sorted(os.listdir(project)) == ["kept.txt", "link", "new", "script.sh"]
    assert again.status == 2
    assert again.err.startswith("error[E-USE-071]: what run_")
    assert shown(command)["applied_at"] is not None
    assert check.status == 0


def test_links_that_lead_out_are_applied_when_that_is_wanted(
    command: Command, project: Path
) -> None:
    edited(command)
    command("apply", "@last", "--yes", "--with", "links")

    assert (project / "outward").readlink() == Path("/etc/passwd")


def test_a_repository_of_git_takes_commits_only_when_that_is_wanted(
    command: Command, project: Path
) -> None:
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    committing = (
        "read task\necho more >> kept.txt\n"
        "git -c user.name=x -c user.email=x commit -qam second >&2\n"
        """echo '{"type":"turn-end","result":"committed"}'\n"""
    )
    done = command.run(committing, *COPY)
    plain = command("apply", "@last", "--json")
    command("apply", "@last", "--yes", "--with", "git")
    left_out = json.loads(plain.out)["left_out"]

    assert "1 changed, " in done.err
    assert " inside .git; capsule apply run_" in done.err
    assert {one["path"].split("/")[0] for one in left_out} == {".git"}
    assert len(git(project, "log", "--oneline").splitlines()) == 2
    assert git(project, "status", "--short") == ""


def test_a_changed_original_is_named_and_nothing_is_applied(
    command: Command, project: Path
) -> None:
    edited(command)
    (project / "kept.txt").write_text("edited meanwhile\n")
    before = tree_of(project)
    done = command("apply", "@last", "--yes")

    assert done.status == 2
    assert f"error[E-USE-072]: nothing was applied: in {project} these have changed" in done.err
    assert "\n  kept.txt\n" in done.err
    assert tree_of(project) == before
    assert shown(command)["applied_at"] is None


def test_nobody_to_ask_is_an_error(command: Command, project: Path) -> None:
    edited(command)
    before = tree_of(project)
    done = command("apply", "@last")

    assert done.status == 2
    assert "error[E-USE-033]" in done.err
    assert tree_of(project) == before


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_a_person_is_asked(command: Command, project: Path, answer: str, status: int) -> None:
    edited(command)
    with command.in_terminal("apply", "@last") as terminal:
        terminal.shows("apply these changes to")
        terminal.press(answer)

        assert terminal.status() == status
    assert (project / "link").is_symlink() == (status == 0)


def test_the_patch_is_shown_harmlessly_and_applies_nothing(command: Command, project: Path) -> None:
    hostile = (
        r"""read task; printf 'a\033[31m\n::error::x\n' > kept.txt; """
        r"""echo '{"type":"turn-end","result":"x"}'"""
    )
    command.run(hostile + "\n", *COPY)
    before = tree_of(project)
    done = command("apply", "@last", "--diff")

    assert done.status == 0
    assert "\x1b" not in done.out
    assert "+a\u241b[31m\n" in done.out
    assert tree_of(project) == before


def test_json_tells_what_would_be_applied_and_what_was(command: Command, project: Path) -> None:
    edited(command)
    before = tree_of(project)
    offer = json.loads(command("apply", "@last", "--json").out)
    unchanged = tree_of(project) == before
    applied = json.loads(command("apply", "@last", "--json", "--yes").out)

    assert unchanged
    assert offer["applied_at"] is None
    assert applied["applied_at"] is not None
    assert {one["path"]: one["change"] for one in applied["changes"]} == {
        "kept.txt": "changed",
        "link": "added",
        "new/folder/binary": "added",
        "removed.txt": "removed",
        "script.sh": "mode",
    }


def test_a_run_that_changed_nothing_has_nothing_to_apply(command: Command, project: Path) -> None:
    assert project.is_dir()
    command.run(HELLO, *COPY)
    done = command("apply", "@last")

    assert (done.status, done.out) == (0, "there is nothing to apply\n")


def test_a_run_in_place_has_nothing_to_apply(command: Command) -> None:
    command.run(HELLO)
    done = command("apply", "@last", "--yes")

    assert done.status == 2
    assert done.err.startswith("error[E-USE-070]: ")


def test_a_capsule_in_what_it_works_on_gets_a_copy(command: Command) -> None:
    """It could otherwise rewrite itself, and would be run as something else the next time."""
    folder = Path(command.capsule(HELLO + "echo x >> capsule/harness.sh\n"))
    text = (folder / "capsule.toml").read_text().replace('[workdir]\nmode = "rw"\n', "")
    (folder / "capsule.toml").write_text(text)
    script = (folder / "harness.sh").read_text()
    (command.folder / "elsewhere").mkdir()
    command("run", str(folder), "--task", "go", *ADVISORY)
    copied = (folder / "harness.sh").read_text(), shown(command)["workdir_mode"]
    outside = command("run", str(folder), "--task", "go", *ADVISORY, "--workdir", "elsewhere")

    assert copied == (script, "copy")
    assert outside.status == 0
    assert shown(command)["workdir_mode"] == "rw"


def test_a_caller_gets_no_more_than_the_capsule_asks_for(command: Command) -> None:
    folder = Path(command.capsule(HELLO))
    text = (folder / "capsule.toml").read_text().replace('"rw"', '"ro"')
    (folder / "capsule.toml").write_text(text)
    done = command("run", str(folder), "--task", "go", *ADVISORY, "--workdir-mode", "copy")

    assert done.status == 2
    assert done.err.startswith("error[E-USE-053]: ")


def test_the_plan_says_the_mode(command: Command, project: Path) -> None:
    words = ("run", command.capsule(HELLO), "--task", "go", *ADVISORY, *COPY)
    plan = json.loads(command(*words, "--explain", "--json").out)

    assert (plan["workdir"], plan["workdir_mode"]) == (str(project), "copy")


def test_a_work_directory_that_is_too_large_ends_the_run(command: Command, project: Path) -> None:
    (project / "large").write_bytes(os.urandom(2 * 1024 * 1024))
    folder = Path(command.capsule(HELLO))
    text = (folder / "capsule.toml").read_text()
    (folder / "capsule.toml").write_text(
        text.replace('mode = "rw"', 'mode = "copy"\ncopies_at_most = "1MiB"')
    )
    done = command("run", str(folder), "--task", "go", *ADVISORY, "--workdir", "project")
    run = done.err.split()[0]

    assert done.status == 11
    assert f"the work directory {project} is too large to be copied: it holds more than" in done.err
    assert not (command.state / "runs" / run / "work").exists()


@pytest.mark.parametrize("mode", ["rw", "copy"])
def test_what_may_run_later_is_told(command: Command, project: Path, mode: str) -> None:
    git(project, "init", "-q")
    (project / "package.json").write_text('{"version":"1","scripts":{"test":"true"}}')
    words = ("--workdir", "project", "--workdir-mode", mode, "--result", "result.json")
    done = command.run(PLANTING, *words)
    result = json.loads((command.folder / "result.json").read_text())
    warned = {one["path"]: one["change"] for one in result["changes"]["warned"]}

    assert warned == {
        ".envrc": "added",
        ".git/hooks/pre-commit": "added",
        ".vscode/tasks.json": "added",
        "sub/.git/hooks/post-checkout": "added",
    }
    assert "warning: .envrc was added: a shell that enters the folder, takes orders" in done.err
    assert (
        ".git/hooks/pre-commit (added): git, at nearly any command" in command("show", "@last").out
    )


def test_frames_leave_stdout_to_frames_and_warnings_go_to_stderr(
    command: Command, project: Path
) -> None:
    assert project.is_dir()
    done = command.run(PLANTING, "--workdir", "project", "--format", "jsonl")

    assert all("type" in frame for frame in done.frames)
    assert "warning: .envrc was added" in done.err


def many(project: Path, count: int = 6000) -> None:
    """Fill *project* so that copying it takes a moment."""
    for number in range(count):
        (project / f"file{number}").write_bytes(b"x" * 100)


def test_an_interrupt_in_the_midst_of_copying_leaves_nothing(
    command: Command, project: Path
) -> None:
    many(project)
    words = ("run", command.capsule(HELLO), "--task", "go", *ADVISORY, *COPY)
    with command.started(*words) as process:
        run = process.said("run_").split()[0]
        process.popen.send_signal(signal.SIGINT)
        done = process.done()
    facts = command("logs", "--facts", run).out

    assert done.status == 130
    assert "(copied)" not in facts
    assert sorted(os.listdir(command.state / "runs" / run)) in (
        ["bell", "out"],
        ["bell", "out", "stderr.log"],
    )
    assert os.listdir(command.state / "trash") == []


def test_an_interrupted_run_has_its_changes_collected(command: Command, project: Path) -> None:
    words = (
        "run",
        command.capsule("read t; echo x > new.txt\n" + PATIENT.replace("read task", "")),
    )
    with command.started(*words, "--task", "go", *ADVISORY, *COPY, "--format", "jsonl") as process:
        process.frame("text")
        process.popen.send_signal(signal.SIGINT)
        done = process.done()
    command("apply", "@last", "--yes")

    assert done.status == 130
    assert (project / "new.txt").read_text() == "x\n"


def test_a_supervisor_killed_while_it_copies_leaves_nothing_behind(
    command: Command, project: Path
) -> None:
    many(project)
    words = ("run", command.capsule(HELLO), "--task", "go", *ADVISORY, *COPY)
    with command.started(*words) as process:
        run = process.said("run_").split()[0]
        folder = command.state / "runs" / run
        while not (folder / "work").exists():
            assert process.popen.poll() is None
        process.popen.kill()
        process.done()
    was_copying = (folder / "work").exists() and not (folder / "work.index").exists()
    listed = command("ps", "--all")

    assert was_copying
    assert "lost" in listed.out
    assert not (folder / "work").exists()
    assert os.listdir(command.state / "trash") == []


def test_what_a_killed_supervisors_run_changed_is_collected_by_the_next(
    command: Command, project: Path
) -> None:
    words = ("run", command.capsule(WAITING), "--task", "go", *ADVISORY, *COPY)
    with command.started(*words, "--format", "jsonl") as process:
        process.frame("text")
        process.popen.kill()
        process.done()
    listed = command("ps", "--all")
    result = shown(command)
    applied = command("apply", "@last", "--yes")

    assert "lost" in listed.out
    assert result["changes"]["tally"] == {"added": 1, "changed": 0, "removed": 0}
    assert applied.status == 0
    assert (project / "new.txt").read_text() == "from the run\n"
