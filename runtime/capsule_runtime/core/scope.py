"""How a scoped run is kept, which shares the machine's root: filters, a broker, a user of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from capsule_runtime.core.doors import NO_DOORS, DoorPlan
from capsule_runtime.core.grants import is_beneath
from capsule_runtime.core.seal import Shift

ETC = """
    ld.so.cache ld.so.conf ld.so.conf.d ssl ca-certificates ca-certificates.conf alternatives
    localtime timezone nsswitch.conf passwd group hosts resolv.conf host.conf gai.conf services
    protocols mime.types os-release debian_version locale.alias default/locale gitconfig
    bash.bashrc profile profile.d shells login.defs python3 python3.11 python3.12 python3.13 npmrc
    inputrc terminfo
""".split()
"""What a program reads there that does no more than run; nothing that holds a secret."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINALS = ("/dev/ptmx", "/dev/pts")
"""To run a program on a terminal of its own. Only for a run whose user nobody else is: the terminals
of others are kept by their modes, and a plain user's runs are that user."""


class Scope(Struct, frozen=True):
    """What is put up beside Landlock."""

    told: bytes
    """The program that hands to the broker what it does for the run."""
    refused: bytes
    """The program that refuses."""
    roots: tuple[str, ...]
    """Beneath which the broker changes files for the run."""
    user: int | None
    """Whom the harness becomes; None where it stays who the caller is."""
    shift: Shift | None
    doors: DoorPlan = NO_DOORS
    mediates: bool = True
    """Whether the broker can do its part; without it the run connects to nothing."""

    @property
    def owns(self) -> bool:
        """Whether what the run may write belongs to its user, on disk and not only in its eyes."""
        return self.user is not None and self.shift is None

    @property
    def program(self) -> tuple[bytes, bytes]:
        """Return both programs, as the child puts them up."""
        return self.told, self.refused


def shift_for(
    user: int | None, written: Iterable[str], read: Iterable[str], closed: Iterable[str]
) -> Shift | None:
    """Return what *user* is to see as its own: what it may write, and the *closed* folders above.

    A folder that others may not enter would keep the run from what lies in it, whatever it may do
    there. Shown as its own it can be entered; what it may open in it, Landlock says.
    """
    if user is None:
        return None
    above = tuple(_outermost(closed))
    return Shift(user, above + tuple(_beside(written, above)), tuple(_beside(read, above)))


def _outermost(paths: Iterable[str]) -> Iterator[str]:
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(is_beneath(path, one) for one in kept):
            kept.append(path)
            yield path


def _beside(paths: Iterable[str], above: tuple[str, ...]) -> Iterator[str]:
    """Yield what of *paths* is not shown as the run's own already. None twice."""
    for path in _outermost(paths):
        if not any(is_beneath(path, one) for one in above):
            yield path
