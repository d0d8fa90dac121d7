"""`capsule completions`: a script that lets a shell complete our words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from capsule_runtime.cli.output import write_stdout
from capsule_runtime.cli.printer import shown

_PROGRAM = "capsule"
_VARIABLE = "_CAPSULE_COMPLETE"


@click.command("completions", epilog='Example: eval "$(capsule completions bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completions_command(ctx: click.Context, shell: str) -> int:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click knows these three
    script = kind(ctx.find_root().command, {}, _PROGRAM, _VARIABLE)
    # Not `source()`: that starts a bash to ask for its version, and complains where there is none.
    write_stdout(shown(script.source_template % script.source_vars()))
    return 0
