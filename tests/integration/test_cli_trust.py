"""`capsule trust`: a capsule, as it is now, may have what it asks for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import ADVISORY, HELLO, PROGRAM, Command, Done

ASKS = '\n[capabilities]\nread = ["~/data"]\nhosts = ["example.org"]\n'
QUESTION = "trust this capsule as it is now? [y/N] "


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def asking(command: Command, name: str = "capsule") -> Path:
    """Write a capsule that asks for something."""
    folder = Path(command.capsule(HELLO)).rename(command.folder / f"{name}.new")
    with (folder / "capsule.toml").open("a") as manifest:
        manifest.write(ASKS)
    (folder / "link").symlink_to("harness.sh")
    return folder.rename(command.folder / name)


def run(command: Command, folder: Path) -> Done:
    return command("run", str(folder), "--task", "go", *ADVISORY)


def trusted(command: Command) -> list[str]:
    found = json.loads(command("trust", "--list", "--json").out)
    return [one["folder"] for one in found]


def test_a_trusted_capsule_runs(command: Command) -> None:
    folder = asking(command)
    done = command("trust", str(folder), "--yes")

    assert done.out == f"trusted: {folder}\n"
    assert f"  read={command.folder}/data\n  host=example.org\n" in done.err
    assert run(command, folder).status == 0
    assert run(command, folder).status == 0


def test_what_is_trusted_is_listed(command: Command) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    [one] = json.loads(command("trust", "--list", "--json").out)

    assert one["folder"] == str(folder)
    assert one["asks"] == [f"read={command.folder}/data", "host=example.org"]
    assert one["digest"].startswith("sha256:")
    assert one["digest"] in command("trust", "--list").out


def test_the_record_is_its_owners_alone(command: Command) -> None:
    asking(command)
    command("trust", "capsule", "--yes")
    [record] = command.state.glob("trust/*")

    assert [
        path.stat().st_mode & 0o777 for path in (record.parent.parent, record.parent, record)
    ] == [
        0o700,
        0o700,
        0o600,
    ]


def a_byte(folder: Path) -> None:
    with (folder / "harness.sh").open("a") as file:
        file.write(" ")


def a_mode(folder: Path) -> None:
    (folder / "harness.sh").chmod(0o755)


def a_new_file(folder: Path) -> None:
    (folder / ".new").touch()


def a_swapped_link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("capsule.toml")


def the_asks(folder: Path) -> None:
    manifest = folder / "capsule.toml"
    manifest.write_text(manifest.read_text() + 'env = ["MORE"]\n')


CHANGES = (a_byte, a_mode, a_new_file, a_swapped_link, the_asks)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_trust_ends_when_anything_changes(command: Command, change: Callable[[Path], None]) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    change(folder)
    done = run(command, folder)

    assert done.status == 7
    assert done.err.startswith(
        "error[E-TRU-002]: the capsule 'sample' has changed since it was trusted (20"
    )
    assert list(command.state.glob("runs/*")) == []
    command("trust", "capsule", "--yes")
    assert run(command, folder).status == 0


def test_what_a_run_leaves_in_python_does_not_end_the_trust(command: Command) -> None:
    folder = asking(command)
    (folder / "said.py").write_text("WORD = 'read'\n")
    (folder / "agent.py").write_text(
        'import said; input(); print(\'{"type":"turn-end","result":"\' + said.WORD + \'"}\')\n'
    )
    manifest = (folder / "capsule.toml").read_text()
    told = manifest.replace('["sh", "./harness.sh"]', '["python3", "./agent.py"]')
    (folder / "capsule.toml").write_text(told)
    command("trust", "capsule", "--yes")

    assert [run(command, folder).out for _ in range(2)] == ["read\n", "read\n"]


def test_a_copy_is_another_capsule(command: Command) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    subprocess.run(["cp", "-a", folder, command.folder / "copy"], check=True)
    done = run(command, command.folder / "copy")

    assert done.status == 7
    assert "error[E-TRU-001]" in done.err


def test_a_link_to_a_capsule_is_the_capsule(command: Command) -> None:
    folder = asking(command)
    (command.folder / "alias").symlink_to(folder)
    command("trust", "alias", "--yes")

    assert trusted(command) == [str(folder)]
    assert run(command, command.folder / "alias").status == 0


def test_trust_is_forgotten(command: Command) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    done = command("trust", "--forget", "capsule")

    assert done.out == f"{folder} is trusted no longer\n"
    assert trusted(command) == []
    assert run(command, folder).status == 7
    assert command("trust", "--forget", "absent").out.endswith("absent was not trusted\n")


def test_nothing_to_ask_for_is_nothing_to_trust(command: Command) -> None:
    command.capsule(HELLO)
    done = command("trust", "capsule", "--yes")

    assert (done.status, done.out) == (0, "it asks for nothing, so there is nothing to trust\n")
    assert not command.state.exists()


def test_without_a_terminal_somebody_must_have_said_yes(command: Command) -> None:
    asking(command)
    done = command("trust", "capsule", stdin=b"y\n")

    assert done.status == 2
    assert "error[E-USE-033]" in done.err
    assert not command.state.exists()


@pytest.mark.parametrize(
    "words", [(), ("x", "--list"), ("--list", "--yes"), ("--yes",), ("x", "--json"), ("--forget",)]
)
def test_words_that_do_not_go_together(command: Command, words: tuple[str, ...]) -> None:
    assert command("trust", *words).status == 2


def test_links_that_lead_out_are_named(command: Command) -> None:
    folder = asking(command)
    (folder / "python").symlink_to("/usr/bin/env")
    done = command("trust", "capsule", "--yes")

    assert "  python -> /usr/bin/env\n" in done.err
    assert "harness.sh" not in done.err


def test_what_cannot_be_counted_cannot_be_trusted(command: Command) -> None:
    folder = asking(command)
    os.mkfifo(folder / "pipe")

    assert command("trust", "capsule", "--yes").status == 7
    assert "error[E-TRU-003]" in run(command, folder).err


def test_capsules_trusted_at_once_are_all_trusted(command: Command) -> None:
    folders = [asking(command, f"capsule-{n}") for n in range(8)]
    trusting = [
        subprocess.Popen(
            [PROGRAM, "trust", folder, "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=command.env,
        )
        for folder in folders
    ]

    assert [process.wait() for process in trusting] == [0] * 8
    assert trusted(command) == [str(folder) for folder in folders]
    assert len(list(command.state.glob("trust/*"))) == 8


def writable(record: Path) -> None:
    record.chmod(0o666)


def damaged(record: Path) -> None:
    record.write_text("{")


def a_link(record: Path) -> None:
    record.rename(record.with_name("real"))
    record.symlink_to("real")


@pytest.mark.parametrize("spoil", [writable, damaged, a_link], ids=lambda spoil: spoil.__name__)
def test_a_record_that_cannot_be_relied_on_is_no_trust(
    command: Command, spoil: Callable[[Path], None]
) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    [record] = command.state.glob("trust/*")
    spoil(record)
    done = run(command, folder)

    assert done.status == 7
    assert done.err.startswith("error[E-TRU-004]")


# On a terminal.


def test_a_person_is_asked_once_and_the_answer_stays(command: Command) -> None:
    folder = asking(command)
    words = ("run", str(folder), "--task", "go", *ADVISORY)
    with command.in_terminal(*words) as terminal:
        terminal.shows(QUESTION)
        terminal.press("y\n")
        status = terminal.status()

    assert status == 0
    assert "  host=example.org" in terminal.rows()
    with command.in_terminal(*words) as again:
        assert again.status() == 0
    assert QUESTION not in again.text


@pytest.mark.parametrize("answer", ["\n", "n\n", "yesterday\n", "\x04"])
def test_anything_but_yes_starts_nothing(command: Command, answer: str) -> None:
    folder = asking(command)
    with command.in_terminal("run", str(folder), "--task", "go", *ADVISORY) as terminal:
        terminal.shows(QUESTION)
        terminal.press(answer)
        status = terminal.status()

    assert status == 7
    assert "error[E-TRU-001]" in terminal.text
    assert not command.state.exists()


def test_a_person_may_interrupt_the_question(command: Command) -> None:
    folder = asking(command)
    with command.in_terminal("run", str(folder), "--task", "go", *ADVISORY) as terminal:
        terminal.shows(QUESTION)
        terminal.press("\x03")

        assert terminal.status() == 130
    assert not command.state.exists()


def test_a_person_hears_that_the_capsule_has_changed(command: Command) -> None:
    folder = asking(command)
    command("trust", "capsule", "--yes")
    a_byte(folder)
    with command.in_terminal("run", str(folder), "--task", "go", *ADVISORY) as terminal:
        terminal.shows(QUESTION)
        terminal.press("n\n")
        terminal.status()

    assert "It has changed since it was trusted." in terminal.rows()


def test_the_verb_asks_as_well(command: Command) -> None:
    asking(command)
    with command.in_terminal("trust", "capsule") as terminal:
        terminal.shows(QUESTION)
        terminal.press("n\n")
        status = terminal.status()

    assert status == 7
    assert trusted(command) == []


def test_a_capsule_that_asks_for_nothing_asks_no_one(command: Command) -> None:
    words = ("run", command.capsule(HELLO), "--task", "go", *ADVISORY)
    with command.in_terminal(*words) as terminal:
        assert terminal.status() == 0
