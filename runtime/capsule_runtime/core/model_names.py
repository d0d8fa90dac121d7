"""Which models a pattern of a price list means. Names and texts are in lower case."""

from __future__ import annotations

import re
from typing import Literal, assert_never

from msgspec import Struct

from capsule_runtime.errors import UsageError

_COMPACT_DATE = re.compile(r"-(20[0-9]{2})(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(?=[-:]|$)")


def check_model(name: str | None) -> None:
    """Check that *name*, if one is asked for, can be the name of a model in a harness's words.

    Raises:
        UsageError: E-USE-037, it cannot: a harness might take it for an option.
    """
    if name is not None and (name.startswith("-") or not name.isprintable() or not name.strip()):
        raise UsageError(
            "E-USE-037",
            f"{name!r} is no name of a model",
            "Write it as its provider does.",
        )


class Pattern(Struct, frozen=True, omit_defaults=True):
    """What a name must be like: *text*, in the way that *kind* says, or any or all *of* others."""

    kind: Literal["equals", "starts", "ends", "contains", "regex", "any", "all"]
    text: str = ""
    of: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "regex":
            try:
                re.compile(self.text)
            except re.error as exc:
                raise ValueError(f"{self.text!r} is no regular expression: {exc}") from exc

    def fits(self, name: str) -> bool:
        """Whether *name* is like that."""
        match self.kind:
            case "equals":
                return name == self.text
            case "starts":
                return name.startswith(self.text)
            case "ends":
                return name.endswith(self.text)
            case "contains":
                return self.text in name
            case "regex":
                return re.search(self.text, name) is not None
            case "any":
                return any(pattern.fits(name) for pattern in self.of)
            case "all":
                return all(pattern.fits(name) for pattern in self.of)
            case _:
                assert_never(self.kind)


def pattern_of(text: str) -> Pattern:
    """Return the pattern that a person means by *text*: a name, or its beginning and a `*`."""
    lower = text.lower()
    if lower.endswith("*"):
        return Pattern("starts", lower.removesuffix("*"))
    return Pattern("equals", lower)


def with_dashed_date(name: str) -> str:
    """Return *name* with a date like 20251211 in it written as 2025-12-11."""
    return _COMPACT_DATE.sub(r"-\1-\2-\3", name)
