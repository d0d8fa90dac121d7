"""Find out what can be done about system calls here, by trying it. Kept for the life of the process."""

from __future__ import annotations

import array
import base64
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import msgspec

from capsule_runtime.core.filtering import Filtering
from capsule_runtime.core.mediation import Endpoint
from capsule_runtime.core.seccomp import build_filter, build_notify_filter
from capsule_runtime.host.broker import Broker, Granted
from capsule_runtime.host.caller import may_read_everything
from capsule_runtime.host.metadata import Identity, acting_as

_SECONDS = 20
_MILLISECONDS = 100
_PORT = 1
_TRIALS = str(Path(__file__).with_name("filter_trials.py"))
_GREETING = b"here"
"""What the trials expect of whom they reach."""


@cache
def find_filtering(identity: Identity | None = None) -> Filtering:
    """Return what can be done for harnesses of *identity*; None: of our own user.

    It takes about as long as starting Python.
    """
    machine = os.uname().machine
    try:
        programs = build_notify_filter(machine), build_filter("strict", machine)
    except ValueError as unknown:
        return _nothing(str(unknown))
    stays_readable = not may_read_everything()
    with tempfile.TemporaryDirectory(prefix="capsule-filters-") as folder:
        os.chmod(folder, 0o711)
        try:
            told = _try_all(programs, Path(folder).resolve(), identity)
        except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as exc:
            return _nothing(f"it cannot be tried: {exc}")
    return Filtering(told["filters"], told["notices"], told["mediation"], stays_readable)


def _nothing(why: str) -> Filtering:
    return Filtering(why, why, why)


def _try_all(
    programs: tuple[bytes, bytes], folder: Path, identity: Identity | None
) -> dict[str, str]:
    inside = folder / "inside"
    inside.mkdir()
    file = inside / "file"
    file.touch(0o600)
    if identity is not None:
        for path in (inside, file):
            os.chown(path, identity.uid, identity.gid)
    granted = Granted({Endpoint("127.0.0.1", _PORT): _greet}, (str(inside),), identity)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number, uid = str(theirs.fileno()), str(identity.uid if identity else -1)
        encoded = [base64.b64encode(program).decode() for program in programs]
        command = [sys.executable, "-I", "-S", _TRIALS, number, uid]
        with subprocess.Popen(
            [*command, *encoded, str(file), str(_PORT)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd="/",
        ) as child:
            try:
                theirs.close()
                unreadable = _serve(ours, child, granted)
                said, complaint = child.communicate(timeout=_SECONDS)
            finally:
                child.kill()
    if child.returncode != 0:
        raise OSError(0, complaint.decode(errors="replace").strip().rpartition("\n")[2])
    told = msgspec.json.decode(said, type=dict[str, str])
    return {**told, "mediation": unreadable or told["mediation"]}


def _serve(ours: socket.socket, child: subprocess.Popen[bytes], granted: Granted) -> str:
    """Be the broker of the *child* until it has ended; return why we cannot, if so."""
    ours.settimeout(_SECONDS)
    words, rights, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    if not words:
        return ""  # It has no such filter, and says why.
    listener = array.array("i", rights[0][2])[0]
    try:
        broker = Broker(listener, granted)
    except OSError as exc:
        ours.send(b"x")
        return f"files cannot be reached beneath a folder: {exc.strerror}"
    try:
        unreadable = _why_unreadable(child.pid, granted.identity)
        ours.send(b"x")
        calls = select.poll()
        calls.register(listener, select.POLLIN)
        until = time.monotonic() + _SECONDS
        while child.poll() is None and not broker.attend() and time.monotonic() < until:
            calls.poll(_MILLISECONDS)
        return unreadable
    finally:
        broker.close()


def _why_unreadable(child: int, identity: Identity | None) -> str:
    try:
        with acting_as(None if may_read_everything() else identity):
            os.close(os.open(f"/proc/{child}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as exc:
        return f"the memory of a harness cannot be read: {exc.strerror}"
    return ""


def _greet() -> socket.socket:
    """Dial somebody who says what only he can say."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(_GREETING)
    return ours
