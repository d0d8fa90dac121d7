"""`capsule run` of a harness that calls a mock model, and what is on record of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capsule_runtime.core.log import Record
from support.asker import KEY_VARIABLE, asker, configure
from support.canary import REAL_KEY
from support.command import Command

GRANT = ("--grant", "provider=anthropic")
ADVISORY = ("--containment", "advisory")


class Asking:
    """`capsule` with a mock of a provider, whose real key nobody else has."""

    def __init__(self, folder: Path, url: str, log: Path) -> None:
        self.folder = folder
        self.log = log
        self.url = url
        self.command = Command(folder)
        self.command.env |= {KEY_VARIABLE: REAL_KEY}
        self.configure()

    def configure(self, more: str = "") -> None:
        """Write config.toml anew; *more* are lines of the provider's table."""
        self.command.env["CAPSULE_CONFIG"] = str(configure(self.folder, self.url, more))

    def words(self, asked: str, *words: str, count: int = 1, at_once: int = 1) -> tuple[str, ...]:
        """Return the words that run an asker of *asked*."""
        folder = self.folder / f"capsule-{len(list(self.folder.glob('capsule-*')))}"
        capsule = asker(folder, asked, count=count, at_once=at_once)
        workdir = self.folder / "work"
        workdir.mkdir(exist_ok=True)
        where = ("--workdir", str(workdir), "--format", "jsonl")
        return ("run", capsule, "--task", "ask", *GRANT, *words, *where)

    def run(
        self,
        asked: str,
        *words: str,
        count: int = 1,
        at_once: int = 1,
        path: str = "/v1/messages",
    ) -> Asked:
        """Run an asker to its end."""
        where = ("--env", f"ASKED_PATH={path}")
        done = self.command(*self.words(asked, *words, *where, count=count, at_once=at_once))
        return Asked(self, done.status, done.frames)


class Asked:
    """A run that has ended."""

    def __init__(self, asking: Asking, status: int, frames: list[dict[str, Any]]) -> None:
        self.status = status
        self.frames = frames
        self.run: str = frames[0]["run"]
        lines = asking.command("logs", self.run, "--facts", "--json").out
        self.facts = [json.loads(line) for line in lines.splitlines()]
        self.record = Record.fold(line.encode() + b"\n" for line in lines.splitlines())

    @property
    def answers(self) -> list[list[Any]]:
        """Return status and text of each call, as the harness heard them."""
        texts = [frame["text"] for frame in self.frames if frame["type"] == "text"]
        return [json.loads(line) for line in "".join(texts).splitlines()]

    @property
    def statuses(self) -> list[int]:
        return sorted(status for status, _ in self.answers)

    @property
    def most_taken(self) -> int:
        """Return the most that was settled and held at any time, in micro-dollars."""
        held, settled, most = dict[str, int](), 0, 0
        for fact in self.facts:
            match fact.get("fact"):
                case "call-started":
                    held[fact["call"]] = fact.get("microusd", 0)
                case "call-ended":
                    kept = fact.get("microusd", 0)
                    settled += kept
                    del held[fact["call"]]
                case _:
                    pass
            most = max(most, settled + sum(held.values()))
        return most
