"""Have a run's tree buried, whatever becomes of those who should do it."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread

from capsule_runtime.core.actions import Burial
from capsule_runtime.errors import HostError
from capsule_runtime.host.leftovers import remove_cage
from capsule_runtime.host.machine import find_machine
from capsule_runtime.host.strays import kill_strays
from capsule_runtime.host.tree import Tree

NOT_PROVED = Burial(killed=0, left=None, milliseconds=0)
"""Nobody could say that the tree is empty."""


async def buried(tree: Tree, trouble: Callable[[str], None]) -> Burial:
    """Wait for the empty *tree*. That it cannot be had is told as a *trouble*, not raised."""
    try:
        burial = await tree.buried()
    except HostError as exc:
        trouble(exc.message)
        if strays := await kill_strays(tree.run):
            trouble(f"{strays} processes that carry the run's name were killed")
        places = find_machine().cgroups.places
        await anyio.to_thread.run_sync(remove_cage, places, tree.cage)
        return NOT_PROVED
    return Burial(burial.killed, burial.left, burial.milliseconds)


async def bury(tree: Tree, trouble: Callable[[str], None]) -> None:
    """Bury *tree* on the way out of a failure. `buried` is bounded."""
    with anyio.CancelScope(shield=True):
        tree.bury()
        await buried(tree, trouble)
