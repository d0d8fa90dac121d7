"""What the README prints must do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_python_sample_runs(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None

    done = subprocess.run(
        [sys.executable, "-c", found[1]],
        cwd=ROOT,
        env={**os.environ, "CAPSULE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "completed completed"
