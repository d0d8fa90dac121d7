"""A capsule that a run's user cannot reach is copied for it, and nobody else can read the copy."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule_runtime.host.capsule import Capsule, Places, load_capsule
from capsule_runtime.host.run_users import FIRST
from capsule_runtime.host.showing import remove_copies, show
from capsule_runtime.host.state import places_of
from support.command import HELLO, Command

USER = FIRST + 5

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def place() -> Generator[Path]:
    """Return a folder that others can enter."""
    folder = Path(tempfile.mkdtemp(prefix="showing-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "state").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def capsule(place: Path) -> Capsule:
    return load_capsule(Path(Command(place).capsule(HELLO)))


def places(place: Path) -> Places:
    """Return the places of a run, with an agent's helper that anybody can read."""
    agent = place / "agent"
    agent.mkdir()
    (agent / "module.py").write_text("")
    return replace(places_of(place / "state", "run_1", "c", place, "copy"), agent=agent)


def shown(capsule: Capsule, places: Places, place: Path) -> tuple[Path, Path]:
    capsule, places = show(capsule, places, place / "state", USER)
    return capsule.folder, places.agent


def test_what_anybody_can_read_stays_where_it_is(capsule: Capsule, place: Path) -> None:
    found = shown(capsule, places(place), place)

    assert found == (capsule.folder, place / "agent")
    assert not (place / "state/runs").exists()


@pytest.mark.parametrize("closed", ["capsule", "capsule/harness.sh"])
def test_a_closed_folder_or_file_is_enough_for_a_copy(
    capsule: Capsule, place: Path, closed: str
) -> None:
    (place / closed).chmod(0o700)

    copy, agent = shown(capsule, places(place), place)

    assert (copy, agent) == (place / "state/runs/run_1/capsule", place / "agent")
    assert (copy / "harness.sh").read_text() == HELLO


def test_the_copy_is_root_s_and_its_user_can_read_it(capsule: Capsule, place: Path) -> None:
    (place / "capsule/harness.sh").chmod(0o600)
    (place / "capsule/link").symlink_to("harness.sh")

    copy, _ = shown(capsule, places(place), place)

    for path, mode in ((copy, 0o750), (copy / "harness.sh", 0o640)):
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, USER, mode)
    assert os.readlink(copy / "link") == "harness.sh"
    assert (place / "capsule/harness.sh").stat().st_mode & 0o777 == 0o600


def test_what_helps_agents_is_copied_too(capsule: Capsule, place: Path) -> None:
    there = places(place)
    there.agent.chmod(0o700)

    _, agent = shown(capsule, there, place)

    assert agent == place / "state/runs/run_1/agent"
    assert (agent / "module.py").exists()


def test_what_lies_outside_is_copied_by_no_link(capsule: Capsule, place: Path) -> None:
    (place / "secret").write_text("canary")
    (place / "capsule").chmod(0o700)
    (place / "capsule/link").symlink_to(place / "secret")

    copy, _ = shown(capsule, places(place), place)

    assert (copy / "link").is_symlink()


def test_the_copies_are_removed(capsule: Capsule, place: Path) -> None:
    (place / "capsule").chmod(0o700)
    copy, _ = shown(capsule, places(place), place)

    remove_copies(copy.parent)

    assert not copy.parent.exists()
