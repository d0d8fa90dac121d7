"""A work directory copied: as it was, without what may not be, and nothing left when it fails."""

from __future__ import annotations

import os
import random
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from capsule_runtime.core.work import CopyMade
from capsule_runtime.errors import HostError
from capsule_runtime.host.copy_index import load_index
from capsule_runtime.host.filling import Stopped
from capsule_runtime.host.workroom import Workroom, has_trash
from support.mounts import needs_mounts
from support.trees import git, grow, tree_of

NO_LIMIT = 1e18


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    folder.mkdir()
    return folder


def place_for(original: Path, most: float = NO_LIMIT) -> Workroom:
    """Return a place for a copy of *original*, beside it."""
    state = original.parent / "state"
    folder = state / "runs" / "run_1"
    folder.mkdir(parents=True, exist_ok=True)
    return Workroom("copy", original, folder, state, most)


def copied(original: Path) -> tuple[Path, CopyMade]:
    place = place_for(original)
    made = place.prepare(lambda: False)
    assert made is not None
    return place.place, made


def assert_nothing_left(place: Workroom) -> None:
    assert os.listdir(place.folder) == []
    assert place.discard()
    assert not has_trash(place.state)


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_is_what_it_is_a_copy_of(original: Path, seed: int) -> None:
    grow(original, random.Random(seed))
    copy, made = copied(original)

    assert tree_of(copy) == tree_of(original)
    assert made.left_out == ()


def test_modes_and_times_stay(original: Path) -> None:
    folder, file, link = original / "folder", original / "folder/file", original / "link"
    folder.mkdir()
    file.write_text("x")
    link.symlink_to("folder/file")
    file.chmod(0o640)
    os.utime(file, ns=(1_000_000_001, 2_000_000_002))
    os.utime(link, ns=(3, 4), follow_symlinks=False)
    folder.chmod(0o555)
    os.utime(folder, ns=(5, 6))
    copy, _ = copied(original)

    assert stat.S_IMODE((copy / "folder").stat().st_mode) == 0o555
    assert stat.S_IMODE((copy / "folder/file").stat().st_mode) == 0o640
    assert (copy / "folder/file").stat().st_mtime_ns == 2_000_000_002
    assert (copy / "link").lstat().st_mtime_ns == 4
    assert (copy / "folder").stat().st_mtime_ns == 6


def test_rights_that_a_file_gives_its_owner_are_not_copied(original: Path) -> None:
    (original / "file").touch()
    (original / "file").chmod(0o6755)
    copy, _ = copied(original)

    assert stat.S_IMODE((copy / "file").stat().st_mode) == 0o755


def test_links_are_copied_and_never_followed(original: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    (original / "absolute").symlink_to(tmp_path / "secret")
    (original / "up").symlink_to("..")
    copy, _ = copied(original)

    assert (copy / "absolute").readlink() == tmp_path / "secret"
    assert os.readlink(copy / "up") == ".."
    assert (copy / "up").is_symlink()


def test_what_is_no_file_is_left_out_and_told(original: Path) -> None:
    os.mkfifo(original / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(original / "socket"))
        copy, made = copied(original)

    assert os.listdir(copy) == []
    assert [one.path for one in made.left_out] == ["fifo", "socket"]
    assert made.left_out_count == 2


def test_a_sparse_file_stays_sparse(original: Path) -> None:
    with (original / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(5 * 2**30)
        file.write(b"end")
    copy, _ = copied(original)
    status = (copy / "sparse").stat()
    with (copy / "sparse").open("rb") as file:
        file.seek(-3, os.SEEK_END)
        end = file.read()

    assert status.st_size == 5 * 2**30 + 3
    assert status.st_blocks * 512 < 1024 * 1024
    assert end == b"end"


def test_long_names_and_very_deep_folders(original: Path) -> None:
    deep = "/".join(["d" * 200] * 17)
    os.makedirs(original / deep)
    (original / deep / ("n" * 200)).write_text("deep down")
    copy, made = copied(original)

    assert (copy / deep / ("n" * 200)).read_text() == "deep down"
    assert made.left_out == ()


def test_what_has_no_path_that_could_be_opened_is_left_out(original: Path) -> None:
    here = os.open(original, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    place = place_for(original)
    made = place.prepare(lambda: False)

    assert made is not None
    assert [one.why for one in made.left_out] == ["its path is too long"]
    place.discard()
    assert_nothing_left(place)


def test_the_state_directory_is_not_copied_into_itself(original: Path) -> None:
    (original / "file").write_text("x")
    folder = original / "state/runs/run_1"
    folder.mkdir(parents=True)
    place = Workroom("copy", original, folder, original / "state", NO_LIMIT)
    made = place.prepare(lambda: False)

    assert os.listdir(place.place) == ["file"]
    assert made is not None
    assert [(one.path, one.why) for one in made.left_out] == [
        ("state", "it is the state directory")
    ]


def test_a_git_repository_works_in_the_copy(original: Path) -> None:
    git(original, "init", "-q")
    (original / "file").write_text("one\n")
    git(original, "add", "-A")
    git(original, "commit", "-qm", "first")
    copy, _ = copied(original)

    assert git(copy, "status", "--short") == ""
    (copy / "file").write_text("two\n")
    git(copy, "commit", "-qam", "second")
    assert len(git(copy, "log", "--oneline").splitlines()) == 2
    assert len(git(original, "log", "--oneline").splitlines()) == 1


def test_a_folder_that_is_too_large_is_refused_and_nothing_is_left(original: Path) -> None:
    for number in range(10):
        (original / str(number)).write_bytes(bytes([number]) * 10_000)
    place = place_for(original, most=50_000)

    with pytest.raises(match=r"more than 48\.8 KiB"):
        place.prepare(lambda: False)
    assert_nothing_left(place)


def test_a_copy_that_is_stopped_leaves_nothing(original: Path) -> None:
    grow(original, random.Random(1), 200)
    place, calls = place_for(original), iter(range(100))

    with pytest.raises(Stopped):
        place.prepare(lambda: next(calls, None) is None)
    assert_nothing_left(place)


def test_a_large_file_is_stopped_in_its_midst(original: Path) -> None:
    (original / "large").write_bytes(bytes(range(256)) * 64 * 1024)
    place, calls = place_for(original), iter(range(8))

    with pytest.raises(Stopped):
        place.prepare(lambda: next(calls, None) is None)
    assert_nothing_left(place)


def test_a_folder_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    place = place_for(tmp_path / "original")

    with pytest.raises(HostError) as refused:
        place.prepare(lambda: False)
    assert refused.value.code == "E-HOST-040"
    assert_nothing_left(place)


def test_files_that_are_swapped_for_links_meanwhile_are_never_followed(
    original: Path, tmp_path: Path
) -> None:
    """Whoever can write there may flip folders and files to links as often as they like."""
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "file").write_text("secret")
    for number in range(20):
        (original / f"folder{number}").mkdir()
        (original / f"folder{number}/file").write_text("fine")
    over = threading.Event()

    def flip() -> None:
        while not over.is_set():
            for number in range(20):
                place = original / f"folder{number}"
                place.rename(original / "aside")
                place.symlink_to(secret)
                place.unlink()
                (original / "aside").rename(place)
                (place / "file").unlink()
                (place / "file").symlink_to(secret / "file")
                (place / "file").unlink()
                (place / "file").write_text("fine")

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(30):
            copy, _ = copied(original)
            read = [p.read_text() for p in copy.rglob("*") if p.is_file() and not p.is_symlink()]
            assert "secret" not in read
            assert not any(parent.is_symlink() for p in copy.rglob("*") for parent in p.parents)
            assert place_for(original).discard()
    finally:
        over.set()
        flipping.join()


def test_an_unfinished_copy_has_no_index(original: Path) -> None:
    assert load_index(original / "work.index") is None


@needs_mounts
def test_a_full_disk_is_told_and_nothing_is_left(original: Path, tmp_path: Path) -> None:
    """In a mount namespace of its own, where the state directory is very small."""
    (original / "large").write_bytes(os.urandom(3 * 1024 * 1024))
    child = (
        "import os, sys\nfrom pathlib import Path\n"
        "from capsule_runtime.errors import HostError\n"
        "from capsule_runtime.host.workroom import Workroom\n"
        "state = Path(sys.argv[2])\nfolder = state / 'runs/run_1'\nfolder.mkdir(parents=True)\n"
        "place = Workroom('copy', Path(sys.argv[1]), folder, state, 1e18)\n"
        "try:\n    place.prepare(lambda: False)\n"
        "except HostError as error:\n    print(error.code, 'No space' in error.message)\n"
        "print(os.listdir(folder), os.listdir(state / 'trash'))\n"
    )
    (tmp_path / "small").mkdir()
    words = f'mount -t tmpfs -o size=1m none "{tmp_path}/small" && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "-rm", "sh", "-c", words, "sh"),
            *(sys.executable, "-c", child, str(original), str(tmp_path / "small")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "E-HOST-040 True\n[] []\n", done.stderr
