"""Show a person what a capsule asks for, and ask whether it may have it."""

from __future__ import annotations

import os
import sys
import termios

from capsule_runtime.cli.failures import write_stderr
from capsule_runtime.cli.printer import Shown, shown, shown_line
from capsule_runtime.errors import TrustError
from capsule_runtime.request import RunRequest, grant, read_request
from capsule_runtime.trust import Look, look_at, trust

_STDIN, _STDERR = 0, 2
_LINKS_SHOWN = 20
ASKABLE = ("E-TRU-001", "E-TRU-002")
"""The refusals that a yes undoes."""


def offer_trust(request: RunRequest) -> None:
    """Offer the person at this terminal to trust the capsule, if it asks for more than it gets.

    Raises:
        CapsuleError: the run would be refused; the answer was not yes.
    """
    draft = read_request(request)
    if request.capsule is None or not draft.asks:
        return
    try:
        grant(draft)
    except TrustError as refusal:
        if refusal.code not in ASKABLE:
            raise
        look = look_at(request.capsule)
        changed = "It has changed since it was trusted.\n" if refusal.code == ASKABLE[1] else ""
        write_stderr(changed + page(look))
        if not asked("trust this capsule as it is now? [y/N] "):
            raise
        trust(look)


def can_ask() -> bool:
    """Tell whether a person can see a question and answer it."""
    return os.isatty(_STDIN) and os.isatty(_STDERR)


def asked(question: str) -> bool:
    """Ask a person, and tell whether the answer is yes. What was typed before does not count."""
    termios.tcflush(_STDIN, termios.TCIFLUSH)
    write_stderr(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def page(look: Look) -> Shown:
    """Return what a person should know before they trust a capsule."""
    manifest, digest = look.capsule.manifest, look.digest
    lines = [f"{manifest.name} {manifest.version} in {look.capsule.folder} asks for"]
    lines += [f"  {item}" for item in look.asks] or ["  nothing"]
    if digest.outward:
        lines.append("and holds links that lead out of its folder, to what may change unseen:")
        lines += [f"  {link}" for link in digest.outward[:_LINKS_SHOWN]]
        if (more := len(digest.outward) - _LINKS_SHOWN) > 0:
            lines.append(f"  and {more} more")
    lines.append(f"{digest.entries} entries, {digest.size} bytes, {digest.text}")
    indented = (line[: len(line) - len(line.lstrip())] + shown_line(line) for line in lines)
    return shown("".join(line + "\n" for line in indented))
