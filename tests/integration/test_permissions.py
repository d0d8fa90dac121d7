"""A harness asks for permission and nobody is there: the command, from the flag to the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command import Command

ASKS = """
read task
echo '{"type":"permission","id":"p1","tool":"Bash","input":{"command":"make"}}'
read answer
echo '{"type":"turn-end","result":"'"$(echo "$answer" | sed 's/"/~/g')"'"}'
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def shown(command: Command) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(command("show", "@last", "--json").out)
    return result


def facts(command: Command) -> list[str]:
    done = command("logs", "@last", "--facts", "--json")
    return [entry.get("fact", "") for entry in done.frames]


def test_by_default_the_harness_is_told_no_and_goes_on(command: Command) -> None:
    done = command.run(ASKS)

    assert done.status == 0
    assert "~refused~" in done.out and "E-RUN-040" in done.out
    assert "asked to use Bash: denied" in done.err
    assert (shown(command)["permissions_allowed"], shown(command)["permissions_denied"]) == (0, 1)
    assert "permission-decided" in facts(command)


def test_a_harness_may_be_allowed(command: Command) -> None:
    done = command.run(ASKS, "--on-permission", "allow")

    assert (done.status, "~answer~" in done.out, "~allow~" in done.out) == (0, True, True)
    assert "1 allowed, 0 denied" in command("show", "@last").out


def test_asking_may_end_the_run(command: Command) -> None:
    done = command.run(ASKS, "--on-permission", "fail")

    assert done.status == 5
    assert (shown(command)["outcome"], shown(command)["reason"]) == ("failed", "permission")


def test_no_flag_allows_what_the_capsule_or_the_caller_denies(command: Command) -> None:
    capsule = Path(command.capsule(ASKS))
    manifest = capsule / "capsule.toml"
    manifest.write_text(manifest.read_text() + '[interaction]\non_permission = "deny"\n')
    words = ("run", str(capsule), "--task", "go", "--containment", "advisory")
    by_capsule = command(*words, "--on-permission", "allow")
    manifest.write_text(manifest.read_text().replace('"deny"', '"allow"'))
    config = command.folder / "config.toml"
    config.write_text('[run]\non_permission = "deny"\n')
    config.chmod(0o600)
    by_caller = command(*words, env={"CAPSULE_CONFIG": str(config)})
    by_nobody = command(*words)

    assert "~refused~" in by_capsule.out
    assert "~refused~" in by_caller.out
    assert "~answer~" in by_nobody.out


def test_nobody_can_be_asked_in_the_advisory_tier(command: Command) -> None:
    done = command.run(ASKS, "--on-permission", "ask")

    assert done.status == 6
    assert "error[E-CAP-005]" in done.err


def test_the_plan_says_what_a_harness_is_told(command: Command) -> None:
    done = command.run(ASKS, "--explain", "--json")

    assert json.loads(done.out)["on_permission"] == "deny"
