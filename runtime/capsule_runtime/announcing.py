"""The entries by which a run and its attempt are announced, made of a request that was checked."""

from __future__ import annotations

from capsule_runtime.core.facts import AttemptStarted, Created
from capsule_runtime.host.capsule import Launch
from capsule_runtime.host.rows import ContextRow
from capsule_runtime.request import Ready


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
