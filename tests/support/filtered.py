"""Programs behind filters, and the same ones without."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from capsule_runtime.core.seccomp import Profile, build_filter
from capsule_runtime.host import filters

PATIENCE_SECONDS = 30
ENV = {"PATH": "/usr/bin:/bin:/usr/local/bin", "LANG": "C.UTF-8"}

_BEHIND = f"""
import base64, os, sys
sys.path.append({os.path.dirname(filters.__file__)!r})
from filters import install
from walls import drop_privileges
drop_privileges()
install(base64.b64decode(sys.argv[1]))
os.execvp(sys.argv[2], sys.argv[2:])
"""

RAW_CALLS = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(number, *[ctypes.c_ulong(one & 0xFFFFFFFFFFFFFFFF) for one in arguments])
    return "done" if done >= 0 else errno.errorcode[ctypes.get_errno()]
"""
"""What a program begins with that makes system calls by their numbers."""


def argv_behind(
    profile: Profile | None, argv: Sequence[str], *, unix_sockets: bool = False
) -> list[str]:
    """Return the command that runs *argv* behind the filter of *profile*; None: behind none."""
    if profile is None:
        return list(argv)
    program = build_filter(profile, os.uname().machine, unix_sockets=unix_sockets)
    return argv_behind_program(program, argv)


def argv_behind_program(program: bytes, argv: Sequence[str]) -> list[str]:
    """Return the command that runs *argv* behind the filter *program*."""
    encoded = base64.b64encode(program).decode()
    return [sys.executable, "-I", "-S", "-c", _BEHIND, encoded, *argv]


def runs(
    profile: Profile | None, *argv: str, cwd: Path | None = None, unix_sockets: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run *argv* behind the filter of *profile*, to its end."""
    command = argv_behind(profile, argv, unix_sockets=unix_sockets)
    env = {**ENV, "HOME": str(cwd or "/")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd=cwd or "/",
        env=env,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def tells(profile: Profile | None, code: str, *arguments: str) -> object:
    """Return what the Python *code* prints as JSON, behind the filter of *profile*."""
    done = runs(profile, sys.executable, "-I", "-S", "-c", RAW_CALLS + code, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
