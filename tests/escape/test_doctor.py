"""`capsule doctor` says what is true: the walls it says hold are those the other tests try."""

from __future__ import annotations

import json
import os
import subprocess

from msgspec.structs import replace

from capsule_runtime.core.diagnosis import DONE, Trial, judge
from capsule_runtime.core.machine import Hierarchies, Machine
from capsule_runtime.diagnosing import examine
from capsule_runtime.host.machine import find_machine
from support.command import PROGRAM

ALL: tuple[str, ...] = (
    "read-outside",
    "write-outside",
    "signal-parent",
    "regain-capability",
    "setuid-program",
    "raise-limit",
    "inherit-descriptor",
    "exceed-processes",
    "exceed-memory",
)


def verdicts(trials: tuple[Trial, ...]) -> dict[str, str]:
    return {trial.name: trial.verdict for trial in trials}


def expected(machine: Machine) -> dict[str, str]:
    """Return what the machine has, as the other tests of this folder decide it."""
    has = {
        "read-outside": machine.landlock_abi >= 1,
        "write-outside": machine.landlock_abi >= 1,
        "signal-parent": machine.landlock_abi >= 6,
        "regain-capability": machine.is_root,
        "setuid-program": machine.is_root,
        "raise-limit": True,
        "inherit-descriptor": True,
        "exceed-processes": bool(machine.cgroups.processes),
        "exceed-memory": bool(machine.cgroups.memory),
    }
    return {name: "held" if it else "not here" for name, it in has.items()}


def test_what_holds_here() -> None:
    machine = find_machine()

    assert verdicts(examine().trials) == expected(machine)


def test_a_machine_without_cgroups_is_told_so_and_what_helps() -> None:
    machine = replace(find_machine(), cgroups=Hierarchies(why="none is mounted"))

    diagnosis = examine(machine)

    found = {trial.name: trial for trial in diagnosis.trials}
    assert verdicts(diagnosis.trials) == expected(machine)
    assert "none is mounted" in found["exceed-memory"].why
    assert "Delegate=yes" in found["exceed-processes"].fix
    assert {one.axis for one in diagnosis.missing} >= {"resources.memory", "resources.processes"}


def test_a_wall_that_does_not_hold_is_not_said_to() -> None:
    told = dict.fromkeys(ALL, (DONE, DONE))

    assert set(verdicts(judge(told, Machine())).values()) == {"not held"}


def test_what_cannot_be_done_without_the_wall_proves_nothing() -> None:
    told = dict.fromkeys(ALL, ("refused: no", "refused: no"))

    assert set(verdicts(judge(told, Machine())).values()) == {"not here"}


def test_the_command_says_the_same_and_leaves_nothing() -> None:
    with subprocess.Popen([PROGRAM, "doctor", "--json"], stdout=subprocess.PIPE) as doctor:
        assert doctor.stdout is not None
        told = json.loads(doctor.stdout.read())
    text = subprocess.run([PROGRAM, "doctor"], capture_output=True, check=True, text=True).stdout

    found = {trial["name"]: trial["verdict"] for trial in told["trials"]}
    assert found == expected(find_machine())
    assert "read a file outside" in text
    for place in find_machine().cgroups.places:
        assert [name for name in os.listdir(place) if f"-{doctor.pid}-" in name] == []
