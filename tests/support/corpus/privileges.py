"""Probes of rights, of the kernel's calls, and of what a machine can be taken over by."""

from __future__ import annotations

import fcntl
import os
import platform
import pty
import shutil
import stat
import struct
import termios

import pytest

from capsule_runtime.core.syscalls import NUMBERS
from support.corpus.probe import probe
from support.corpus.rig import Rig

_CALLS = (
    "io_uring_setup keyctl add_key request_key bpf userfaultfd perf_event_open ptrace"
    " process_vm_readv process_vm_writev kcmp pidfd_getfd open_by_handle_at name_to_handle_at"
    " memfd_secret personality swapon acct quotactl fanotify_init init_module kexec_load mbind"
)


@probe(17, "make calls that nobody needs", stated={"advisory": ("*",)})
async def make_calls(rig: Rig) -> list[str]:
    code = """
for pair in sys.argv[1:]:
    name, number = pair.split("=")
    if name == "personality":
        words = (ctypes.c_ulong(0x0040000),)
    else:
        words = tuple(ctypes.c_long(-1) for _ in range(6))
    refused = (errno.EPERM, errno.ENOSYS, errno.EACCES)
    route(name, lambda: "done" if call(int(number), *words) not in refused else "refused")
"""
    numbers = NUMBERS["aarch64" if platform.machine() == "aarch64" else "x86_64"]
    pairs = [f"{name}={numbers[name]}" for name in _CALLS.split() if name in numbers]
    x32 = f"x32={0x40000000 | numbers['socket']}"
    return await rig.successes(code, *pairs, "future=600", x32)


@probe(18, "make namespaces and mounts", stated={"advisory": ("user namespace", "clone")})
async def make_namespaces(rig: Rig) -> list[str]:
    code = """
def apart(deed):
    # In a process of its own, for it may do it to itself.
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if deed() == 0 else 1)
        finally:
            os._exit(1)
    return "done" if os.waitpid(child, 0)[1] == 0 else "refused"
names = {"user": 0x10000000, "network": 0x40000000, "mount": 0x20000, "pid": 0x20000000, "ipc": 0x8000000}
for name, flag in names.items():
    route(f"{name} namespace", lambda: apart(lambda: libc.unshare(flag)))
def private_then(deed):
    return apart(lambda: libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x44000, None) or deed())
route("mount", lambda: private_then(lambda: libc.mount(b"none", b".", b"tmpfs", 0, None)))
route("bind", lambda: private_then(lambda: libc.mount(b"/", b".", None, 4096, None)))
route("plain mount", lambda: apart(lambda: libc.unshare(0x20000) and libc.mount(b"none", b".", b"tmpfs", 0, None)))
route("user and mount", lambda: apart(lambda: libc.unshare(0x10020000) or libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
def setns():
    file = os.open("/proc/1/ns/net", os.O_RDONLY)
    return libc.setns(file, 0)
route("join", lambda: apart(setns))
NEW = {"open_tree": (428, -100, b"/", 1), "fsopen": (430, b"tmpfs", 0)}
for name, words in NEW.items():
    route(name, lambda: apart(lambda: call(*words)))
route("chroot", lambda: apart(lambda: libc.chroot(b".")))
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
def cloned():
    made = libc.syscall(clone, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)
    if made == 0:
        os._exit(0)
    return 0 if made > 0 else 1
route("clone", lambda: apart(cloned))
"""
    return await rig.successes(code)


@probe(21, "type into the caller's terminal")
async def type_into_a_terminal(rig: Rig) -> list[str]:
    code = """
import fcntl
def type(number):
    terminal = os.open(sys.argv[1], os.O_RDWR)
    libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
    if libc.ioctl(terminal, number, b"x"):
        raise OSError(ctypes.get_errno(), "ioctl")
    os.close(terminal)
route("TIOCSTI", lambda: type(0x5412))
route("high bits", lambda: type(0x5412 | 1 << 32))
"""
    master, terminal = pty.openpty()
    try:
        settings = termios.tcgetattr(terminal)
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(terminal, termios.TCSANOW, settings)
        os.chmod(os.ttyname(terminal), 0o666)
        await rig.tries(code, os.ttyname(terminal))
        typed = struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)))[0]
    finally:
        os.close(master)
        os.close(terminal)
    return ["typed"] if typed else []


@probe(22, "gain rights", stated={"advisory": ("is root",)})
async def gain_rights(rig: Rig) -> list[str]:
    code = """
import resource, subprocess
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
route("capabilities", lambda: "done" if int(status["CapEff"], 16) else "none")
route("bounding set", lambda: "done" if int(status["CapBnd"], 16) and os.getuid() == 0 else "none")
route("may gain some", lambda: "done" if status["NoNewPrivs"].strip() == "0" else "no")
route("is root", lambda: "done" if 0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()) else "no")
route("setuid", lambda: done(os.setuid(0)) if os.getuid() else "is root already")
def rise():
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard + 1 if hard >= 0 else hard))
    return "done" if hard >= 0 else "unlimited"
route("raise a limit", rise)
def setuid_program():
    said = subprocess.run(["./id", "-u"], capture_output=True).stdout
    return "done" if int(said) != os.getuid() else "the same"
route("setuid program", setuid_program)
def spare():
    now = int(read("/proc/self/oom_score_adj"))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(now - 500))
    return "done"
route("be spared", spare)
"""
    if os.geteuid() == 0:
        shutil.copy("/usr/bin/id", rig.workdir / "id")
        os.chown(rig.workdir / "id", 12345, 12345)
        (rig.workdir / "id").chmod(0o4755)
    return await rig.successes(code)


@probe(23, "open devices, and make some", needs_root=True)
async def open_devices(rig: Rig) -> list[str]:
    code = """
for name in ("mem", "kmsg", "sda", "vda", "fuse", "kvm", "net/tun", "uinput", "loop-control", "vsock", "mapper/control"):
    route(name, lambda: done(os.close(os.open("/dev/" + name, os.O_RDWR | os.O_NONBLOCK))))
route("block", lambda: os.mknod("block", 0o060666, os.makedev(254, 0)))
route("char", lambda: os.mknod("char", 0o020666, os.makedev(1, 11)))
route("zero", lambda: os.mknod("zero", 0o020666, os.makedev(1, 5)))
"""
    opened = await rig.successes(code)
    made = [path.name for path in rig.workdir.iterdir() if _is_device(path.lstat().st_mode)]
    return [*opened, *made]


def _is_device(mode: int) -> bool:
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


@probe(
    46,
    "read what the kernel tells of the whole machine",
    stated={
        "advisory": ("*",),
        "scoped": ("*",),
        "sealed": ("mounts", "load", "memory"),
    },
)
async def read_kernel_words(rig: Rig) -> list[str]:
    code = """
route("addresses", lambda: "done" if any(int(line.split()[0], 16) for line in read("/proc/kallsyms").splitlines()[:9]) else "hidden")
route("timers", lambda: done(read("/proc/timer_list")))
route("mounts", lambda: "done" if sys.argv[1].encode() in read("/proc/self/mountinfo") else "not named")
route("load", lambda: done(read("/proc/loadavg")))
route("memory", lambda: done(read("/proc/meminfo")))
route("messages", lambda: done(os.close(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK))))
route("core", lambda: done(os.close(os.open("/proc/kcore", os.O_RDONLY))))
"""
    return await rig.successes(code, rig.folder)


@probe(47, "leave its cgroups", needs_root=True)
async def leave_cgroups(rig: Rig) -> list[str]:
    code = """
import glob
before = read("/proc/self/cgroup")
def move(path):
    with open(path, "w") as file:
        file.write("0")
for path in [*glob.glob("/sys/fs/cgroup/cgroup.procs"), *glob.glob("/sys/fs/cgroup/*/cgroup.procs"), *glob.glob("/sys/fs/cgroup/*/tasks")]:
    try:
        move(path)
        route(path, lambda: "done")
    except OSError:
        pass
for path in glob.glob("/sys/fs/cgroup/*/release_agent"):
    route(path, lambda: done(os.close(os.open(path, os.O_WRONLY))))
route("nothing", lambda: "")
"""
    return ["moved"] if await rig.successes(code) else []


# An exit with the number 42, by the calls that a 32-bit program makes.
_EXIT_42 = bytes.fromhex("b801000000bb2a000000cd80")


def elf32(code: bytes) -> bytes:
    """Return a 32-bit program of x86 that does *code*."""
    base, header = 0x08048000, 52 + 32
    size = header + len(code)
    ident = b"\x7fELF\x01\x01\x01" + bytes(9)
    head = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + header, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    return ident + head + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096) + code


@probe(
    51,
    "make calls as a 32-bit program does",
    stated={"advisory": ("*",)},
    nowhere="" if platform.machine() == "x86_64" else "this machine has no 32-bit calls",
)
async def make_32_bit_calls(rig: Rig) -> list[str]:
    code = """
import subprocess
os.chmod("program", 0o700) if os.stat("program").st_uid == os.getuid() else None
route("program", lambda: "done" if subprocess.run(["./program"]).returncode == 42 else "refused")
def inline():
    import mmap
    child = os.fork()
    if child == 0:
        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(bytes.fromhex(sys.argv[1]))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        ctypes.CFUNCTYPE(None)(address)()
        os._exit(1)
    return "done" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42 else "refused"
route("int 0x80", inline)
"""
    if platform.machine() != "x86_64":
        return []
    program = rig.workdir / "program"
    program.write_bytes(elf32(_EXIT_42))
    program.chmod(0o755)
    return await rig.successes(code, _EXIT_42.hex())


@probe(52, "put up a sandbox of its own inside", stated={"advisory": ("bwrap",)})
async def nest_a_sandbox(rig: Rig) -> list[str]:
    code = """
import subprocess
argv = ["/usr/bin/bwrap", "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "/bin/true"]
# It must fail, and soon: a harness's own sandbox that hangs would hang the run.
route("bwrap", lambda: "done" if subprocess.run(argv, timeout=10, stderr=-3).returncode == 0 else "refused")
"""
    if not os.path.exists("/usr/bin/bwrap"):
        pytest.skip("bubblewrap is not installed")
    return await rig.successes(code)
