"""Changes applied to an original: all or none, and nowhere else, whoever is at work there."""

from __future__ import annotations

import io
import os
import random
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capsule_runtime.errors import HostError, UsageError
from capsule_runtime.host.apply_changes import Target
from capsule_runtime.host.apply_target import opened_target
from capsule_runtime.host.changes import Change
from capsule_runtime.host.kept_changes import Kept
from capsule_runtime.host.staging import MovedOn
from capsule_runtime.host.workroom import Workroom
from support.trees import Tree, change, grow, tree_of

STAGE = ".capsule-apply-test"


class Bench:
    """An original, a copy of it to change, and both brought together."""

    def __init__(self, folder: Path) -> None:
        self.original, self.state = folder / "original", folder / "state"
        self.original.mkdir()
        run = self.state / "runs" / "run_1"
        run.mkdir(parents=True)
        self.place = Workroom("copy", self.original, run, self.state, 1e18)
        self.kept = Kept(run)
        self.copy = self.place.place

    def make_copy(self) -> None:
        self.place.prepare(lambda: False)

    def collect(self) -> list[tuple[int, Change]]:
        self.place.collect(lambda: False)
        changes = self.kept.load()
        assert changes is not None
        return [*enumerate(changes.changes)]

    @contextmanager
    def target(self) -> Generator[Target]:
        changes = self.kept.load()
        assert changes is not None
        with opened_target(str(self.original), changes.device, changes.inode, STAGE) as target:
            yield target

    def apply(self) -> None:
        numbered = self.collect()
        with self.target() as target, self.kept.blobs.open("rb") as blobs:
            if paths := target.differing(numbered):
                raise MovedOn(paths)
            target.apply(numbered, blobs)
            target.finish()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def seen(top: Path) -> Tree:
    return tree_of(top, modes=False)


@pytest.mark.parametrize("seed", range(60))
def test_the_original_becomes_what_the_copy_is(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    grow(bench.original, chance)
    bench.make_copy()
    change(bench.copy, chance)
    bench.apply()

    assert seen(bench.original) == seen(bench.copy)


def test_what_is_new_has_the_callers_umask_and_what_was_there_keeps_its_mode(bench: Bench) -> None:
    (bench.original / "private").write_text("a")
    (bench.original / "private").chmod(0o600)
    (bench.original / "plain").write_text("a")
    bench.make_copy()
    (bench.copy / "private").write_text("b")
    (bench.copy / "plain").chmod(0o777)
    (bench.copy / "new").write_text("n")
    (bench.copy / "new").chmod(0o777)
    (bench.copy / "folder").mkdir(0o700)
    (bench.copy / "folder/file").write_text("f")
    before = os.umask(0o027)
    try:
        bench.apply()
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(bench.original)): stat.S_IMODE(path.stat().st_mode)
        for path in bench.original.rglob("*")
    }

    assert modes == {
        "private": 0o600,
        "plain": 0o754,
        "new": 0o750,
        "folder": 0o750,
        "folder/file": 0o640,
    }
    assert {path.stat().st_uid for path in bench.original.rglob("*")} == {os.geteuid()}


def replace_by_link(top: Path) -> None:
    (top / "changed").unlink()
    (top / "changed").symlink_to("other")


def empty_the_folder(top: Path) -> None:
    (top / "folder/inner").unlink()
    (top / "folder").rmdir()


def move_behind_a_link(top: Path) -> None:
    (top / "folder").rename(top / "moved")
    (top / "folder").symlink_to("moved")


def link_where_a_folder_comes(top: Path) -> None:
    (top / "fresh").symlink_to("/tmp")


def file_where_a_folder_comes(top: Path) -> None:
    (top / "fresh").touch()


def edit_the_changed(top: Path) -> None:
    (top / "changed").write_text("changed by its owner")


def remove_the_changed(top: Path) -> None:
    (top / "changed").unlink()


def edit_the_removed(top: Path) -> None:
    (top / "removed").write_text("needed after all")


def take_the_place(top: Path) -> None:
    (top / "new").write_text("mine")


def let_it_run(top: Path) -> None:
    (top / "changed").chmod(0o755)


@pytest.mark.parametrize(
    "meddle",
    [
        edit_the_changed,
        edit_the_removed,
        empty_the_folder,
        file_where_a_folder_comes,
        let_it_run,
        link_where_a_folder_comes,
        move_behind_a_link,
        remove_the_changed,
        replace_by_link,
        take_the_place,
    ],
)
def test_an_original_that_moved_on_is_left_as_it_is(
    bench: Bench, meddle: Callable[[Path], None]
) -> None:
    for name in ("changed", "removed", "other"):
        (bench.original / name).write_text(name)
    (bench.original / "folder").mkdir()
    (bench.original / "folder/inner").write_text("inner")
    bench.make_copy()
    (bench.copy / "changed").write_text("changed by the run")
    (bench.copy / "removed").unlink()
    (bench.copy / "new").write_text("new")
    (bench.copy / "folder/inner").write_text("changed too")
    (bench.copy / "fresh").mkdir()
    (bench.copy / "fresh/file").write_text("fresh")
    meddle(bench.original)
    before = tree_of(bench.original)

    with pytest.raises(MovedOn):
        bench.apply()
    assert tree_of(bench.original) == before


def test_other_files_may_change_meanwhile(bench: Bench) -> None:
    (bench.original / "a").write_text("a")
    (bench.original / "b").write_text("b")
    bench.make_copy()
    (bench.copy / "a").write_text("new")
    (bench.original / "b").write_text("edited")
    bench.apply()

    assert (bench.original / "a").read_text() == "new"
    assert (bench.original / "b").read_text() == "edited"


def test_a_touched_original_is_still_what_was_copied(bench: Bench) -> None:
    (bench.original / "a").write_text("a")
    bench.make_copy()
    (bench.copy / "a").write_text("new")
    numbered = bench.collect()
    os.utime(bench.original / "a")
    with bench.target() as target:
        assert target.differing(numbered) == []


def test_a_change_between_the_look_and_the_act_is_put_back(bench: Bench) -> None:
    for number in range(5):
        (bench.original / str(number)).write_text("old")
    bench.make_copy()
    for number in range(5):
        (bench.copy / str(number)).write_text("new")
    numbered = bench.collect()
    with bench.target() as target, bench.kept.blobs.open("rb") as blobs:
        assert target.differing(numbered) == []
        (bench.original / "3").write_text("just saved")
        before = tree_of(bench.original)
        with pytest.raises(MovedOn) as moved:
            target.apply(numbered, blobs)

    assert moved.value.paths == ("3",)
    assert tree_of(bench.original) == before


class Interrupted(io.BytesIO):
    """Contents in whose midst somebody presses Ctrl-C."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 6:
            raise KeyboardInterrupt
        return super().read(size)


def test_an_interrupt_in_the_midst_undoes_all(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        (bench.original / name).write_text("old")
    bench.make_copy()
    for name in ("a", "b", "c"):
        (bench.copy / name).write_text("new")
    numbered, before = bench.collect(), tree_of(bench.original)
    with bench.target() as target, pytest.raises(KeyboardInterrupt):
        target.apply(numbered, Interrupted(bench.kept.blobs.read_bytes()))

    assert tree_of(bench.original) == before


def test_a_disk_that_refuses_in_the_midst_undoes_all(bench: Bench) -> None:
    (bench.original / "a").write_text("old")
    bench.make_copy()
    (bench.copy / "a").write_text("new")
    (bench.copy / "b").write_text("new")
    numbered = bench.collect()
    bench.kept.blobs.write_bytes(b"")
    before = tree_of(bench.original)
    with bench.target() as target, bench.kept.blobs.open("rb") as blobs:
        with pytest.raises(HostError) as refused:
            target.apply(numbered, blobs)

    assert refused.value.code == "E-HOST-042"
    assert tree_of(bench.original) == before


@pytest.mark.parametrize("seed", range(8))
def test_what_a_kill_left_is_undone_by_the_next_one(bench: Bench, seed: int) -> None:
    """As SIGKILL leaves it after any step: the stage is there, and some files are in their place."""
    grow(bench.original, random.Random(seed))
    bench.make_copy()
    change(bench.copy, random.Random(seed))
    numbered, before = bench.collect(), seen(bench.original)
    for steps in range(3 * len(numbered)):
        with bench.target() as target, bench.kept.blobs.open("rb") as blobs:
            applying = target.steps(numbered, blobs)
            for _ in zip(range(steps), applying, strict=False):
                pass
            applying.close()
        with bench.target() as target:
            target.undo(numbered)
            assert not target.is_staged

        assert seen(bench.original) == before
    bench.apply()
    assert seen(bench.original) == seen(bench.copy)


def test_another_folder_of_the_same_name_is_refused(bench: Bench) -> None:
    (bench.original / "a").write_text("a")
    bench.make_copy()
    bench.collect()
    bench.original.rename(bench.original.with_name("elsewhere"))
    bench.original.mkdir()

    with pytest.raises(UsageError) as refused, bench.target():
        pass
    assert refused.value.code == "E-USE-073"


def test_links_that_are_swapped_in_meanwhile_never_lead_out(bench: Bench, tmp_path: Path) -> None:
    """Somebody who can write there flips a folder to a link that leads out, all the time."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (bench.original / "folder").mkdir()
    (bench.original / "folder/file").write_text("old")
    bench.make_copy()
    (bench.copy / "folder/file").write_text("new")
    (bench.copy / "folder/other").write_text("new")
    numbered = bench.collect()
    over = threading.Event()

    def flip() -> None:
        folder, aside = bench.original / "folder", bench.original / "aside"
        while not over.is_set():
            folder.rename(aside)
            folder.symlink_to(outside)
            folder.unlink()
            aside.rename(folder)

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(150):
            with bench.target() as target, bench.kept.blobs.open("rb") as blobs:
                try:
                    if not target.differing(numbered):
                        target.apply(numbered, blobs)
                except (MovedOn, HostError):
                    pass
                _undo_surely(target, numbered)
    finally:
        over.set()
        flipping.join()

    assert list(outside.iterdir()) == []
    assert (bench.original / "folder/file").read_text() == "old"


def _undo_surely(target: Target, numbered: list[tuple[int, Change]]) -> None:
    """Undo what was applied, however often the way is gone just then."""
    while target.is_staged:
        try:
            target.undo(numbered)
        except HostError:
            continue
