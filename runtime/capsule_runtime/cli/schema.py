"""`capsule schema`: what our files and lines look like, for editors and other programs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from capsule_runtime.cli.output import write_bytes
from capsule_runtime.cli.result import Result
from capsule_runtime.config import Config
from capsule_runtime.core.facts import Fact
from capsule_runtime.events import Event
from capsule_runtime.frames import Frame
from capsule_runtime.manifest import Manifest

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SUBJECTS: dict[str, Any] = {
    "manifest": Manifest,
    "config": Config,
    "events": Event,
    "frames": Frame,
    "facts": Fact,
    "result": Result,
}


@click.command("schema", epilog="Example: capsule schema events > events.schema.json")
@click.argument("subject", type=click.Choice(list(_SUBJECTS)))
def schema_command(subject: str) -> int:
    """Print the JSON Schema of a manifest, config.toml, an event, a frame, a fact or a result."""
    described = msgspec.json.schema(_SUBJECTS[subject], schema_hook=_any_value)
    schema = {"$schema": _DIALECT, "title": subject, **described}
    write_bytes(msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n")
    return 0


def _any_value(kind: type) -> dict[str, Any]:
    """Return the schema of what may be any JSON value: the only type msgspec cannot describe."""
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError(kind)
