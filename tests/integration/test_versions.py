"""Which harness is installed: `capsule drivers`, ranges in a manifest, versions nobody tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command import ADVISORY, Command
from support.drivers import install_drivers

GREETER = """
echo asked >> "{asked}"
if [ "$1" = --version ]; then {says}; exit; fi
read task
echo '{{"type":"turn-end","result":"hello"}}'
"""
RUN = ("run", "--driver", "greeter", "--task", "hi", *ADVISORY)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    found = Command(tmp_path)
    found.env["PYTHONPATH"] = f"{install_drivers(tmp_path / 'drivers')}:{Path(__file__).parents[1]}"
    return found


def install(command: Command, says: str = "echo greeter 1.2.3") -> Path:
    """Install a greeter that *says* its version so; return where it writes when it is started."""
    asked = command.folder / "work" / "asked"
    asked.parent.mkdir(exist_ok=True)
    command.install("greeter", GREETER.format(asked=asked, says=says))
    return asked


def seen(command: Command) -> dict[str, Any]:
    drivers = json.loads(command("drivers", "--json").out)
    greeter: dict[str, Any] = drivers["greeter"]
    return greeter


def manifest(command: Command, harness: str) -> str:
    folder = command.folder / "capsule"
    folder.mkdir(exist_ok=True)
    (folder / "capsule.toml").write_text(f'name = "c"\n[harness]\n{harness}\n')
    return str(folder)


# What is installed


def test_an_installed_harness_is_shown_with_its_version(command: Command) -> None:
    install(command)
    table = command("drivers").out

    assert (seen(command)["version"], seen(command)["tested"]) == ("1.2.3", True)
    (row,) = [line for line in table.splitlines() if line.startswith("greeter")]
    assert row.split()[:4] == ["greeter", "1.2.3", "yes", "per-call"]
    assert row.endswith("/programs/bin/greeter")


def test_a_harness_that_is_not_installed_is_shown_with_what_installs_it(command: Command) -> None:
    table = command("drivers").out

    assert seen(command)["program"] is None
    assert "not installed" in table
    assert "install The Greeter: apt-get install greeter" in table


def test_a_broken_driver_hides_no_other(command: Command) -> None:
    install(command)
    drivers = json.loads(command("drivers", "--json").out)

    assert "LookupError" not in drivers["jsonl"]
    assert drivers["broken"] == {"broken": "LookupError: a mistake in describe"}


def test_a_harness_is_asked_once_and_again_when_it_is_another(command: Command) -> None:
    asked = install(command)
    first = [seen(command)["version"], seen(command)["version"]]
    times = len(asked.read_text().splitlines())
    install(command, "echo greeter 1.3.0")
    then = seen(command)

    assert (first, times) == (["1.2.3", "1.2.3"], 1)
    assert (then["version"], then["tested"]) == ("1.3.0", False)


def test_a_launch_remembers_for_a_while_that_a_harness_told_no_version(command: Command) -> None:
    install(command, f"echo probed >> {command.folder}/probed; echo no idea")
    for _ in range(3):
        assert command(*RUN, "--workdir", "work").status == 0

    assert (command.folder / "probed").read_text() == "probed\n"


@pytest.mark.parametrize("age", [-3600, 3600], ids=["an hour ago", "of a clock that was set back"])
def test_it_is_not_remembered_for_ever(command: Command, age: int) -> None:
    install(command, f"echo probed >> {command.folder}/probed; echo no idea")
    command(*RUN, "--workdir", "work")
    (kept,) = (command.folder / "state/cache/versions").iterdir()
    kept.write_bytes(b"?%d" % (int(kept.read_bytes()[1:]) + age))
    command(*RUN, "--workdir", "work")

    assert (command.folder / "probed").read_text() == "probed\n" * 2


def test_who_looks_at_the_drivers_has_it_asked_again(command: Command) -> None:
    mended = command.folder / "mended"
    install(command, f"[ -e {mended} ] && echo 1.2.3")
    command(*RUN, "--workdir", "work")
    mended.touch()

    assert seen(command)["version"] == "1.2.3"


def test_what_is_remembered_refuses_no_launch(command: Command) -> None:
    mended = command.folder / "mended"
    install(command, f"[ -e {mended} ] && echo 1.2.3")
    capsule = manifest(command, 'driver = "greeter"\nversion = ">=1.2"')
    run = ("run", capsule, "--task", "hi", "--workdir", "work", *ADVISORY)
    refused = command(*run).status
    mended.touch()

    assert (refused, command(*run).status) == (8, 0)


@pytest.mark.parametrize("says", ["echo 1.2.3 >&2", "echo has no 9.9.9 >&2; echo 1.2.3"])
def test_stderr_is_read_only_of_a_harness_that_says_nothing_else(
    command: Command, says: str
) -> None:
    install(command, says)

    assert seen(command)["version"] == "1.2.3"


@pytest.mark.parametrize("says", ["echo no idea", "kill $$", "head -c 1M /dev/zero"])
def test_a_harness_that_tells_no_version_is_still_there(command: Command, says: str) -> None:
    install(command, says)

    assert (seen(command)["version"], seen(command)["tested"]) == (None, None)
    assert seen(command)["program"].endswith("/greeter")


def test_a_harness_that_is_asked_has_a_home_of_its_own_and_no_variables(command: Command) -> None:
    install(command, 'echo "$HOME|$SECRET" > "$(dirname "$0")/found"; echo 1.2.3')
    command.env["SECRET"] = "s"
    seen(command)
    home, _, secret = (command.folder / "programs/bin/found").read_text().strip().partition("|")

    assert home != str(command.folder) and not Path(home).exists()
    assert secret == ""


# At a launch


def test_a_missing_harness_is_refused_with_what_installs_it(command: Command) -> None:
    done = command(*RUN)

    assert done.status == 8
    assert "hint: Install it: apt-get install greeter" in done.err


def test_a_version_that_nobody_tested_is_told_and_noted(command: Command) -> None:
    install(command, "echo greeter 9.9.9")
    done = command(*RUN, "--workdir", "work")
    log = command("logs", "@last", "--facts", "--json").out

    assert done.status == 0
    assert "note: The Greeter 9.9.9 has not been tested with its driver" in done.err
    assert '"version":"9.9.9"' in log and "has not been tested" in log


def test_beside_frames_such_a_version_is_a_warning_on_stderr(command: Command) -> None:
    install(command, "echo greeter 9.9.9")
    done = command(*RUN, "--workdir", "work", "--format", "jsonl")

    assert done.err == "warning: The Greeter 9.9.9 has not been tested with its driver\n"
    assert {frame["type"] for frame in done.frames} >= {"status"}
    assert "tested" not in done.out


def test_beside_the_answer_alone_too(command: Command) -> None:
    install(command, "echo greeter 9.9.9")
    done = command(*RUN, "--workdir", "work", "--format", "quiet")

    assert done.err == "warning: The Greeter 9.9.9 has not been tested with its driver\n"
    assert done.out == "hello\n"


def test_who_leaves_a_run_to_itself_is_told_too(command: Command) -> None:
    install(command, "echo greeter 9.9.9")
    done = command(*RUN, "--workdir", "work", "--detach")

    assert done.err == "warning: The Greeter 9.9.9 has not been tested with its driver\n"
    assert command("wait", done.out.strip()).status == 0


def test_beside_frames_a_tested_version_is_no_matter(command: Command) -> None:
    install(command)

    assert command(*RUN, "--workdir", "work", "--format", "jsonl").err == ""


def test_a_tested_version_is_nothing_to_talk_about(command: Command) -> None:
    install(command)
    done = command(*RUN, "--workdir", "work")

    assert done.status == 0
    assert "tested" not in done.err


def test_a_capsule_may_want_a_range_of_versions(command: Command) -> None:
    install(command)
    good = manifest(command, 'driver = "greeter"\nversion = ">=1.2,<2"')
    fits = command("run", good, "--task", "hi", "--workdir", "work", *ADVISORY)
    bad = manifest(command, 'driver = "greeter"\nversion = ">=2"')
    refused = command("run", bad, "--task", "hi", *ADVISORY)

    assert (fits.status, refused.status) == (0, 8)
    assert "error[E-HAR-007]" in refused.err
    assert "wants The Greeter >=2" in refused.err and "is version 1.2.3" in refused.err


def test_what_a_capsule_brings_is_not_run_to_ask_for_its_version(command: Command) -> None:
    asked = install(command)
    capsule = manifest(command, 'driver = "greeter"\ncommand = ["greeter"]\nversion = ">=1"')
    done = command("run", capsule, "--task", "hi", *ADVISORY)

    assert done.status == 2
    assert "error[E-MAN-006]" in done.err
    assert not asked.exists()


def test_the_plan_has_the_version(command: Command) -> None:
    install(command, "echo greeter 9.9.9")
    plan = json.loads(command(*RUN, "--explain", "--json").out)

    assert plan["harness_version"] == "9.9.9"
    assert "The Greeter 9.9.9 has not been tested with its driver" in plan["caveats"]
