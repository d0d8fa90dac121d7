"""Ask an installed program for its version: alone, in an empty HOME, and not for long."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROBE_SECONDS = 10.0
"""A launcher in Node on a busy machine takes two; what takes longer is broken."""
_OUTPUT_BYTES = 64 * 1024


def ask_version(argv: Sequence[str], path: str) -> str:
    """Return what *argv* prints, with the search path *path*; what went wrong gives less, or "".

    Its stderr is not read: interpreters warn there, and name versions of their own.
    """
    with tempfile.TemporaryDirectory(prefix="capsule-probe-", ignore_cleanup_errors=True) as home:
        env = {"PATH": path, "HOME": home, "TMPDIR": home, "TERM": "dumb", "CI": "1"}
        with suppress(OSError), _started(argv, env, Path(home)) as program:
            return _output(program).decode("utf-8", "replace")
    return ""


@contextmanager
def _started(
    argv: Sequence[str], env: dict[str, str], folder: Path
) -> Generator[subprocess.Popen[bytes]]:
    """Start *argv* in a session of its own; at the end of the block nothing of that is left."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=folder,
        start_new_session=True,
    ) as program:
        try:
            yield program
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


def _output(program: subprocess.Popen[bytes]) -> bytes:
    assert program.stdout is not None
    pipe, said = program.stdout.fileno(), b""
    until = time.monotonic() + PROBE_SECONDS
    while len(said) < _OUTPUT_BYTES:
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            break
        if not (chunk := os.read(pipe, _OUTPUT_BYTES)):
            break
        said += chunk
    return said
