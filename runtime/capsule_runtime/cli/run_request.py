"""What `capsule run` was given on its command line, and the request that it makes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import click

from capsule_runtime.cli.inputs import STDIN, MessageReader, parse_variables
from capsule_runtime.cli.options import to_absolute
from capsule_runtime.cli.words import check_words
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.grants import Wish
from capsule_runtime.core.work import WorkdirMode
from capsule_runtime.request import RunRequest


class Given(NamedTuple):
    """The options and arguments as they were given."""

    capsule: str | None
    dash: str | None
    task: str | None
    task_file: str | None
    driver: str | None
    inputs: tuple[str, ...]
    workdir: str
    workdir_mode: WorkdirMode | None
    format: str
    timeout: float | None
    memory: int | None
    processes: int | None
    context: str | None
    wait: bool
    model: str | None
    variables: tuple[str, ...]
    result: str | None
    detach: bool
    containment: str | None
    upstream: str | None
    record: str | None
    playback: str | None
    playback_miss: Literal["strict", "lenient"]
    grants: tuple[str, ...]
    max_usd: int | None
    max_tokens: int | None
    max_turns: int | None
    max_tool_calls: int | None
    on_unmetered: Literal["refuse", "allow"]
    on_permission: Wish | None
    explain: bool
    as_json: bool
    log_level: str | None
    log_format: str


def without_capsule(given: Given) -> Given:
    """Take the first word for what it is where a driver stands for the capsule."""
    if given.driver and given.capsule == STDIN and given.dash is None:
        return given._replace(capsule=None, dash=STDIN)
    return given


def check(ctx: click.Context, given: Given) -> None:
    """Refuse what no single option can tell to be wrong. Raises as click wants it."""
    if given.capsule is None and given.driver is None:
        ctx.fail("missing argument 'CAPSULE', or a driver with --driver")
    if given.capsule is not None and given.driver is not None:
        ctx.fail(
            f"--driver {given.driver} runs a harness without a capsule, and {given.capsule!r} is one;"
            " a capsule names its own driver"
        )
    if given.dash not in (None, STDIN):
        ctx.fail(
            f"unexpected word {given.dash!r}; a task is given with --task, "
            "and words for the harness stand after --"
        )
    if given.dash and (given.task is not None or given.task_file):
        ctx.fail("the task was given twice: - reads it from stdin")
    if given.as_json and not given.explain:
        ctx.fail("--json goes with --explain; frames come with --format jsonl")
    if given.record and given.playback:
        ctx.fail("--record and --playback exclude each other: what is played was recorded before")
    if given.wait and not given.context:
        ctx.fail("--wait goes with --context: without one, no other run is in the way")


def request_of(given: Given, harness_words: tuple[str, ...]) -> RunRequest:
    """Build the request; this may read stdin."""
    capsule = None if given.capsule is None else to_absolute(given.capsule)
    workdir = to_absolute(given.workdir)
    check_words([str(capsule or ""), str(workdir)])
    task = STDIN if given.dash else given.task
    return RunRequest(
        capsule=capsule,
        message=MessageReader().read(task, given.task_file, given.inputs),
        workdir=workdir,
        workdir_mode=given.workdir_mode,
        context=given.context,
        model=given.model,
        args=harness_words,
        env=parse_variables(given.variables),
        wall_seconds=given.timeout,
        memory_bytes=given.memory,
        processes=given.processes,
        containment=given.containment,
        grants=given.grants,
        ceilings=Ceilings(
            given.max_usd,
            given.max_tokens,
            given.max_turns,
            given.max_tool_calls,
            given.on_unmetered,
        ),
        on_permission=given.on_permission,
        upstream=given.upstream,
        record=None if given.record is None else to_absolute(given.record),
        playback=None if given.playback is None else to_absolute(given.playback),
        on_miss=given.playback_miss,
        driver=given.driver,
    )
