"""Words on a command line that are for the harness: those behind `--`."""

from __future__ import annotations

import click


class CommandWithWords(click.Command):
    """A command whose words after `--` are for the harness."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["harness_words"] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORD...]"]
