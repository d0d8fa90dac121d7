"""`capsule doctor`: what holds on this machine, and what helps where something does not."""

from __future__ import annotations

import click

from capsule_runtime.cli.options import json_option
from capsule_runtime.cli.output import write_json, write_stdout
from capsule_runtime.cli.printer import Shown, shown, shown_line
from capsule_runtime.core.diagnosis import Diagnosis
from capsule_runtime.diagnosing import examine


@click.command("doctor", epilog="Example: capsule doctor --json")
@json_option
def doctor_command(as_json: bool) -> int:
    """Try every wall by doing the forbidden thing, behind it and without it."""
    diagnosis = examine()
    write_json(diagnosis) if as_json else write_stdout(_page(diagnosis))
    return 0


def _page(diagnosis: Diagnosis) -> Shown:
    found = diagnosis.mechanism
    landlock = f"ABI {found.landlock_abi}" if found.landlock_abi else "none"
    lines = [f"tier {diagnosis.tier}; Landlock {landlock}; {found.cgroup} for limits", ""]
    for tier in diagnosis.tiers:
        held = f"can be had: {tier.how}" if tier.is_had else f"cannot be had: {tier.why}"
        lines.append(f"{tier.tier:<8}  {shown_line(held)}")
        if tier.fix and not tier.is_had:
            lines.append(f"{'':<8}  {tier.fix}")
    lines.append("")
    column = max(len(trial.tries) for trial in diagnosis.trials)
    for trial in diagnosis.trials:
        why = shown_line(trial.why)
        lines.append(f"{trial.verdict:<8}  {trial.tries:<{column}}  {why}")
        if trial.fix:
            lines.append(f"{'':<8}  {trial.fix}")
    lines += ["", *(f"missing   {one.axis}: {one.want} ({one.why})" for one in diagnosis.missing)]
    return shown("".join(line.rstrip() + "\n" for line in lines))
