"""A driver of somebody else's: the package that `drivers/README.md` shows, built, installed and run."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
from pathlib import Path

from support.command import ADVISORY

README = Path(__file__).parents[2] / "drivers" / "README.md"
AGENT = """#!/bin/sh
read -r task
echo "say You said: $task"
echo "used 120 7"
echo "what is this"
echo "done all of it"
"""


def shown(language: str, mark: str) -> str:
    """Return the example in *language* that holds *mark*, as the page shows it."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    [block] = [block for block in blocks if mark in block]
    return block


def built(folder: Path) -> Path:
    """Build the wheel of the package that the page shows."""
    source = folder / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(shown("toml", "acme-capsule"))
    (source / "acme_capsule.py").write_text(shown("python", "class AcmeDriver"))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index")
    subprocess.run([*pip, "--no-build-isolation", "-w", folder, source], check=True)
    [wheel] = folder.glob("acme_capsule-*.whl")
    return wheel


def environment(folder: Path, wheel: Path) -> Path:
    """Return the Python of an environment of its own that has *wheel*, and sees what we have."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    [packages] = folder.glob("lib/python*/site-packages")
    ours = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "ours.pth").write_text(ours)
    install = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    subprocess.run(install, check=True)
    return python


def test_a_driver_in_a_package_of_its_own(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", built(tmp_path))
    capsule = tmp_path / "capsule"
    capsule.mkdir()
    (capsule / "agent.sh").write_text(AGENT)
    (capsule / "capsule.toml").write_text(
        'name = "theirs"\n[harness]\ndriver = "acme"\ncommand = ["sh", "./agent.sh"]\n'
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CAPSULE_STATE": str(tmp_path / "state")}

    def capsule_command(*words: str | Path) -> str:
        command = (python, "-m", "capsule_runtime", *words)
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    drivers = json.loads(capsule_command("drivers", "--json"))
    answer = capsule_command("run", capsule, "--task", "hello", "--workdir", capsule, *ADVISORY)
    record = json.loads(capsule_command("show", "@last", "--json"))

    assert drivers["acme"]["install"] == "pip install acme-agent"
    assert "all of it" in answer
    assert (record["outcome"], record["driver"]) == ("completed", "acme")
    assert record["tokens"] == 127
