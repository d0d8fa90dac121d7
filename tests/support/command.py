"""The installed `capsule` command as its users run it: as a process, on pipes or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = str(Path(sys.executable).with_name("capsule"))
ADVISORY = ("--containment", "advisory")

INTERRUPT_SECONDS = 0.002
"""How far apart the interrupts of a very impatient person are."""

HELLO = """
read task
echo '{"type":"text-delta","text":"hello "}'
echo '{"type":"text-delta","text":"world"}'
echo '{"type":"turn-end","result":"hello world"}'
"""
PATIENT = """
read task
echo '{"type":"text-delta","text":"working"}'
while read line; do
  case $line in *interrupt*)
    echo '{"type":"turn-failed","kind":"other","message":"as you wish"}'
    exit 0
  esac
done
"""
"""Works until it is interrupted."""
STUBBORN = """
trap '' INT TERM HUP
read task
echo '{"type":"text-delta","text":"working"}'
while :; do sleep 1000; done
"""
"""Works until it is killed."""
ON_CUE = """
read task
echo '{"type":"text-delta","text":"working"}'
read cue < "$CUE"
echo '{"type":"turn-end","result":"done"}'
"""
"""Works until somebody writes a line to the fifo CUE."""


def saying(lines: str) -> str:
    """Return a harness that takes the task and says *lines*."""
    return f"read task\ncat <<'END'\n{lines.strip()}\nEND\n"


class Done(NamedTuple):
    """What a process left."""

    status: int
    out: str
    err: str

    @property
    def frames(self) -> list[dict[str, Any]]:
        """Return stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """`capsule` on a state directory of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "CAPSULE_STATE": str(self.state),
        }

    def __call__(
        self,
        *words: str,
        stdin: bytes | None = b"",
        env: Mapping[str, str] | None = None,
        before: tuple[str, ...] = (),
    ) -> Done:
        """Run `capsule` with *words* to its end; *before* is a program that starts it."""
        done = subprocess.run(
            [*before, PROGRAM, *words],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env={**self.env, **(env or {})},
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, harness: str, *words: str, **rest: Any) -> Done:
        """Run a capsule made of the shell script *harness*, to its end."""
        return self("run", self.capsule(harness), "--task", "go", *ADVISORY, *words, **rest)

    def capsule(self, harness: str, *, grace: str = "300ms") -> str:
        """Write a capsule whose harness is the shell script *harness*; return its folder."""
        folder = self.folder / "capsule"
        folder.mkdir(exist_ok=True)
        (folder / "capsule.toml").write_text(
            'name = "sample"\n[harness]\ndriver = "jsonl"\ncommand = ["sh", "./harness.sh"]\n'
            # The folder that it lies in is what it works on, and tests see what it does there.
            f'[workdir]\nmode = "rw"\n[limits]\ngrace = "{grace}"\n'
        )
        (folder / "harness.sh").write_text(harness)
        return str(folder)

    def install(self, name: str, script: str) -> Path:
        """Put the shell script *script* on PATH as the program *name*, and return it."""
        programs = self.folder / "programs" / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        program = programs / name
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
        if str(programs) not in self.env["PATH"]:
            self.env["PATH"] = f"{programs}:{self.env['PATH']}"
        return program

    def cue(self) -> Path:
        """Make the fifo that `ON_CUE` reads."""
        path = self.folder / "cue"
        os.mkfifo(path)
        return path

    @contextmanager
    def started(self, *words: str) -> Generator[Process]:
        """Start `capsule` with *words*; at the end of the block it is gone."""
        with subprocess.Popen(
            [PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.env,
            bufsize=0,  # what is read line by line and what `communicate` reads must not overlap
        ) as popen:
            try:
                yield Process(popen)
            finally:
                popen.kill()

    @contextmanager
    def in_terminal(
        self, *words: str, env: Mapping[str, str] | None = None, redirect: str = ""
    ) -> Generator[Terminal]:
        """Start `capsule` with *words* on a terminal of its own, 80 columns wide.

        *redirect* is what a shell would be told, such as "> file".
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        popen = subprocess.Popen(
            ["setsid", "--ctty", "sh", "-c", f'exec "$0" "$@" {redirect}', PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.folder,
            env={**self.env, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(theirs)
        terminal = Terminal(popen, ours)
        try:
            yield terminal
        finally:
            terminal.close()


class Process:
    """A `capsule` that is going on, on pipes."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen

    def lines(self) -> Iterator[str]:
        """Yield lines of stdout as they come."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            yield line.decode()

    def err_lines(self) -> Iterator[str]:
        """Yield lines of stderr as they come."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            yield line.decode()

    def frame(self, word: str) -> dict[str, Any]:
        """Read frames up to one that holds *word*, and return it."""
        frame: dict[str, Any] = json.loads(_find(word, self.lines()))
        return frame

    def said(self, word: str) -> str:
        """Read lines of stderr up to one that holds *word*, and return it."""
        return _find(word, self.err_lines())

    def pestered(self) -> Done:
        """Interrupt it over and over until it is gone; return what came of it."""
        gone = os.pidfd_open(self.popen.pid)
        while not select.select([gone], [], [], INTERRUPT_SECONDS)[0]:
            self.popen.send_signal(signal.SIGINT)
        os.close(gone)
        return self.done()

    def done(self) -> Done:
        """Read what is left to the end."""
        out, err = self.popen.communicate()
        return Done(self.popen.returncode, out.decode(), err.decode())


def _find(word: str, lines: Iterator[str]) -> str:
    seen: list[str] = []
    for line in lines:
        if word in line:
            return line
        seen.append(line)
    raise AssertionError(f"it ended before it said {word!r}: {seen}")


class Terminal:
    """A `capsule` that is going on, on a terminal."""

    def __init__(self, popen: subprocess.Popen[bytes], fd: int) -> None:
        self.text = ""
        """All that was written to the terminal so far."""
        self._popen = popen
        self._fd = fd

    def shows(self, word: str) -> None:
        """Read until *word* was written."""
        while word not in self.text:
            assert self._read(), f"it ended before it showed {word!r}: {self.text}"

    def press(self, keys: str) -> None:
        """Type *keys*."""
        os.write(self._fd, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        os.close(self._fd)
        self._fd = -1

    def status(self) -> int:
        """Read to the end and return the exit status."""
        while self._fd >= 0 and self._read():
            pass
        return self._popen.wait()

    def rows(self) -> list[str]:
        """Return what the terminal shows at the end: rows as they were last drawn, no styles."""
        rows = self.text.replace("\r\n", "\n").split("\n")
        last_drawn = (row.rpartition("\r\x1b[2K")[2] for row in rows)
        return [re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", row).rstrip() for row in last_drawn]

    def close(self) -> None:
        """Hang up if that was not done, and wait for the process."""
        if self._fd >= 0:
            self.hang_up()
        self.status()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # EIO: nobody has the other side open any more
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)
