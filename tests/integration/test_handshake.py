"""The talk with a child that is about to become a harness."""

from __future__ import annotations

import marshal
import os
import socket

from capsule_runtime.host.handshake import Handshake, open_talk


def say_and_die(theirs: socket.socket) -> None:
    with theirs:
        child = os.fork()
        if child == 0:
            theirs.send(marshal.dumps(("here", {})))
            os._exit(0)
        os.waitpid(child, 0)


async def test_a_child_that_was_killed_after_its_word_is_no_harness() -> None:
    ours, theirs = open_talk()
    say_and_die(theirs)
    talk = Handshake(ours)

    heard = await talk.hear()

    talk.close()
    assert heard is None
