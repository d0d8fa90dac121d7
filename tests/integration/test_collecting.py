"""What a run changed in its copy: all of it, in a patch that git takes, whatever the run left there."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule_runtime.core.work import Tally, WorkChanges
from capsule_runtime.host import changes as limits
from capsule_runtime.host.filling import Stopped
from capsule_runtime.host.kept_changes import Changes, Kept
from capsule_runtime.host.workroom import Workroom
from support.trees import apply_with_git, change, git, grow, tree_of


class Bench:
    """An original, and a copy of it to do something to."""

    def __init__(self, folder: Path, fill: Callable[[Path], object]) -> None:
        self.original, self.state = folder / "original", folder / "state"
        self.original.mkdir()
        fill(self.original)
        run = self.state / "runs" / "run_1"
        run.mkdir(parents=True)
        self.place = Workroom("copy", self.original, run, self.state, 1e18)
        self.place.prepare(lambda: False)
        self.kept = Kept(run)
        self.copy = self.place.place

    def collect(self) -> WorkChanges:
        found = self.place.collect(lambda: False)
        assert found is not None
        return found

    @property
    def changes(self) -> Changes:
        changes = self.kept.load()
        assert changes is not None
        return changes

    @property
    def left_out(self) -> dict[bytes, str]:
        return dict(self.changes.left_out)


def two_files(top: Path) -> None:
    (top / "a").write_text("one\ntwo\n")
    (top / "b").write_text("three\n")


@pytest.mark.parametrize("seed", range(60))
def test_git_makes_the_copy_out_of_the_original(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(tmp_path, lambda top: grow(top, chance))
    change(bench.copy, chance)
    found = bench.collect()
    apply_with_git(bench.kept.patch, bench.original)

    assert tree_of(bench.original, modes=False) == tree_of(bench.copy, modes=False)
    assert (found.left_out, found.is_cut) == ((), False)


def test_nothing_changed_is_nothing_to_apply(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)

    assert bench.collect() == WorkChanges(Tally())
    assert bench.kept.patch.read_bytes() == b""


def test_a_touched_file_has_not_changed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    os.utime(bench.copy / "a")
    (bench.copy / "b").write_text("three\n")

    assert bench.collect().tally == Tally()


def test_a_change_is_found_whatever_its_size_and_date_say(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    status = (bench.copy / "a").stat()
    with (bench.copy / "a").open("r+b") as file:
        file.write(b"ONE")
    os.utime(bench.copy / "a", ns=(status.st_atime_ns, status.st_mtime_ns))

    assert bench.collect().tally == Tally(changed=1)


def test_files_of_the_repository_are_kept_apart(tmp_path: Path) -> None:
    def fill(top: Path) -> None:
        two_files(top)
        git(top, "init", "-q")
        git(top, "add", "-A")
        git(top, "commit", "-qm", "one")

    bench = Bench(tmp_path, fill)
    (bench.copy / "a").write_text("other\n")
    git(bench.copy, "commit", "-qam", "two")
    found = bench.collect()

    assert found.tally == Tally(changed=1)
    assert found.internal > 3
    assert b".git" not in bench.kept.patch.read_bytes()


def test_hooks_filters_and_monitors_of_a_hostile_tree_never_run(tmp_path: Path) -> None:
    """Nothing of the tree is given to git, so there is nothing that could run."""
    witness = tmp_path / "witness"

    def fill(top: Path) -> None:
        git(top, "init", "-q")
        two_files(top)
        git(top, "add", "-A")
        git(top, "commit", "-qm", "one")

    bench = Bench(tmp_path, fill)
    act = f"touch {witness}"
    with (bench.copy / ".git/config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "{act}"\n\tpager = "{act}"\n')
        config.write(f'[filter "x"]\n\tclean = "{act}"\n\tsmudge = "{act}"\n')
        config.write(f'[diff "x"]\n\ttextconv = "{act}"\n\tcommand = "{act}"\n')
    (bench.copy / ".gitattributes").write_text("* filter=x diff=x\n")
    (bench.copy / ".git/hooks/post-index-change").write_text(f"#!/bin/sh\n{act}\n")
    (bench.copy / ".git/hooks/post-index-change").chmod(0o755)
    (bench.copy / "a").write_text("other\n")
    found = bench.collect()

    assert not witness.exists()
    assert found.tally == Tally(added=1, changed=1)
    assert {one.path for one in found.warned} == {
        ".git/config",
        ".git/hooks/post-index-change",
        ".gitattributes",
    }


def test_what_is_no_file_is_left_out_and_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (bench.copy / "a").unlink()
    os.mkfifo(bench.copy / "a")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bench.copy / "socket"))
        found = bench.collect()

    assert set(bench.left_out) == {b"a", b"socket"}
    assert found.left_out_count == 2
    assert found.tally == Tally()


def test_a_file_with_another_name_is_never_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    secret = tmp_path / "secret"
    secret.write_text("not for the patch")
    os.link(secret, bench.copy / "stolen")
    (bench.copy / "b").unlink()
    os.link(secret, bench.copy / "b")
    found = bench.collect()

    assert b"not for the patch" not in bench.kept.patch.read_bytes()
    assert b"not for the patch" not in bench.kept.blobs.read_bytes()
    assert set(bench.left_out) == {b"stolen", b"b"}
    assert found.tally == Tally()


def test_links_are_collected_as_links(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (tmp_path / "secret").write_text("not for the patch")
    (bench.copy / "b").unlink()
    (bench.copy / "b").symlink_to(tmp_path / "secret")
    (bench.copy / "folder").symlink_to("/")
    found = bench.collect()

    assert found.tally == Tally(added=1, changed=1)
    assert b"not for the patch" not in bench.kept.blobs.read_bytes()
    assert [(one.path, one.target) for one in bench.changes.changes] == [
        (b"b", os.fsencode(tmp_path / "secret")),
        (b"folder", b"/"),
    ]


def test_folders_and_files_that_were_closed_are_opened(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (bench.copy / "closed").mkdir()
    (bench.copy / "closed/file").write_text("x")
    (bench.copy / "closed/file").chmod(0)
    (bench.copy / "closed").chmod(0)
    found = bench.collect()

    assert found.tally == Tally(added=1)
    assert bench.place.discard()


def test_what_lies_too_deep_is_left_out_and_removed_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    here = os.open(bench.copy, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    found = bench.collect()

    assert [one.why for one in found.left_out] == ["its path is too long"]
    assert found.tally == Tally()
    assert bench.place.discard()


def test_many_small_files_are_all_collected(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (bench.copy / "many").mkdir()
    for number in range(3000):
        (bench.copy / f"many/{number}").touch()

    assert bench.collect().tally == Tally(added=3000)


def test_more_entries_than_are_looked_at_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_ENTRIES_MORE", 50)
    bench = Bench(tmp_path, two_files)
    for number in range(100):
        (bench.copy / f"new{number}").touch()
    (bench.copy / "a").unlink()
    found = bench.collect()

    assert found.is_cut
    assert found.tally is not None
    assert found.tally.removed == 0


def test_a_file_that_is_too_large_is_left_out_though_it_takes_no_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    with (bench.copy / "sparse").open("wb") as file:
        file.truncate(2**40)
    found = bench.collect()

    assert bench.left_out == {b"sparse": "it is too large to be collected"}
    assert found.is_cut
    assert found.tally == Tally()


def test_a_large_file_is_collected_in_pieces(tmp_path: Path) -> None:
    chance = random.Random(1)
    bench = Bench(tmp_path, lambda top: (top / "large").write_bytes(chance.randbytes(3_000_000)))
    (bench.copy / "large").write_bytes(chance.randbytes(4_000_000))
    (bench.copy / "text").write_bytes(b"a line of text\n" * 200_000)
    bench.collect()
    apply_with_git(bench.kept.patch, bench.original)

    assert tree_of(bench.original, modes=False) == tree_of(bench.copy, modes=False)


def test_an_original_that_moved_on_meanwhile_is_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (bench.original / "a").write_text("changed by its owner\n")
    (bench.copy / "a").write_text("changed by the run\n")
    bench.collect()
    (change_of_a,) = bench.changes.changes

    assert change_of_a.moved_on
    assert bench.kept.patch.read_bytes().startswith(b"The original of a has changed meanwhile.\n")


def test_a_collection_can_be_stopped_and_done_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, two_files)
    (bench.copy / "a").write_text("x")
    calls = iter(range(2))
    with pytest.raises(Stopped):
        bench.place.collect(lambda: next(calls, None) is None)

    assert bench.kept.load() is None
    assert bench.collect().tally == Tally(changed=1)
    assert bench.collect().tally == Tally(changed=1)


def test_links_that_are_swapped_in_meanwhile_lead_nowhere(tmp_path: Path) -> None:
    """Nothing lives there when it is collected; and if something did, it would gain nothing."""
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "file").write_text("not for the patch")
    bench = Bench(tmp_path, two_files)
    (bench.copy / "folder").mkdir()
    (bench.copy / "folder/file").write_text("fine")
    over = threading.Event()

    def flip() -> None:
        folder, aside = bench.copy / "folder", bench.copy / "aside"
        while not over.is_set():
            folder.rename(aside)
            folder.symlink_to(secret)
            folder.unlink()
            aside.rename(folder)
            (folder / "file").rename(folder / "was")
            (folder / "file").symlink_to(secret / "file")
            (folder / "file").unlink()
            (folder / "was").rename(folder / "file")

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(100):
            bench.collect()
            assert b"not for the patch" not in bench.kept.blobs.read_bytes()
            bench.kept.index.unlink()
    finally:
        over.set()
        flipping.join()
