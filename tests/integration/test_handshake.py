"""The talk with a child that is about to become a harness."""

from __future__ import annotations

import marshal
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager

from capsule_runtime.host.handshake import Handshake, Here, open_talk


def say_and_die(theirs: socket.socket) -> None:
    with theirs:
        child = os.fork()
        if child == 0:
            theirs.send(marshal.dumps(("here", {})))
            os._exit(0)
        os.waitpid(child, 0)


@contextmanager
def said_by_who_is_dead(theirs: socket.socket) -> Generator[None]:
    """Have a child say a word, and end; it is reaped when the block ends."""
    with theirs:
        child = os.fork()
        if child == 0:
            theirs.send(marshal.dumps(("here", {})))
            os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        yield
    finally:
        os.waitpid(child, 0)


async def test_a_child_that_was_killed_after_its_word_is_no_harness() -> None:
    ours, theirs = open_talk()
    say_and_die(theirs)
    talk = Handshake(ours)

    heard = await talk.hear()

    talk.close()
    assert heard is None


async def test_a_user_of_thousands_of_groups_is_heard() -> None:
    capabilities = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
    report = {
        "landlock": 7,
        "rules": 0,
        "sees_root": False,
        "parent": 1,
        "reaches_parent": False,
        "limits": [],
        "descriptors": [0, 1, 2, 3],
        "users": list(range(5000)),
        "interfaces": ["lo"],
        "namespaces": {"net": 3},
        "numbers": [2, 2],
        **capabilities,
        **{"NoNewPrivs": "1", "Umask": "0077", "Seccomp": "0"},
    }
    ours, theirs = open_talk()
    with theirs:
        theirs.send(marshal.dumps(("here", report)))
    talk = Handshake(ours)

    heard = await talk.hear()

    talk.close()
    assert isinstance(heard, Here)
    assert heard.report is not None
    assert len(heard.report.users) == 5000


async def test_a_child_that_has_ended_but_was_not_reaped_is_no_harness() -> None:
    ours, theirs = open_talk()
    with said_by_who_is_dead(theirs):
        talk = Handshake(ours)
        heard = await talk.hear()

    talk.close()
    assert heard is None
