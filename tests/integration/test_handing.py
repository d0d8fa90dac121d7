"""A run's folders change hands, and nothing else does, whatever lies in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule_runtime.host.handing import Handing, take_back
from capsule_runtime.host.run_users import FIRST

USER, ANOTHER = FIRST + 5, FIRST + 6

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with a file in a folder in it, beside a file that is none of its business."""
    home = tmp_path / "home"
    (home / "deep").mkdir(parents=True)
    (home / "deep/file").write_text("words")
    (tmp_path / "outside").write_text("canary")
    return home


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_all_of_it_is_given_and_taken_back(home: Path) -> None:
    Handing((home,), USER).give()
    given = owners(home)
    take_back((home,))

    assert (given, owners(home)) == ({USER}, {0})


def test_what_another_run_s_user_left_is_given_too(home: Path) -> None:
    Handing((home,), ANOTHER).give()

    Handing((home,), USER).give()

    assert owners(home) == {USER}


def test_without_a_user_nothing_changes_hands(home: Path) -> None:
    Handing((home,)).give()

    assert owners(home) == {0}


def test_no_link_is_followed(home: Path, tmp_path: Path) -> None:
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "folder").symlink_to(tmp_path)

    Handing((home,), USER).give()

    assert (home / "link").lstat().st_uid == USER
    assert (tmp_path / "outside").stat().st_uid == 0


def test_a_file_with_a_name_elsewhere_stays_whose_it_is(home: Path, tmp_path: Path) -> None:
    (home / "linked").hardlink_to(tmp_path / "outside")

    Handing((home,), USER).give()

    assert (tmp_path / "outside").stat().st_uid == 0


def test_a_file_with_all_its_names_here_is_given(home: Path) -> None:
    (home / "second").hardlink_to(home / "deep/file")

    Handing((home,), USER).give()

    assert owners(home) == {USER}


def test_what_belongs_to_somebody_else_stays_so(home: Path) -> None:
    os.chown(home / "deep/file", 1234, 1234)

    Handing((home,), USER).give()
    take_back((home,))

    assert (home / "deep/file").stat().st_uid == 1234


def test_what_is_gone_is_not_asked_for(tmp_path: Path) -> None:
    take_back((tmp_path / "gone",))

    assert not (tmp_path / "gone").exists()
