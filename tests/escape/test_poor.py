"""Machines on which much is missing: a run is contained as the doctor says, or refused with the reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import PROGRAM
from support.harness import shell_capsule

pytestmark = [
    pytest.mark.usefixtures("namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can take things from a machine"),
]

READ_ONLY = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"
MASKED = "mount -t tmpfs none /proc/irq && mount --bind /dev/null /proc/timer_list"
POOR = {
    "few files": "ulimit -Sn 128 && ulimit -Hn 128",
    "few processes": "ulimit -Su 200 && ulimit -Hu 200",
    "small files": "ulimit -Sf 100000 && ulimit -Hf 100000",
    "read-only settings": READ_ONLY,
    "covered processes": MASKED,
    "both": f"{READ_ONLY} && {MASKED}",
}
SAYS = 'echo \'{"type":"turn-end","result":"it ran"}\'\n'


def on_a_poor_machine(
    folder: Path, poor: str, *words: str, wrapper: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `capsule` with *words* in a view of the machine from which something was taken."""
    command = [
        "unshare",
        "-m",
        "bash",
        "-c",
        f'{poor} && exec "$@"',
        "bash",
        *wrapper,
        PROGRAM,
        *words,
    ]
    env = {**os.environ, "CAPSULE_STATE": str(folder / "state")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("tier", ["sealed", "scoped"])
@pytest.mark.parametrize("poor", POOR)
def test_a_run_is_contained_all_the_same(tmp_path: Path, poor: str, tier: str) -> None:
    capsule = shell_capsule(tmp_path / "capsule", SAYS)
    result = tmp_path / "result.json"
    (tmp_path / "work").mkdir()
    words = ("--workdir", str(tmp_path / "work"), "--containment", tier, "--result", str(result))

    done = on_a_poor_machine(tmp_path, POOR[poor], "run", str(capsule), "--task", "go", *words)

    assert done.returncode == 0, done.stderr
    told = json.loads(result.read_text())
    assert (told["containment"], told["response"]) == (tier, "it ran")


def test_without_the_right_to_raise_limits_none_is_raised(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    capsule = shell_capsule(tmp_path / "capsule", f"ulimit -Hn >&2\n{SAYS}")
    result = tmp_path / "result.json"
    lowered = ("setpriv", "--bounding-set", "-sys_resource")
    (tmp_path / "work").mkdir()
    words = (
        "--workdir",
        str(tmp_path / "work"),
        "--containment",
        "sealed",
        "--result",
        str(result),
    )

    done = on_a_poor_machine(
        tmp_path,
        POOR["few files"],
        *("run", str(capsule), "--task", "go", *words),
        wrapper=lowered,
    )

    assert done.returncode == 0, done.stderr
    limits = json.loads(result.read_text())["walls"]["limits"]
    assert limits["files"] <= 128


def test_without_the_right_to_mount_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    capsule = shell_capsule(tmp_path / "capsule", SAYS)
    lowered = ("setpriv", "--bounding-set", "-sys_admin")
    (tmp_path / "work").mkdir()
    words = ("--workdir", str(tmp_path / "work"), "--containment", "sealed")

    done = on_a_poor_machine(
        tmp_path, "true", "run", str(capsule), "--task", "go", *words, wrapper=lowered
    )

    assert done.returncode == 6
    assert "E-CAP-001" in done.stderr
    assert "bwrap" in done.stderr
