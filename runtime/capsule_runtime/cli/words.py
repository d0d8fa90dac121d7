"""What can be said of a command line before it is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from capsule_runtime.errors import UsageError


def asks_for_json(words: Sequence[str]) -> bool:
    """Tell whether the command line *words* is a program's, who reads errors as JSON too.

    Looked for in the words themselves, because errors of parsing them are reported as well.
    """
    ours = words[: words.index("--")] if "--" in words else words
    asked = {("--format", "jsonl"), ("--log-format", "json")}
    joined = {"=".join(pair) for pair in asked}
    return "--json" in ours or not joined.isdisjoint(ours) or not asked.isdisjoint(pairwise(ours))


def check_words(words: Sequence[str]) -> None:
    """Refuse words that are not text: they could not be written to the log.

    Raises:
        UsageError: a word holds bytes that are not UTF-8.
    """
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as exc:
            raise UsageError("E-USE-027", f"{word!r} is not UTF-8 text") from exc
