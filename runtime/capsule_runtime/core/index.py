"""The derived index: what a listing shows of a run, computed from its log alone."""

from __future__ import annotations

from dataclasses import dataclass

from capsule_runtime.core.log import Record

_TASK_PREVIEW = 120


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What a listing shows of one run. Derived from its log, never the only copy."""

    id: str
    context: str
    capsule: str
    task: str
    state: str
    created_at: str
    outcome: str | None = None
    reason: str | None = None
    owner: str | None = None
    ended_at: str | None = None
    session: str | None = None


def index_row(record: Record) -> IndexRow | None:
    """Return the line for the run that *record* was folded from; None before it is created."""
    created, ended = record.created, record.ended
    if created is None:
        return None
    words = " ".join(created.message.text.split())
    return IndexRow(
        id=created.run,
        context=created.context,
        capsule=created.manifest.name,
        task=words if len(words) <= _TASK_PREVIEW else words[: _TASK_PREVIEW - 1] + "…",
        state=record.state,
        created_at=created.at,
        outcome=ended.outcome.value if ended else None,
        reason=ended.reason.value if ended else None,
        owner=record.attempt.owner if record.attempt else created.owner,
        ended_at=ended.at if ended else None,
        session=record.session.id if record.session else None,
    )
