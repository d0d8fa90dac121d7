"""How a run and its attempt are announced, to the log and to a driver, made of a checked request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from capsule_runtime.core.facts import AttemptStarted, Created
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.run import Run
from capsule_runtime.host.capsule import Launch, Task
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.redacting import redacted_run
from capsule_runtime.request import Ready

if TYPE_CHECKING:
    from capsule_runtime.core.gateway.reservations import Account
    from capsule_runtime.core.prices import PriceTable
    from capsule_runtime.core.redactor import Redactor


def created_run(
    owner: str, ready: Ready, context: ContextRow, seq: int, at: str, run: str
) -> Created:
    """Return the first entry of a run's log."""
    return Created(
        seq,
        at,
        run,
        owner=owner,
        capsule_dir=str(ready.capsule.folder),
        manifest=ready.capsule.manifest,
        context=context.name,
        context_uuid=context.uuid,
        message=ready.request.message,
        workdir=str(ready.workdir),
        digest=ready.standing.asks.digest,
        workdir_mode=ready.workdir_mode,
        why_copy=ready.why_copy,
        setting=context.setting,
    )


def attempt_started(
    owner: str, ready: Ready, launch: Launch, session: str | None, seq: int, at: str, run: str
) -> AttemptStarted:
    """Return the entry that announces the launch."""
    harness, terms = ready.capsule.manifest.harness, ready.terms
    return AttemptStarted(
        seq,
        at,
        run,
        attempt=1,
        owner=owner,
        driver=harness.driver,
        argv=launch.argv,
        env_names=tuple(sorted(launch.env)),
        containment=ready.shell.tier,
        limits=ready.limits,
        model=ready.model,
        session=session,
        grants=ready.grants,
        ledger=terms.ledger,
        spend=terms.spend,
        ceilings=terms.ceilings,
        day=terms.day or None,
        on_permission=ready.on_permission,
        version=ready.installed.version if ready.installed else None,
    )


def task_of(
    run: str,
    ready: Ready,
    context: ContextRow,
    network: Mapping[str, str],
    gateway: Mapping[str, str],
    redactor: Redactor | None,
) -> Task:
    """Return what a driver plans the launch of *run* from.

    *network* are the variables of its doors, *gateway* those by which it calls models.
    """
    request = ready.request
    return Task(
        run=run,
        context=context.name,
        message=request.message,
        args=request.args,
        env={**ready.env, **gateway},
        model=request.model,
        session=context.session if ready.capsule.described.resumes else None,
        memory=context.memory,
        limits=ready.limits,
        network=dict(network),
        redactor=redactor,
    )


def new_run(
    run: str,
    ready: Ready,
    context: ContextRow,
    prices: PriceTable | None,
    account: Account | None,
    redactor: Redactor | None,
) -> Run:
    """Return *run* as it begins; *account* is the gateway's, where that has all of its calls."""
    ledger = Ledger(ready.terms.ceilings, prices, account=account)
    begin = Run if redactor is None else redacted_run(redactor)
    return begin(run, context.name, ledger=ledger, on_permission=ready.on_permission)
