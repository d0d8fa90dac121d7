"""The digest of a capsule's folder: the same for the same, another for anything that differs."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule_runtime import TrustError
from capsule_runtime.host import capsule_digest
from capsule_runtime.host.capsule_digest import digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "capsule"
    (made / "lib").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "capsule.toml").write_text("name")
    (made / "lib/a.py").write_text("a")
    (made / "lib.py").write_text("")
    (made / "link").symlink_to("lib/a.py")
    return made


def _hard_link(folder: Path) -> None:
    (folder / "lib/a.py").unlink()
    os.link(folder / "capsule.toml", folder / "lib/a.py")


def _swap_link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("lib.py")


def _link_to_copy(folder: Path) -> None:
    (folder / "link").unlink()
    shutil.copy(folder / "lib/a.py", folder / "link")


def _swap_contents(folder: Path) -> None:
    (folder / "lib.py").write_text("a")
    (folder / "lib/a.py").write_text("")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda folder: (folder / "lib/a.py").write_text("b"),
    "a byte more": lambda folder: (folder / "lib/a.py").write_text("aa"),
    "contents swapped": _swap_contents,
    "a file more": lambda folder: (folder / "lib/b.py").write_text(""),
    "a hidden file": lambda folder: (folder / ".x").write_text(""),
    "bytecode": lambda folder: (folder / "__pycache__").mkdir(),
    "a file less": lambda folder: (folder / "lib.py").unlink(),
    "a folder more": lambda folder: (folder / "lib/x").mkdir(),
    "a folder less": lambda folder: (folder / "empty").rmdir(),
    "another name": lambda folder: (folder / "lib.py").rename(folder / "lib2.py"),
    "moved up": lambda folder: (folder / "lib/a.py").rename(folder / "a.py"),
    "executable": lambda folder: (folder / "lib/a.py").chmod(0o755),
    "set-id": lambda folder: (folder / "lib/a.py").chmod(0o4644),
    "a link swapped": _swap_link,
    "a link made a file": _link_to_copy,
    "a hard link": _hard_link,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_changes_the_digest(folder: Path, change: str) -> None:
    before = digest_of(folder)
    CHANGES[change](folder)

    assert digest_of(folder).text != before.text


def test_what_is_no_part_of_a_capsule_changes_nothing(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    before = digest_of(folder)
    os.utime(folder / "lib/a.py", (0, 0))
    (folder / "lib/a.py").chmod(0o600)
    (folder / "lib/a.py").write_text("a")

    assert digest_of(folder) == before == digest_of(copy)
    assert before.text.startswith("sha256:")
    assert (before.entries, before.size) == (6, 5)


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (folder / "out").symlink_to("../outside")
    (folder / "gone").symlink_to("nowhere")
    (folder / "round").symlink_to("round")
    before = digest_of(folder)
    (tmp_path / "outside/new").write_text("new")

    assert digest_of(folder) == before
    assert before.outward == ("out -> ../outside",)


def test_names_that_are_no_text_are_counted(folder: Path) -> None:
    before = digest_of(folder)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n\x1b")).write_text("")

    assert digest_of(folder).text != before.text


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, _socket], ids=["fifo", "socket"])
def test_special_files_are_refused(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "lib/special")
    with pytest.raises(TrustError, match="lib/special: it is neither file") as caught:
        digest_of(folder)

    assert caught.value.code == "E-TRU-003"


def test_there_are_bounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsule_digest, "MOST_ENTRIES", 5)
    with pytest.raises(TrustError, match="more than 5 entries"):
        digest_of(folder)
    monkeypatch.setattr(capsule_digest, "MOST_ENTRIES", 6)
    monkeypatch.setattr(capsule_digest, "MOST_BYTES", 4)
    with pytest.raises(TrustError, match="more than 4 bytes"):
        digest_of(folder)


def test_a_folder_that_is_too_deep_is_refused(folder: Path) -> None:
    (folder / "/".join(["d"] * 65)).mkdir(parents=True)
    with pytest.raises(TrustError, match="more than 64 folders deep"):
        digest_of(folder)
