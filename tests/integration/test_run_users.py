"""The users of runs that root starts are nobody else's as long as anything of a run is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_runtime.host.run_users import COUNT, FIRST, RunUsers, lives, run_users

LEASES = """
import os, sys
from capsule_runtime.host.run_users import run_users
print(run_users().lease(), flush=True)
if sys.argv[1] == "hands-on" and os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
os._exit(0)
"""


@pytest.fixture
def users(tmp_path: Path) -> RunUsers:
    return RunUsers(os.open(tmp_path / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def test_a_number_is_leased_once(users: RunUsers) -> None:
    leased = [users.lease() for _ in range(100)]
    os.close(users.file)

    assert len(set(leased)) == 100
    assert all(FIRST <= user < FIRST + COUNT for user in leased)


def test_a_number_of_another_process_is_not_free(users: RunUsers, tmp_path: Path) -> None:
    taken = users.lease()
    other = RunUsers(os.open(tmp_path / "users", os.O_RDWR | os.O_CLOEXEC))

    is_free = other.is_free(taken)
    users.release(taken)
    is_free_then = other.is_free(taken)
    for one in (users, other):
        os.close(one.file)

    assert (is_free, is_free_then) == (False, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root leases users")
@pytest.mark.parametrize(("how", "is_kept"), [("hands-on", True), ("leaves", False)])
def test_whoever_inherits_the_leases_keeps_them(how: str, is_kept: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEASES, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        user = int(process.stdout.readline())
        process.wait()
        still_kept = not run_users().is_free(user)

    assert still_kept == is_kept


SURVIVOR = "import os, sys; os.setuid(int(sys.argv[1])); print(flush=True); sys.stdin.read()"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root leases users")
def test_a_user_of_whom_a_process_is_left_stays_leased_and_is_no_later_supervisors(
    users: RunUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = users.lease()
    later = RunUsers(os.open(tmp_path / "users", os.O_RDWR | os.O_CLOEXEC))
    drawn = [(user - FIRST).to_bytes(2, "big"), (user - FIRST ^ 1).to_bytes(2, "big")]

    def draw(_: int) -> bytes:
        return drawn.pop(0)

    monkeypatch.setattr(os, "urandom", draw)
    with subprocess.Popen(
        [sys.executable, "-c", SURVIVOR, str(user)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as survivor:
        assert survivor.stdout is not None
        survivor.stdout.readline()
        is_seen = lives(user)
        users.release(user)
        is_free_while_we_live = later.is_free(user)
        os.close(users.file)
        other = later.lease()
        is_free_of_locks = later.is_free(user)
    is_seen_afterwards = lives(user)
    os.close(later.file)

    assert (is_seen, is_seen_afterwards) == (True, False)
    assert not is_free_while_we_live
    assert is_free_of_locks
    assert other == (FIRST + (user - FIRST ^ 1))
