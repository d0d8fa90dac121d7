"""What a filter refuses is refused by the kernel here, and what programs need goes on working."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_runtime.core.seccomp import Profile
from capsule_runtime.core.syscalls import ARCHITECTURES, NUMBERS, known_machine
from capsule_runtime.host.filtering import find_filtering
from support.filtered import PATIENCE_SECONDS, RAW_CALLS, runs, tells

WHY_NOT = find_filtering().filters
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are filters")
PROFILES: tuple[Profile, ...] = ("sealed", "strict")
each_profile = pytest.mark.parametrize("profile", PROFILES)

TABLE = NUMBERS[known_machine(os.uname().machine)]
CALL = """
number, *arguments = map(int, sys.argv[1:])
print(json.dumps(call(number, *arguments)))
"""
BAD = 2**64 - 1


def ends(profile: Profile | None, call: str, *arguments: int) -> object:
    """Return the name of the error that *call* ends with behind *profile*, or `done`."""
    return tells(profile, CALL, *map(str, (TABLE[call], *arguments)))


@each_profile
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("unshare", (0,)),
        ("unshare", (0x10000000,)),
        ("setns", (BAD, 0)),
        ("mount", (0, 0, 0, 0, 0)),
        ("umount2", (0, 0)),
        ("pivot_root", (0, 0)),
        ("chroot", (0,)),
        ("open_tree", (BAD, 0, 0)),
        ("open_tree_attr", (BAD, 0, 0, 0, 0)),
        ("move_mount", (BAD, 0, BAD, 0, 0)),
        ("fsopen", (0, 0)),
        ("fsmount", (BAD, 0, 0)),
        ("mount_setattr", (BAD, 0, 0, 0, 0)),
        ("ptrace", (0, 0, 0, 0)),
        ("process_vm_readv", (1, 0, 0, 0, 0, 0)),
        ("process_vm_writev", (1, 0, 0, 0, 0, 0)),
        ("pidfd_getfd", (BAD, 0, 0)),
        ("kcmp", (1, 1, 0, 0, 0)),
        ("perf_event_open", (0, 0, 0, 0, 0)),
        ("bpf", (0, 0, 0)),
        ("userfaultfd", (0,)),
        ("keyctl", (0, BAD - 3, 1)),
        ("add_key", (0, 0, 0, 0, 0)),
        ("request_key", (0, 0, 0, 0)),
        ("memfd_secret", (0,)),
        ("move_pages", (0, 0, 0, 0, 0, 0)),
        ("personality", (0x40000,)),
        ("clone", (0x10000011, 0, 0, 0, 0)),
    ],
)
def test_what_is_not_offered(profile: Profile, call: str, arguments: tuple[int, ...]) -> None:
    assert ends(profile, call, *arguments) == "EPERM"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        *(("unshare", (0,)), ("keyctl", (0, BAD - 3, 1)), ("personality", (0x40000,))),
        *(("socket", (2, 2, 0)), ("socket", (1, 1, 0)), ("socket", (2, 1, 262))),
        *(("socket", (16, 3, 0)), ("shmget", (0, 4096, 0o600)), ("io_uring_setup", (0, 0))),
    ],
)
def test_without_a_filter_the_kernel_would_do_it(call: str, arguments: tuple[int, ...]) -> None:
    """Or ask for better arguments: so it is the filter that refuses."""
    assert ends(None, call, *arguments) in {"done", "EINVAL", "EFAULT"}


@each_profile
@pytest.mark.parametrize("call", ["io_uring_setup", "io_uring_enter", "clone3"])
def test_what_is_said_not_to_be_there(profile: Profile, call: str) -> None:
    assert ends(profile, call, 0, 0) == "ENOSYS"


@each_profile
def test_a_call_of_the_future_and_one_of_x32(profile: Profile) -> None:
    _, (_, newest) = ARCHITECTURES[known_machine(os.uname().machine)].reviewed

    assert tells(profile, CALL, str(newest + 1)) == "ENOSYS"
    assert tells(profile, CALL, str(0x40000000 | 39)) == "ENOSYS"


INTERRUPT_80 = """
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b8 14000000 cd80 c3"))  # getpid, the way of 32 bits
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(json.dumps(ctypes.CFUNCTYPE(ctypes.c_long)(address)() > 0))
"""


@each_profile
def test_a_call_the_way_of_32_bits_ends_the_process(profile: Profile) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("int 0x80 is an instruction of x86")
    argv = (sys.executable, "-I", "-S", "-c", RAW_CALLS + INTERRUPT_80)
    if runs(None, *argv).returncode != 0:
        pytest.skip("this kernel runs no programs of 32 bits")

    assert runs(profile, *argv).returncode == -signal.SIGSYS


# Sockets and terminals.


@each_profile
@pytest.mark.parametrize("family", [1, 16, 17, 38, 40, 43, 44, 31])
def test_families(profile: Profile, family: int) -> None:
    assert ends(profile, "socket", family, 1, 0) == "EACCES"
    assert ends(profile, "socket", family, 3, 0) == "EACCES"


@pytest.mark.parametrize(
    "arguments", [(2, 1, 262), (10, 1, 262), (2, 2, 0), (10, 2, 0), (2, 2, 136), (2, 3, 1)]
)
def test_on_the_hosts_network_no_mptcp_udp_or_raw_ip(arguments: tuple[int, ...]) -> None:
    assert ends("strict", "socket", *arguments) == "EACCES"


FAST_OPEN = """
import socket
ours = socket.socket()
try:
    print(json.dumps(ours.sendto(b"escaped", 0x20000000, ("127.0.0.1", int(sys.argv[1])))))
except OSError as exc:
    print(json.dumps(errno.errorcode[exc.errno]))
"""


def test_on_the_hosts_network_nothing_is_sent_while_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        free, filtered = tells(None, FAST_OPEN, port), tells("strict", FAST_OPEN, port)
        visitor, _ = server.accept()
        visitor.close()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()

    assert (free, filtered) == (7, "EPERM")


SERVE = """
import socket
try:
    print(json.dumps(socket.create_server(("127.0.0.1", 0)).getsockname()[1] > 0))
except OSError as exc:
    print(json.dumps(errno.errorcode[exc.errno]))
"""


def test_in_a_network_of_its_own_a_run_serves() -> None:
    assert tells("sealed", SERVE) is True


FILTER = """
import socket, struct
with socket.socket() as ours:
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))
    header = struct.pack("HP", 1, ctypes.addressof(program))
    try:
        ours.setsockopt(socket.SOL_SOCKET, 26, header)
        print(json.dumps("done"))
    except OSError as exc:
        print(json.dumps(errno.errorcode[exc.errno]))
"""


def test_on_the_hosts_network_the_filter_of_a_socket_stays() -> None:
    assert (tells(None, FILTER), tells("strict", FILTER)) == ("done", "EPERM")


PAIR = """
import os, socket
kind, path = int(sys.argv[1]), sys.argv[2]
try:
    ours, _ = socket.socketpair(socket.AF_UNIX, kind)
    ours.sendto(b"escaped", path)
    print(json.dumps("done"))
except OSError as exc:
    print(json.dumps(errno.errorcode[exc.errno]))
"""


@each_profile
def test_a_pair_of_sockets_reaches_none_in_a_file(profile: Profile, tmp_path: Path) -> None:
    path = str(tmp_path / "host")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(path)
        told = {kind: tells(profile, PAIR, str(int(kind)), path) for kind in (1, 2)}
        host.setblocking(False)
        with pytest.raises(BlockingIOError):
            host.recv(100)
        free = tells(None, PAIR, "2", path)

        assert (free, host.recv(100)) == ("done", b"escaped")
        assert told == {1: "EISCONN", 2: "EACCES"}


INJECT = """
import os, pty
_, terminal = os.openpty()
os.setsid()
import fcntl
fcntl.ioctl(terminal, 0x540E, 0)
letter = ctypes.create_string_buffer(b"x")
requests = [0x5412, 0x541C, 0x5412 | 1 << 40]
print(json.dumps([call(int(sys.argv[1]), terminal, one, ctypes.addressof(letter))
                  for one in requests]))
"""


@each_profile
def test_nothing_is_typed_into_a_terminal(profile: Profile) -> None:
    number = str(TABLE["ioctl"])

    assert tells(profile, INJECT, number) == ["EPERM"] * 3
    free = tells(None, INJECT, number)
    assert isinstance(free, list) and free[0] != "EPERM"


LIMIT = """
import os, resource
try:
    resource.prlimit(int(sys.argv[1]), resource.RLIMIT_CPU, (0, 0))
    print(json.dumps("done"))
except OSError as exc:
    print(json.dumps(errno.errorcode[exc.errno]))
"""


@pytest.mark.parametrize(("profile", "told"), [("strict", "EPERM"), (None, "done")])
def test_no_process_of_the_same_user_is_ended_by_a_limit(
    profile: Profile | None, told: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as victim:
        try:
            assert tells(profile, LIMIT, str(victim.pid)) == told
            if profile is None:
                assert victim.wait(PATIENCE_SECONDS) == -signal.SIGKILL
            assert profile is None or victim.poll() is None
        finally:
            victim.kill()


FLAGS = """
import os
file = os.open(sys.argv[2], os.O_RDONLY)
flags = ctypes.c_long(0x40)  # no dump
print(json.dumps(call(int(sys.argv[1]), file, 0x40086602, ctypes.addressof(flags))))
"""


def test_a_file_that_may_only_be_read_keeps_its_flags(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    assert tells("strict", FLAGS, str(TABLE["ioctl"]), str(file)) == "EPERM"
    assert tells(None, FLAGS, str(TABLE["ioctl"]), str(file)) != "EPERM"


# What goes on working.

ORDINARY = """
import asyncio, os, socket, subprocess, sys, tempfile, threading, multiprocessing
found = []
thread = threading.Thread(target=lambda: found.append(os.getpid()))
thread.start(); thread.join()
found.append(subprocess.run(["sh", "-c", "echo a | cat; exit 3"], capture_output=True).returncode)
async def both():
    process = await asyncio.create_subprocess_exec("true")
    await asyncio.to_thread(time.monotonic)
    return await process.wait()
import time
found.append(asyncio.run(both()))
with multiprocessing.get_context("fork").Pool(2) as pool:
    found.append(sum(pool.map(abs, [-1, -2])))
master, slave = os.openpty()
found.append(os.isatty(slave))
os.chmod(tempfile.mkstemp()[1], 0o600)
print(found[1:])
"""


@each_profile
def test_python(profile: Profile, tmp_path: Path) -> None:
    done = runs(profile, sys.executable, "-W", "ignore", "-c", ORDINARY, cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("[3, 0, 3, True]\n", "")


@each_profile
def test_a_shell_with_pipes_jobs_and_traps(profile: Profile, tmp_path: Path) -> None:
    script = (
        "trap 'echo bye' EXIT; (sleep 0 & wait); printf 'b\\na\\n' | sort > s; cat s; ls -l s >&2"
    )

    done = runs(profile, "/bin/sh", "-c", script, cwd=tmp_path)

    assert (done.stdout, done.returncode) == ("a\nb\nbye\n", 0)


@each_profile
def test_git(profile: Profile, tmp_path: Path) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    script = """set -e
        git init -q one; cd one; echo a > a; git add a
        git -c user.name=n -c user.email=e commit -qm one
        git gc -q; git clone -q . ../two; git -C ../two log --format=%s"""

    done = runs(profile, "/bin/sh", "-c", script, cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("one\n", "")


NODE = """
const { execFileSync } = require('child_process');
const fs = require('fs');
fs.writeFileSync('f', 'x'); fs.chmodSync('f', 0o600);
const worker = new (require('worker_threads').Worker)('', { eval: true });
worker.on('exit', () => fs.promises.readFile('f', 'utf8').then(
  (x) => console.log(x + execFileSync('echo', ['y']))));
"""


@each_profile
def test_node(profile: Profile, tmp_path: Path) -> None:
    if not shutil.which("node"):
        pytest.skip("node is not installed")

    done = runs(profile, "node", "-e", NODE, cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("xy\n\n", "")


def test_unix_sockets_where_they_are_granted(tmp_path: Path) -> None:
    code = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('here'); s.listen()"
    argv = (sys.executable, "-c", code)

    assert runs("sealed", *argv, cwd=tmp_path, unix_sockets=True).returncode == 0
    assert "PermissionError" in runs("sealed", *argv, cwd=tmp_path).stderr
