"""The public surface changes only on purpose, and costs little to import."""

from __future__ import annotations

import json
import subprocess
import sys

import capsule_runtime
from capsule_runtime import events, frames, messages

NAMES = """
    Ack Activity Answer ArtifactFrame CallUsage CapsuleError Ceilings ContainmentError DataPart
    DayCeilings Decision Description Dispatch Driver Event Exit FailureKind Frame Handoff
    HarnessError HostError LaunchPlan LaunchRequest Logger Manifest ManifestError Message
    NoConfig Note Outcome Part Permission Reason Refused Remember Retrying RunHandle RunRequest
    RunResult RunSummary Said Send Session Sleep SpendError StatusFrame Steered StoreError
    Supervisor Suspend Tally Text TextDelta TextFrame TextPart Thinking ThinkingDelta ThinkingFrame
    ToolCall
    ToolResult TrustError TurnEnd TurnFailed Usage UsageError UsageTotal Warned WorkChanges exit_code
    find_driver
    open_supervisor parse_manifest
""".split()


def test_the_public_names() -> None:
    assert capsule_runtime.__all__ == NAMES


def test_the_names_are_sorted_and_each_is_there() -> None:
    assert sorted(capsule_runtime.__all__) == capsule_runtime.__all__
    assert all(hasattr(capsule_runtime, name) for name in capsule_runtime.__all__)


def test_every_event_frame_and_decision_is_public() -> None:
    """A driver may import nothing else, so none may be missing here."""
    kinds = (events.Event, frames.Frame, messages.Decision, messages.Part)
    for kind in kinds:
        for member in kind.__args__:
            assert getattr(capsule_runtime, member.__name__) is member


def test_nothing_else_is_public_by_accident() -> None:
    submodules = {name for name in vars(capsule_runtime) if name in _submodules()}

    public = {name for name in vars(capsule_runtime) if not name.startswith("_")} - submodules
    assert public - {"annotations", "TYPE_CHECKING", "import_module"} <= set(NAMES)


def test_every_public_name_is_found_and_no_other() -> None:
    assert [name for name in NAMES if not hasattr(capsule_runtime, name)] == []
    assert not hasattr(capsule_runtime, "no_such_name")


def test_what_a_supervisor_and_a_run_can_do() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(capsule_runtime.RunHandle) == {
        "frames",
        "id",
        "interrupt",
        "kill",
        "steer",
        "wait",
    }
    assert verbs(capsule_runtime.Supervisor) == {"attend", "close", "get", "list", "start"}


def test_import_loads_nothing_of_ours_yet() -> None:
    loaded = loaded_by("import capsule_runtime")

    assert {name for name in loaded if name.startswith("capsule_runtime.")} == set()


def _submodules() -> set[str]:
    start = "capsule_runtime."
    return {name.removeprefix(start).split(".")[0] for name in sys.modules if start in name}


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after *code*."""
    report = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", report], capture_output=True, check=True)
    names: list[str] = json.loads(ran.stdout)
    return set(names)


def test_importing_the_runtime_loads_no_event_loop_database_or_terminal() -> None:
    loaded = loaded_by("import capsule_runtime")

    assert loaded & {"anyio", "asyncio", "trio", "sqlite3", "rich", "click", "subprocess"} == set()
    assert not any(name.startswith("capsule_runtime.host") for name in loaded)


def test_importing_the_runtime_prints_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import capsule_runtime"], capture_output=True, check=True
    )

    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_loading_the_native_driver_loads_no_more() -> None:
    loaded = loaded_by("from capsule_runtime import find_driver; find_driver('jsonl')")

    assert loaded & {"anyio", "asyncio", "trio", "sqlite3", "rich", "click"} == set()
