"""Whole-process times of the command, each beside the reference import, interleaved.

Run: python tests/bench/bench_cli.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
REFERENCE = "import msgspec, sqlite3, click, anyio, anyio._backends._asyncio"
HELLO = """#!/bin/sh
read -r task
echo '{"type":"turn-end","result":"hello"}'
"""


def milliseconds(command: list[str], env: dict[str, str]) -> float:
    """Run *command* once and return how long it took."""
    started = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    capsule_command = str(Path(sys.executable).with_name("capsule"))
    with tempfile.TemporaryDirectory() as folder:
        capsule = Path(folder, "hello")
        capsule.mkdir()
        work = Path(folder, "work")
        work.mkdir()
        (capsule / "capsule.toml").write_text(
            'name = "hello"\n[harness]\ndriver = "jsonl"\ncommand = ["sh", "./hello.sh"]\n'
            '[workdir]\nmode = "rw"\n'
        )
        (capsule / "hello.sh").write_text(HELLO)
        run = [capsule_command, "run", str(capsule), "--task", "hi", "--workdir", str(work)]
        commands = {
            "reference import": [sys.executable, "-c", REFERENCE],
            "capsule run, hello, the strongest tier": run,
            "capsule run, hello, advisory": [*run, "--containment", "advisory"],
            "capsule --version": [capsule_command, "--version"],
            "import capsule_runtime": [sys.executable, "-c", "import capsule_runtime"],
        }
        env = {**os.environ, "CAPSULE_STATE": str(Path(folder, "state"))}
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                took[name].append(milliseconds(command, env))
    reference = statistics.median(took["reference import"])
    for name, times in took.items():
        median = statistics.median(times)
        sys.stdout.write(
            f"{name}: median {median:.0f} ms, min {min(times):.0f} ms, {median / reference:.2f}x\n"
        )


if __name__ == "__main__":
    main()
