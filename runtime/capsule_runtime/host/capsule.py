"""Read a capsule from disk and get ready to launch it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from capsule_runtime.core.grants import Capabilities
from capsule_runtime.core.sandbox_plan import WallPlan
from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.driver import (
    Description,
    Driver,
    LaunchPlan,
    LaunchRequest,
    find_driver,
)
from capsule_runtime.errors import ManifestError, UsageError
from capsule_runtime.host.describing import check_keys, described_by, planned_by
from capsule_runtime.host.footprint import find_program, search_path
from capsule_runtime.host.native import native_program
from capsule_runtime.manifest import (
    MANIFEST_NAME,
    Harness,
    Manifest,
    convert_config,
    parse_manifest,
)
from capsule_runtime.messages import Message

if TYPE_CHECKING:
    from capsule_runtime.core.redactor import Redactor

AGENT_PATH = Path(__file__).parents[1] / "agent"
_TEXT_BYTES = 1024 * 1024
_PASSED_ON = ("LANG", "LANGUAGE", "TZ")


class Capsule(Struct, frozen=True):
    """A capsule as it stands on disk, checked, with its driver."""

    folder: Path
    manifest: Manifest
    driver: Driver
    config: Struct
    system_prompt: str | None
    described: Description
    """What the driver says of its harness, as it is configured."""
    is_bare: bool = False
    """Whether it is a harness as it is, and its folder that of somebody's work."""


class Places(Struct, frozen=True):
    """The folders of one run and of its context. All absolute."""

    run: Path
    out: Path
    home: Path
    tmp: Path
    workdir: Path
    """Where the harness works: the original, or the copy."""
    original: Path
    """The work directory that the caller named."""
    workdir_mode: WorkdirMode
    agent: Path = AGENT_PATH
    """What helps agents in Python."""


class Task(Struct, frozen=True):
    """What one attempt is to do, and for whom."""

    run: str
    context: str
    message: Message
    args: tuple[str, ...]
    env: Mapping[str, str]
    model: str | None
    session: str | None
    memory: bytes | None
    limits: dict[str, float]
    network: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that lead programs to the doors of the run."""
    awaited: tuple[str, ...] = ()
    """Variables that nobody has granted yet, in a plan: that they are not given is no matter."""
    redactor: Redactor | None = None
    """What keeps the secrets among *env* out of what goes wrong."""


class Launch(Struct, frozen=True):
    """A harness ready to be started: absolute program, whole environment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    plan: LaunchPlan
    walls: WallPlan | None = None
    launcher: str = ""
    """The program by which the one that is started was found."""


def load_capsule(folder: Path) -> Capsule:
    """Read the capsule in *folder*.

    Raises:
        UsageError: there is no capsule.
        ManifestError: its manifest is wrong.
        HarnessError: its driver is not installed.
    """
    path = folder / MANIFEST_NAME
    try:
        text = _read_text(path)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise UsageError(
            "E-USE-003",
            f"there is no {MANIFEST_NAME} in {folder}",
            "`capsule init DIR` writes one.",
        ) from exc
    except (OSError, ValueError) as exc:
        raise ManifestError("E-MAN-005", f"{path} cannot be read: {exc}") from exc
    return ready_capsule(folder, parse_manifest(text, str(path)), text)


def bare_capsule(driver: str, folder: Path, asks: Capabilities) -> Capsule:
    """Return a capsule with the harness of *driver* as it is, as if it lay in *folder*.

    It *asks* for what its caller says.

    Raises:
        HarnessError: the driver is not installed.
        UsageError: E-USE-036, it has no harness of its own.
    """
    # A capsule's name follows rules that the name of anybody's driver need not.
    name = re.sub(r"[^a-z0-9._-]", "-", driver.lower()).lstrip("._-")[:64] or "harness"
    capsule = ready_capsule(folder, Manifest(name, Harness(driver), capabilities=asks))
    if not capsule.described.command:
        raise UsageError(
            "E-USE-036",
            f"the driver {driver!r} has no harness of its own to run",
            "Write a capsule that names the command: `capsule init DIR` writes one to start from.",
        )
    return replace(capsule, is_bare=True)


def ready_capsule(folder: Path, manifest: Manifest, text: str = "") -> Capsule:
    """Find the driver for *manifest* and check what only the driver and the disk can."""
    path = str(folder / MANIFEST_NAME)
    for word in (*manifest.harness.command, *manifest.harness.args):
        if word.startswith("./") and os.path.normpath(word).startswith(".."):
            raise ManifestError(
                "E-MAN-009",
                f"{path}: harness: {word!r} leads out of the capsule",
                "Write an absolute path for what is not part of it.",
            )
    driver = find_driver(manifest.harness.driver)()
    config = convert_config(manifest.harness.config, driver.Config, path, text)
    described = described_by(driver, config, manifest.harness.driver)
    if manifest.harness.version and (why := _cannot_tell_version(described, manifest)):
        raise ManifestError(
            "E-MAN-006", f"{path}: harness.version is set, but {why}", "Leave harness.version out."
        )
    prompt = _system_prompt(folder, manifest)
    return Capsule(folder.resolve(), manifest, driver, config, prompt, described)


def _cannot_tell_version(described: Description, manifest: Manifest) -> str:
    if manifest.harness.command:
        return "harness.command is too, and what a capsule brings is not run to ask for its version"
    if not described.version_args:
        return f"the driver {manifest.harness.driver!r} cannot tell which version a harness has"
    return ""


def plan_launch(capsule: Capsule, places: Places, task: Task) -> Launch:
    """Return how the harness is started on *task*.

    Raises:
        HarnessError: its program is not on this machine, or the driver refuses.
    """
    harness, told = capsule.manifest.harness, capsule.described
    request = LaunchRequest(
        run=task.run,
        context=task.context,
        message=task.message,
        command=_inside(capsule.folder, harness.command or capsule.described.command),
        args=(*_inside(capsule.folder, harness.args), *task.args),
        config=capsule.config,
        home=str(places.home),
        workdir=str(places.workdir),
        tmp=str(places.tmp),
        out=str(places.out),
        agent_path=str(places.agent),
        limits=task.limits,
        env=task.env,
        session=task.session,
        memory=task.memory,
        model=task.model or harness.model,
        system_prompt=capsule.system_prompt,
    )
    check_keys(told, {**dict.fromkeys(task.awaited, "-"), **task.env}, harness.driver)
    clean = task.redactor.text if task.redactor else str
    plan = planned_by(capsule.driver, request, harness.driver, clean)
    env = _environment(places, task.run, {**task.network, **plan.env}, task.env)
    found = find_program(plan.argv[0], env["PATH"], "" if harness.command else told.install)
    argv = (native_program(found, told.native), *plan.argv[1:])
    return Launch(argv, env, str(places.workdir), plan, launcher=found)


def _environment(
    places: Places, run: str, planned: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Build the harness's environment from nothing. The caller goes before the driver."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
    return {
        "PATH": search_path(None),
        **passed,
        "HOME": str(places.home),
        "TMPDIR": str(places.tmp),
        "TERM": "dumb",
        # What Python would leave beside an agent's modules would end the trust in the capsule.
        "PYTHONDONTWRITEBYTECODE": "1",
        **planned,
        **given,
        "CAPSULE_RUN": run,  # also the mark by which what escaped everything else is found
        "CAPSULE_OUT": str(places.out),
    }


def _inside(folder: Path, words: tuple[str, ...]) -> tuple[str, ...]:
    """Resolve the words that begin with ./ inside the capsule, whatever the work directory is."""
    return tuple(
        str(folder.resolve() / word[2:]) if word.startswith("./") else word for word in words
    )


def _system_prompt(folder: Path, manifest: Manifest) -> str | None:
    harness = manifest.harness
    if harness.system_prompt_file is None:
        return harness.system_prompt
    place = f"{folder / MANIFEST_NAME}: harness.system_prompt_file"
    if harness.system_prompt is not None:
        raise ManifestError(
            "E-MAN-007", f"{place}: system_prompt is set too", "Keep one of the two."
        )
    try:
        path = (folder / harness.system_prompt_file).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ManifestError("E-MAN-008", f"{place}: {path} is outside the capsule")
        return _read_text(path)
    except (OSError, ValueError, RuntimeError) as exc:  # a loop of links is a RuntimeError
        raise ManifestError("E-MAN-008", f"{place} cannot be read: {exc}") from exc


def _read_text(path: Path) -> str:
    """Read a text file of an author's, which may be a device, a pipe or endless.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a text of at most 1 MiB.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        text = file.read(_TEXT_BYTES + 1)
    if len(text) > _TEXT_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return text.decode("utf-8-sig")
