"""The capsule that writes release notes: what it asks for and what it is held to, before any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capsule_runtime.host.capsule import load_capsule
from support.command import ADVISORY, Command

CAPSULE = Path(__file__).parents[2] / "capsules/release-notes"
GRANTS = ("--grant", "provider=openai")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """The command on a machine that has a program called codex."""
    command = Command(tmp_path)
    program = tmp_path / "bin/codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho codex-cli 0.171.0\n")
    program.chmod(0o755)
    command.env["PATH"] = f"{program.parent}:{command.env['PATH']}"
    return command


def test_it_can_be_explained_before_anything_is_granted_or_given(command: Command) -> None:
    done = command("explain", str(CAPSULE), "--json")

    assert done.status == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    assert told["asks"]["missing"] == ["provider=openai"]
    assert told["workdir_mode"] == "ro"


def test_it_does_not_run_without_a_grant(command: Command) -> None:
    done = command("run", str(CAPSULE), "--task", "notes", *ADVISORY)

    assert done.status == 7
    assert "E-TRU-001" in done.err


def test_without_its_key_it_names_the_variable(command: Command) -> None:
    done = command("run", str(CAPSULE), "--task", "notes", *ADVISORY, *GRANTS)

    assert done.status == 2
    assert "E-PRO-003" in done.err
    assert "OPENAI_API_KEY" in done.err


def test_a_ceiling_needs_a_codex_that_reports_each_call(tmp_path: Path) -> None:
    """By `exec` usage is known at the end: its configuration decides what a driver can do."""
    manifest = (CAPSULE / "capsule.toml").read_text()
    (tmp_path / "prompt.md").write_text("notes")
    (tmp_path / "capsule.toml").write_text(manifest + '\n[harness.config]\nmode = "exec"\n')

    whole, alone = load_capsule(CAPSULE), load_capsule(tmp_path)

    assert whole.driver.describe().usage == "per-call"
    assert alone.driver.describe().usage == "final"
    assert whole.manifest.spend.ceilings().limits()
