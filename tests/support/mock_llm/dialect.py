"""What a provider's dialect must do for the server: read a request, say an answer, say a failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from support.mock_llm.plan import Answer, Asked, Json, Served, Step


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its name, where the dialect names them, and its data."""

    name: str | None
    data: object
    is_usage: bool = False
    """Whether a client that got this knows the usage of the answer."""


class Dialect(Protocol):
    """One provider's way to ask and to answer."""

    def read(self, body: Json, path: str) -> Asked:
        """Return what is asked for."""
        ...

    def stream(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        """Yield *answer* as events; after those of a step, the step, for its pauses."""
        ...

    def whole(self, asked: Asked, answer: Answer, served: Served) -> object:
        """Return *answer* as one JSON document."""
        ...

    def usage(self, served: Served) -> dict[str, int]:
        """Return what was served, in our terms: cache beside input, reasoning inside output."""
        ...

    def begun(self, served: Served) -> dict[str, int] | None:
        """Return what of it a client knows before the answer is whole."""
        ...

    def failure(self, status: int) -> object:
        """Return the document of an HTTP error."""
        ...


def words_of(content: object) -> str:
    """Return the words in a message's *content*, a text or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = cast("list[Json]", content)
    return "\n".join(str(part.get("text") or "") for part in parts)
