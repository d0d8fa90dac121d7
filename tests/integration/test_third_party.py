"""A driver of somebody else's: the package that `drivers/README.md` shows, built, installed and run."""

from __future__ import annotations

import json
import re
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.command import ADVISORY

README = Path(__file__).parents[2] / "drivers" / "README.md"
PATIENCE_SECONDS = 20
ANSWERS = """
read -r task
echo "say You said:"
echo "say  $task"
echo "used 120 7"
echo "what is this"
echo "done all of it"
"""
WAITS = """
read -r task
echo "say working"
read -r word
echo "failed told to $word"
"""


class Theirs:
    """`capsule` in an environment that has the package of the page, and sees what we have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = environment(folder / "venv", built(folder))
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "CAPSULE_STATE": str(folder / "state"),
        }

    def __call__(self, *words: str) -> str:
        """Run `capsule` with *words* to its end; return what it printed."""
        done = subprocess.run(
            (self.python, "-m", "capsule_runtime", *words),
            env=self.env,
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout

    def capsule(self, agent: str) -> tuple[str, ...]:
        """Write a capsule for *agent*, a shell script; return the words that run it."""
        capsule = self.folder / "capsule"
        capsule.mkdir(exist_ok=True)
        (capsule / "agent.sh").write_text(agent)
        (capsule / "capsule.toml").write_text(
            'name = "theirs"\n[harness]\ndriver = "acme"\ncommand = ["sh", "./agent.sh"]\n'
        )
        (self.folder / "work").mkdir(exist_ok=True)
        return ("run", "capsule", "--task", "hello", "--workdir", "work", *ADVISORY)

    def shown(self) -> dict[str, Any]:
        """Return all that is known of the last run."""
        record: dict[str, Any] = json.loads(self("show", "@last", "--json"))
        return record


def example(language: str, mark: str) -> str:
    """Return the example in *language* that holds *mark*, as the page shows it."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    [block] = [block for block in blocks if mark in block]
    return block


def built(folder: Path) -> Path:
    """Build the wheel of the package that the page shows. Nothing is fetched for it."""
    source = folder / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(example("toml", "acme-capsule"))
    (source / "acme_capsule.py").write_text(example("python", "class AcmeDriver"))
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source)
    [wheel] = folder.glob("acme_capsule-*.whl")
    return wheel


def environment(folder: Path, wheel: Path) -> Path:
    """Return the Python of an environment of its own that has *wheel*, and sees what we have."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=PATIENCE_SECONDS)
    python = folder / "bin" / "python"
    [packages] = folder.glob("lib/python*/site-packages")
    ours = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "ours.pth").write_text(ours)
    pip(python, "install", wheel)  # what it depends on is there
    return python


def pip(python: str | Path, *words: str | Path) -> None:
    """Run the pip of *python*, without the network."""
    command = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, "--no-index")
    subprocess.run(command, check=True, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    return Theirs(tmp_path_factory.mktemp("theirs"))


def test_a_driver_of_another_package_is_listed(theirs: Theirs) -> None:
    drivers = json.loads(theirs("drivers", "--json"))

    assert drivers["acme"]["install"] == "pip install acme-agent"
    assert "jsonl" in drivers


def test_a_run_of_it_has_its_answer_its_text_and_its_usage(theirs: Theirs) -> None:
    answer = theirs(*theirs.capsule(ANSWERS))
    record = theirs.shown()
    frames = [json.loads(line) for line in theirs("logs", "@last", "--json").splitlines()]
    notes = theirs("logs", "@last", "--facts", "--json")
    text = "".join(frame["text"] for frame in frames if frame["type"] == "text")

    assert answer.splitlines()[-1] == "all of it"
    assert "You said: hello" in text
    assert (record["outcome"], record["driver"]) == ("completed", "acme")
    assert record["tokens"] == 127
    assert '"text":"what is this"' in notes


def test_a_run_of_it_is_stopped_in_its_own_words(theirs: Theirs) -> None:
    words = ["-m", "capsule_runtime", *theirs.capsule(WAITS), "--format", "jsonl"]
    with subprocess.Popen(
        [theirs.python, *words],
        env=theirs.env,
        cwd=theirs.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert any('"working"' in line for line in run.stdout)
        run.send_signal(signal.SIGINT)
        try:
            run.communicate(timeout=PATIENCE_SECONDS)
        finally:
            run.kill()

    assert run.returncode == 130
    assert "told to stop" in theirs("logs", "@last", "--facts", "--json")
