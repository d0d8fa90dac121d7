"""Probes of files: to read, to write and to describe what lies outside of a run's folders."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from capsule_runtime.errors import CapsuleError
from capsule_runtime.host.homes import collect_files
from capsule_runtime.host.own_paths import why_never
from support.corpus.probe import probe
from support.corpus.rig import Rig, user_of


@probe(1, "read a file outside by seven routes")
async def read_outside(rig: Rig) -> list[str]:
    code = """
path = sys.argv[1]
os.symlink(path, "link")
os.symlink(os.path.dirname(path), "folder")
route("absolute", lambda: read(path))
route("dots", lambda: read("../outside/secret"))
route("link", lambda: read("link"))
route("link to its folder", lambda: read("folder/secret"))
route("/proc/self/root", lambda: read("/proc/self/root" + path))
route("/proc/self/cwd", lambda: read("/proc/self/cwd/../outside/secret"))
route("/proc/1/root", lambda: read("/proc/1/root" + path))
"""
    return await rig.leaks(code, rig.secret)


@probe(2, "read the passwords of the machine", needs_root=True, stated={"advisory": ("*",)})
async def read_shadow(rig: Rig) -> list[str]:
    found = await rig.routes('route("/etc/shadow", lambda: read("/etc/shadow").splitlines()[0])')
    return [name for name, words in found.items() if words.startswith("b'root:")]


@contextmanager
def _places(rig: Rig) -> Generator[list[Path]]:
    """Yield files, of which none is there, in places outside."""
    name = f"capsule-probe-{rig.canary}"
    folders = [
        rig.outside,
        Path("/tmp"),
        Path("/var/tmp"),
        Path("/dev/shm"),
        Path("/run"),
        Path.home(),
    ]
    files = [folder / name for folder in folders if os.access(folder, os.W_OK)]
    try:
        yield files
    finally:
        for file in files:
            file.unlink(missing_ok=True)


@probe(
    3,
    "create, cut and change files outside",
    stated={"advisory": ("/tmp", "/dev/shm", "chmod")},
)
async def write_outside(rig: Rig) -> list[str]:
    code = """
for path in sys.argv[2:]:
    route(path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))
route("cut", lambda: os.truncate(sys.argv[1], 1))
route("append", lambda: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)))
route("chmod", lambda: os.chmod(sys.argv[1], 0o604))
"""
    with _places(rig) as files:
        await rig.tries(code, rig.secret, *files)
        seen = [str(file.parent) for file in files if file.exists()]
    found = rig.secret.stat()
    if found.st_size == 1:
        seen.append("cut")
    if stat.S_IMODE(found.st_mode) != 0o666:
        seen.append("chmod")
    return ["outside" if name == str(rig.outside) else name for name in seen]


@probe(4, "pull a file from outside into the work directory")
async def pull_in(rig: Rig) -> list[str]:
    code = """
route("link", lambda: os.link(sys.argv[1], "linked"))
route("rename", lambda: os.rename(sys.argv[1], "renamed"))
"""
    await rig.tries(code, rig.secret)
    linked = (rig.workdir / "linked").exists()
    return [
        name for name, is_so in (("link", linked), ("rename", not rig.secret.exists())) if is_so
    ]


@probe(5, "open the kernel's switches for writing", needs_root=True, stated={})
async def open_switches(rig: Rig) -> list[str]:
    code = """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger",
             "/proc/sys/vm/overcommit_memory", "/sys/kernel/uevent_helper", "/proc/self/../sys/kernel/core_pattern"):
    route(path, lambda: done(os.close(os.open(path, os.O_WRONLY))))
"""
    return await rig.successes(code)


@probe(27, "have the collector of results follow links, or wait for ever")
async def trap_the_collector(rig: Rig) -> list[str]:
    # HOME is another folder inside: the harness works in it.
    code = """
os.chdir(os.environ["HOME"] if len(sys.argv) < 3 else sys.argv[2])
os.symlink(sys.argv[1], "link")
os.symlink(os.path.dirname(sys.argv[1]), "folder")
os.mkfifo("fifo")
"""
    seen = rig.seen_home()
    await rig.tries(code, rig.secret, seen)
    names = ("link", "folder/secret", "fifo")
    if not rig.is_walled:
        return [name for name in names[:2] if rig.canary in (rig.cell.home / name).read_text()]
    found = collect_files(rig.cell.home, names)
    return [name for name, content in found.items() if rig.canary.encode() in content]


@probe(
    29,
    "run what it wrote",
    stated={"advisory": ("*",), "scoped": ("*",), "sealed": ("*",)},
)
async def run_what_it_wrote(rig: Rig) -> list[str]:
    code = """
import shutil, subprocess
shutil.copy("/bin/true", "planted")
memory = os.memfd_create("planted")
os.write(memory, read("/bin/true") if os.path.getsize("/bin/true") <= 65536 else open("/bin/true", "rb").read())
def run(*argv, **more):
    return "done" if subprocess.run(argv, **more).returncode == 0 else "failed"
loader = next(p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(p))
route("planted", lambda: run("./planted"))
route("memfd", lambda: run(f"/proc/self/fd/{memory}", pass_fds=[memory]))
route("ld.so", lambda: run(loader, "./planted"))
"""
    return await rig.successes(code)


@probe(
    32,
    "have a mount point made outside by a link to the old root",
    nowhere="it is bubblewrap's own trap",
)
async def link_to_the_old_root(rig: Rig) -> list[str]:
    target = rig.outside / "made"
    code = """
for name in ("home", "out", "tmp", "sub"):
    os.symlink("/oldroot" + sys.argv[1], name)
os.symlink("/oldroot" + sys.argv[1], "nested")
"""
    await rig.tries(code, target)
    await rig.tries("print('again')")
    return ["mount point"] if os.path.lexists(target) else []


@probe(33, "have its work directory swapped for another on the way in")
async def swap_the_work_directory(rig: Rig) -> list[str]:
    stop = threading.Event()
    aside, link = rig.folder / "aside", rig.folder / "link"

    def flip() -> None:
        while not stop.is_set():
            with suppress(FileNotFoundError):
                os.symlink(rig.outside, link)
                os.rename(rig.workdir, aside)
                os.rename(link, rig.workdir)
                for _ in range(20):
                    os.readlink(rig.workdir)
                os.unlink(rig.workdir)
                os.rename(aside, rig.workdir)

    flipper = threading.Thread(target=flip)
    flipper.start()
    try:
        for _ in range(15):
            with suppress(CapsuleError, OSError, AssertionError):
                await rig.tries("open('landed', 'w').close()")
    finally:
        stop.set()
        flipper.join()
    return ["landed outside"] if (rig.outside / "landed").exists() else []


@probe(34, "be granted what no run may have", nowhere="nothing is granted where there are no walls")
async def be_granted_too_much(rig: Rig) -> list[str]:
    if not rig.is_walled:
        return []
    state = Path(rig.cell.ground().state)
    with closing(socket.socket(socket.AF_UNIX)) as door:
        door.bind(str(rig.outside / "door"))
    closed = ("/", "/proc", "/proc/1", "/sys", "/dev", "/run", str(Path.home()), str(state))
    never = (*closed, str(Path.home() / ".ssh"), str(rig.outside / "door"))
    return [path for path in never if why_never(path, state) is None]


@probe(
    55,
    "change modes and times of files outside that belong to its own user",
    stated={"advisory": ("*",)},
)
async def change_metadata(rig: Rig) -> list[str]:
    code = """
path = sys.argv[1]
route("chmod", lambda: os.chmod(path, 0o604))
route("utime", lambda: os.utime(path, (1, 1)))
route("setxattr", lambda: os.setxattr(path, "user.probe", b"x"))
"""
    walls = rig.walls()
    if (user := user_of(walls)) is not None:
        os.chown(rig.secret, user, user)
    async with rig.started_behind(walls, code, rig.secret) as launched:
        await rig.said(launched)
    found = rig.secret.stat()
    changed = {
        "chmod": stat.S_IMODE(found.st_mode) != 0o666,
        "utime": found.st_mtime == 1,
        "setxattr": "user.probe" in os.listxattr(rig.secret),
    }
    return [name for name, is_so in changed.items() if is_so]
