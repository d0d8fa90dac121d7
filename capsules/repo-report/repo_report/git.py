"""Ask git about a repository that nobody vouches for.

A repository's own configuration can name programs (a file-system monitor, hooks, a signature
checker, a transport to fetch missing objects). Only commands that read are run, and each of
those doors is shut; filters and text converters are never reached because no content is asked
for. With the doors shut it is also safe to look at a repository that another user owns.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "log.showSignature=false",
    "log.showRoot=true",
    "safe.bareRepository=explicit",
    "safe.directory=*",
)


class GitFailed(Exception):
    """Say why git gave no answer."""


class Git:
    """Run git in the folder *path*; *checkpoint* is called while it runs and may raise."""

    def __init__(self, path: str, checkpoint: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._program = _find_program("git", os.environ.get("PATH", os.defpath), path)

    @contextmanager
    def records(self, *arguments: str, timeout: float) -> Generator[Iterator[str]]:
        """Run git and yield its NUL-terminated records; leaving early stops it.

        Raises: GitFailed, also from the iterator.
        """
        if not self._program:
            raise GitFailed("no git was found")
        command = [self._program, "--no-pager", "--no-optional-locks"]
        for setting in _SETTINGS:
            command += ["-c", setting]
        process = _started([*command, *arguments], self._path)
        try:
            yield self._records(process, f"git {arguments[0]}", time.monotonic() + timeout)
        finally:
            process.kill()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
            process.wait()

    def line(self, *arguments: str) -> str:
        """Return the one line that git prints, or "" if it fails."""
        try:
            with self.records(*arguments, timeout=10) as records:
                return "".join(records).strip()
        except GitFailed:
            return ""

    def _records(
        self, process: subprocess.Popen[bytes], what: str, deadline: float
    ) -> Iterator[str]:
        tail = b""
        complaint = b""
        for is_answer, chunk in self._chunks(process, what, deadline):
            if is_answer:
                *records, tail = (tail + chunk).split(b"\0")
                yield from map(os.fsdecode, records)
            elif len(complaint) < 4096:
                complaint += chunk
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            raise GitFailed(f"{what} does not end") from None
        if code != 0:
            raise GitFailed(_reason(what, complaint))
        if tail:
            yield os.fsdecode(tail)

    def _chunks(
        self, process: subprocess.Popen[bytes], what: str, deadline: float
    ) -> Iterator[tuple[bool, bytes]]:
        assert process.stdout and process.stderr
        answer, complaint = process.stdout.fileno(), process.stderr.fileno()
        waiting = [answer, complaint]
        while waiting:
            self._checkpoint()
            if time.monotonic() > deadline:
                raise GitFailed(f"{what} took too long")
            for ready in select.select(waiting, [], [], 0.05)[0]:
                chunk = os.read(ready, 65536)
                if chunk:
                    yield ready == answer, chunk
                else:
                    waiting.remove(ready)


def _started(command: list[str], path: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            cwd=path,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from error


def _environment() -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("HOME", "PATH", "XDG_CONFIG_HOME") if name in os.environ
    }
    return {
        **kept,
        "LC_ALL": "C",
        # A partial clone would fetch what is missing, through any program its config names.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _find_program(name: str, search: str, folder: str) -> str:
    """Find *name*, but never in the folder that is looked at."""
    inside = os.path.join(os.path.realpath(folder), "")
    for directory in search.split(os.pathsep):
        program = os.path.join(directory, name)
        if not os.path.isabs(program) or os.path.realpath(program).startswith(inside):
            continue
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return ""


def _reason(what: str, complaint: bytes) -> str:
    if b"not a git repository" in complaint:
        return "this is no git repository"
    if b"does not have any commits yet" in complaint:
        return "the repository has no commits yet"
    lines = os.fsdecode(complaint).strip().split("\n")
    telling = next((line for line in lines if line.startswith("fatal: ")), lines[0])
    return f"{what} failed: {telling}" if telling else f"{what} failed"
