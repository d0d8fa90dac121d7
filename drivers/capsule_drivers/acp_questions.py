"""What an ACP agent asks for permission, and how that is answered."""

from __future__ import annotations

from collections.abc import Sequence

from capsule_drivers.acp_tools import Tools
from capsule_drivers.acp_wire import Option, Params, Update, choice_line
from capsule_runtime import Decision, Permission, Refused, Send


class Questions:
    """The questions of one conversation; each is put once and answered once."""

    def __init__(self, tools: Tools, *, allows_all: bool) -> None:
        self._tools, self._allows_all = tools, allows_all
        self._open: dict[str, tuple[int | str, Sequence[Option]]] = {}
        self._seen: set[int | str] = set()
        self._is_withdrawn = False

    def is_new(self, id: int | str) -> bool:
        """Whether the question *id* was not heard before."""
        return id not in self._seen

    def asked(self, id: int | str, params: Params) -> Permission | Send:
        """Return the question for whoever decides, or the answer if nobody has to."""
        self._seen.add(id)
        if self._is_withdrawn:
            return Send(choice_line(id, None))
        if self._allows_all:
            return Send(choice_line(id, _chosen(params.options, True)))
        self._open[str(id)] = (id, params.options)
        name, input = self._tools.known(params.tool_call or Update())
        return Permission(str(id), name, input, [option.option_id for option in params.options])

    def answer(self, id: str, decision: Decision) -> Send | None:
        """Return what answers the question *id*, if it is open."""
        if (asked := self._open.pop(id, None)) is None:
            return None
        return Send(choice_line(asked[0], _chosen(asked[1], not isinstance(decision, Refused))))

    def withdraw(self) -> bytes:
        """Return what answers all that is open; what is asked from now on is not allowed."""
        self._is_withdrawn = True
        lines = [choice_line(id, None) for id, _ in self._open.values()]
        self._open.clear()
        return b"".join(lines)


def _chosen(options: Sequence[Option], allow: bool) -> str | None:
    """Return the option that allows (or rejects) once; else the one for good."""
    word = "allow" if allow else "reject"
    for kind in (f"{word}_once", f"{word}_always"):
        for option in options:
            if option.kind == kind and option.option_id:
                return option.option_id
    return None
