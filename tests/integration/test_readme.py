"""What the README prints must do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python_samples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_embedding_sample_runs(tmp_path: Path, backend: str) -> None:
    sample, _ = python_samples()
    program = sample.replace("anyio.run(main)", f"anyio.run(main, backend={backend!r})")
    assert program != sample

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "CAPSULE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=True,
    )

    outcome, reason, out = done.stdout.splitlines()[-1].split()
    assert (outcome, reason) == ("completed", "completed")
    assert "# Repository report" in done.stdout
    assert Path(out, "result.txt").is_file()
    assert done.stderr == ""


def test_the_sample_of_a_programs_tests_passes_on_both_event_loops(tmp_path: Path) -> None:
    _, sample = python_samples()
    (tmp_path / "test_sample.py").write_text(sample)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sample.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout
