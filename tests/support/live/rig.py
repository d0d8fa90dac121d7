"""`capsule run` of a real harness against the mock, and what is checked of every such run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.command import PROGRAM, Done, Process
from support.live.ended import Counts, Ended
from support.live.island import Island
from support.live.kits import Kit

PROVIDERS = ("anthropic", "openai", "google")
KEY_VARIABLE = "LIVE_KEY"
TIER = os.environ.get("CAPSULE_LIVE_TIER") or "sealed"


class Rig:
    """`capsule` with a state of its own, inside the island, with a key that nobody else has."""

    def __init__(self, folder: Path, island: Island, kit: Kit, search_path: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.workdir = folder / "work"
        self.workdir.mkdir()
        self.key = f"sk-test-{uuid.uuid4().hex}"
        self._island = island
        self._kit = kit
        self._env = {
            "PATH": search_path,
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "CAPSULE_STATE": str(self.state),
            "CAPSULE_CONFIG": str(folder / "config.toml"),
            KEY_VARIABLE: self.key,
        }
        self.providers = kit.providers
        """Those that the next capsule asks for, and the next run is granted."""
        self.configure(island.url)

    @property
    def kit(self) -> str:
        """Return the name of the harness that is driven."""
        return self._kit.name

    def configure(self, url: str, more: str = "") -> None:
        """Have all providers be at *url*, with the key of this rig; *more* are lines of TOML."""
        lines = list[str]()
        for name in PROVIDERS:
            version = "/v1" if name == "openai" else ""
            lines += [f"[providers.{name}]", f'base_url = "{url}{version}"']
            lines += [f'key_env = "{KEY_VARIABLE}"', more]
        path = self.folder / "config.toml"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    @property
    def walls(self) -> tuple[str, ...]:
        """Return the words for the tier that all runs are in, and for what they may reach."""
        granted = (word for it in self.providers for word in ("--grant", f"provider={it}"))
        return ("--containment", TIER, *granted)

    @property
    def url(self) -> str:
        """Return where the mock listens."""
        return self._island.url

    def capsule(
        self,
        driver: str | None = None,
        *,
        command: tuple[str, ...] = (),
        config: Mapping[str, object] | None = None,
        system_prompt: str | None = None,
        limits: str = "",
    ) -> str:
        """Write a capsule for the kit's harness; return its folder.

        *limits* are lines of `[limits]` in TOML.
        """
        folder = self.folder / "capsule"
        folder.mkdir(exist_ok=True)
        harness = {"driver": driver or self._kit.name, "model": self._kit.model}
        lines = ['name = "live"', "[capabilities]", *_toml({"providers": self.providers})]
        lines += ["[harness]", *_toml(harness)]
        lines += _toml({"command": list(command)}) if command else []
        lines += _toml({"system_prompt": system_prompt}) if system_prompt else []
        lines += ["[harness.config]", *_toml(config or {}), "[limits]", limits]
        (folder / "capsule.toml").write_text("\n".join(lines) + "\n")
        return str(folder)

    def capsule_command(self, *words: str) -> Done:
        """Run `capsule` with *words* to its end."""
        done = subprocess.run(
            [*self._island.enter(), PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.folder,
            env=self._env,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def started(
        self,
        task: str,
        *words: str,
        capsule: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Generator[Going]:
        """Start a run of *task*; at the end of the block nothing of it is left."""
        given = env or {}
        result = self.folder / f"result-{uuid.uuid4().hex}.json"
        with subprocess.Popen(
            [
                *(*self._island.enter(), PROGRAM, "run", capsule or self.capsule()),
                *("--task", task, "--workdir", str(self.workdir), *self.walls),
                *("--format", "jsonl", "--result", str(result)),
                *(word for name in given for word in ("--env", f"{name}={given[name]}")),
                *words,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self._env,
            bufsize=0,
        ) as popen:
            try:
                yield Going(self, popen, result)
            finally:
                if popen.poll() is None:
                    popen.send_signal(signal.SIGTERM)  # a kill would leave the harness to nobody
                    popen.communicate(timeout=30)

    def run(
        self,
        task: str,
        *words: str,
        capsule: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run *task* to its end."""
        with self.started(task, *words, capsule=capsule, env=env) as going:
            return going.ended()

    def run_without_key(self, task: str) -> Done:
        """Run *task* with nothing that leads to the mock."""
        self.providers = ()
        words = ("--task", task, "--workdir", str(self.workdir), *self.walls)
        return self.capsule_command("run", self.capsule(), *words)

    def asked(self) -> list[dict[str, Any]]:
        """Return what the mock wrote down of this rig's requests."""
        return self._island.asked(self.key)

    def served(self) -> list[Counts]:
        """Return the usage of each answer that the mock gave whole, in our terms."""
        done = [line for line in self.asked() if line["at"] == "answered"]
        return [line["usage"] for line in done if line["usage"] is not None]

    def served_whole(self) -> list[Counts]:
        """Return the usage of each answer that was taken to its end."""
        lines = [line for line in self.asked() if line["at"] == "answered"]
        return [line["usage"] for line in lines if line["usage"] and line["end"] == "done"]

    @contextmanager
    def followed(self, run: str) -> Generator[Iterator[dict[str, Any]]]:
        """Follow the whole log of *run*."""
        words = ("logs", run, "--facts", "--json", "--follow")
        with subprocess.Popen(
            [PROGRAM, *words], env=self._env, stdout=subprocess.PIPE, bufsize=0
        ) as popen:
            assert popen.stdout is not None
            try:
                yield map(json.loads, popen.stdout)
            finally:
                popen.kill()

    def facts(self, run: str) -> list[dict[str, Any]]:
        """Return the whole log of *run*."""
        return self.capsule_command("logs", run, "--facts", "--json").frames


class Going(Process):
    """A run that goes on."""

    def __init__(self, rig: Rig, popen: subprocess.Popen[bytes], result: Path) -> None:
        super().__init__(popen)
        self._rig = rig
        self._result = result
        self._served = len(rig.served_whole())
        """What the mock had served before."""
        self._seen: list[dict[str, Any]] = []

    @property
    def run(self) -> str:
        """Return the run's id; known once a frame was read."""
        run: str = self._seen[0]["run"]
        return run

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read frames up to one of which *is_it* is true, and return that."""
        for line in self.lines():
            frame: dict[str, Any] = json.loads(line)
            self._seen.append(frame)
            if is_it(frame):
                return frame
        raise AssertionError(f"it ended before that: {self._seen}; {self.done().err}")

    def until_text(self, words: str) -> None:
        """Read until *words* were streamed, whatever frames they are cut into."""
        text = ""

        def has_words(frame: dict[str, Any]) -> bool:
            nonlocal text
            text += frame["text"] if frame["type"] == "text" and not frame["final"] else ""
            return words in text

        self.until(has_words)

    def until_fact(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Follow the log, not the frames, up to an entry of which *is_it* is true."""
        with self._rig.followed(self.run) as entries:
            for entry in entries:
                if is_it(entry):
                    return entry
        raise AssertionError("it ended before that")

    def until_said(self, kind: str) -> dict[str, Any]:
        """Follow the log up to an event of *kind*, and return that."""

        def is_it(entry: dict[str, Any]) -> bool:
            return entry.get("fact") == "said" and entry["event"]["type"] == kind

        event: dict[str, Any] = self.until_fact(is_it)["event"]
        return event

    def pid_of_harness(self) -> int:
        """Return the pid of the harness's own process."""
        facts = self._rig.facts(self.run)
        (pid,) = [fact["pid"] for fact in facts if fact.get("fact") == "launched"]
        return int(pid)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.popen.send_signal(signal.SIGINT)

    def ended(self) -> Ended:
        """Follow it to its end."""
        done = self.done()
        frames = [*self._seen, *done.frames]
        assert frames, f"no run: {done.err}"
        facts = self._rig.facts(frames[0]["run"])
        written = self._result.read_bytes() if self._result.exists() else b"{}"
        result: dict[str, Any] = json.loads(written)
        ended = Ended(done.status, frames, done.err, facts, result)
        assert in_order(ended.metered) == in_order(self._rig.served_whole()[self._served :])
        return ended


def in_order(counts: list[Counts]) -> list[str]:
    """Return *counts* so that they can be compared, whichever call was over first."""
    return sorted(json.dumps(one, sort_keys=True) for one in counts)


def _toml(values: Mapping[str, object]) -> list[str]:
    # A JSON string, number, boolean or list is one of TOML as well.
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]
