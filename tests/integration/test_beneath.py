"""What is opened beneath a folder stays beneath it, with the kernel's help and without."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from capsule_runtime.host import beneath
from capsule_runtime.host.beneath import FILE, open_beneath
from capsule_runtime.host.removal import remove_tree
from capsule_runtime.host.tree_walk import Walk, open_folder
from support.mounts import needs_mounts


@pytest.fixture(params=["openat2", "by steps"])
def top(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[int]:
    """Return a folder with some things in it, once for each way to open them."""
    folder = tmp_path / "top"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_text("inside")
    (tmp_path / "file").write_text("outside")
    (folder / "link").symlink_to("a/b/file")
    (folder / "folder").symlink_to("a")
    (folder / "out").symlink_to(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "by steps":
            patch.setattr(beneath, "_has_openat2", lambda: False)
        fd = open_folder(folder)
        yield fd
        os.close(fd)


def test_what_is_inside_is_opened(top: int) -> None:
    with open(open_beneath(top, "a/b/file", FILE), "rb") as file:
        assert file.read() == b"inside"


@pytest.mark.parametrize("path", ["link", "folder/b/file", "out/file", "folder"])
def test_no_link_is_followed(top: int, path: str) -> None:
    with pytest.raises(OSError) as refused:
        open_beneath(top, path, FILE)

    assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR)


@pytest.mark.parametrize("path", ["..", "a/../../file", "/etc/passwd"])
def test_nothing_outside_is_opened(top: int, path: str) -> None:
    with pytest.raises(OSError) as refused:
        open_beneath(top, path, FILE)

    assert refused.value.errno == errno.EXDEV


def test_the_top_itself_is_opened_anew(top: int) -> None:
    fd = open_beneath(top, "")

    assert os.path.samestat(os.fstat(fd), os.fstat(top))
    os.close(fd)


def test_a_name_with_a_nul_is_none(top: int) -> None:
    with pytest.raises((OSError, ValueError)):
        open_beneath(top, "a\0b")


def test_no_descriptor_is_left_open(top: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/b/file", "out/file", "nothing", "a/nothing/x"):
        try:
            os.close(open_beneath(top, path, FILE))
        except OSError:
            continue

    assert len(os.listdir("/proc/self/fd")) == before


@needs_mounts
def test_another_file_system_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "top/mounted").mkdir(parents=True)
    look = (
        "import os, sys\nfrom capsule_runtime.host.tree_walk import Walk, open_folder\n"
        "walk = Walk(open_folder(sys.argv[1]), 100)\n"
        "print([found.path for found in walk], walk.unseen)\n"
    )
    words = 'mount -t tmpfs none "$2/mounted" && touch "$2/mounted/file" && exec "$0" -c "$1" "$2"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", words, sys.executable, look, str(tmp_path / "top")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == ("['mounted'] {'mounted': 'another file system is mounted there'}\n"), (
        done.stderr
    )


def test_a_walk_ends_however_much_there_is(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    top = open_folder(tmp_path)
    walk = Walk(top, 20)

    assert len(list(walk)) == 20
    assert walk.is_cut
    os.close(top)


def test_a_very_deep_tree_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    assert remove_tree(tmp_path, "deep", lambda: False)
    assert os.listdir(tmp_path) == []


def test_a_closed_tree_is_removed_and_links_in_it_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    (tmp_path / "tree/inner/more").mkdir(parents=True)
    (tmp_path / "tree/inner/file").touch()
    (tmp_path / "tree/link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "tree/fifo")
    (tmp_path / "tree/inner/more").chmod(0)
    (tmp_path / "tree/inner").chmod(0)

    assert remove_tree(tmp_path, "tree", lambda: False)
    assert os.listdir(tmp_path) == ["outside"]
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_a_removal_can_be_stopped_and_gone_on_with(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"tree/{number % 10}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"tree/{number % 10}/{number}").touch()
    calls = iter(range(100))

    assert not remove_tree(tmp_path, "tree", lambda: next(calls, None) is None)
    assert remove_tree(tmp_path, "tree", lambda: False)
    assert not (tmp_path / "tree").exists()
