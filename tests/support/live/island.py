"""A network namespace that has nothing but its loopback, held by the mock model server."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[2]
_READY_SECONDS = 20.0
_UP = (
    "import fcntl, socket, struct, sys, runpy\n"
    "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
    "    fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 1))\n"
    "runpy.run_module('support.mock_llm.server', run_name='__main__', alter_sys=True)\n"
)
"""SIOCSIFFLAGS, IFF_UP: the loopback is down in a new namespace, and `ip` may be missing."""


class NoIsland(Exception):
    """This machine lets nobody make a network namespace; says why."""


class Island:
    """A namespace whose only host is the mock."""

    def __init__(self, pid: int, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._pid = pid
        self._log = log

    def enter(self) -> list[str]:
        """Return the words that make a program run in it; the program keeps its pid."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._pid), *user, "--net", "--"]

    def asked(self, key: str) -> list[dict[str, Any]]:
        """Return what the mock wrote down of *key*, in order."""
        lines = self._log.read_bytes().splitlines() if self._log.exists() else []
        return [line for line in map(json.loads, lines) if line["key"] == key]


@contextmanager
def opened(folder: Path) -> Generator[Island]:
    """Make an island; it sinks at the end of the block.

    Raises:
        NoIsland: there can be none here.
    """
    for program in ("unshare", "nsenter"):
        if shutil.which(program) is None:
            raise NoIsland(f"{program} is not on PATH")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    log = folder / "asked.jsonl"
    with subprocess.Popen(
        ["unshare", *user, "--net", sys.executable, "-c", _UP, str(log)],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as holder:
        try:
            yield Island(holder.pid, _port(holder), log)
        finally:
            holder.kill()


def _port(holder: subprocess.Popen[bytes]) -> int:
    assert holder.stdout is not None
    assert holder.stderr is not None
    readable, _, _ = select.select([holder.stdout], [], [], _READY_SECONDS)
    word, _, port = (holder.stdout.readline() if readable else b"").partition(b" ")
    if word != b"ready":
        holder.kill()
        raise NoIsland(f"the mock did not come up: {holder.stderr.read().decode()[-500:]}")
    return int(port)
