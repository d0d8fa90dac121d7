"""The rights of a container as Docker starts it by default: root, but for what it takes away.

Its list of capabilities, and of its filter of system calls what makes namespaces and mounts, and
what goes around the rights on files and processes. Written down from its published profile.
"""

from __future__ import annotations

import base64
import os
import platform
import sys

from capsule_runtime.core import bpf
from capsule_runtime.core.seccomp import ALLOW, ENOSYS, EPERM
from capsule_runtime.core.syscalls import NUMBERS, known_machine
from capsule_runtime.host import filters

_ERRNO = 0x00050000
_NEW_NAMESPACES = 0x7E020000
_REFUSED = """
    unshare setns mount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick
    mount_setattr open_by_handle_at bpf perf_event_open userfaultfd kcmp pidfd_getfd io_uring_setup
    keyctl add_key request_key
""".split()
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
"""What root has there, by its number."""

_ENTER = f"""
import base64, ctypes, os, sys
sys.path.append({os.path.dirname(filters.__file__)!r})
from filters import install
install(base64.b64decode(sys.argv[1]))
for capability in range(64):
    if capability not in {sorted(CAPABILITIES.values())!r}:
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def container_profile() -> bytes:
    """Return a filter as containers have it: no namespaces, and no mounts."""
    numbers = NUMBERS[known_machine(platform.machine())]
    steps: list[bpf.Step] = [bpf.Load(bpf.NUMBER)]
    for name, error in {**dict.fromkeys(_REFUSED, EPERM), "clone3": ENOSYS}.items():
        steps += [bpf.Jump("equal", numbers[name], no=f"not {name}")]
        steps += [bpf.Return(_ERRNO | error), bpf.Mark(f"not {name}")]
    steps += [bpf.Jump("equal", numbers["clone"], no="allowed"), bpf.Load(bpf.argument(0))]
    steps += [bpf.Mask(_NEW_NAMESPACES), bpf.Jump("equal", 0, yes="allowed")]
    steps += [bpf.Return(_ERRNO | EPERM), bpf.Mark("allowed"), bpf.Return(ALLOW)]
    return bpf.assemble(steps)


def in_docker() -> tuple[str, ...]:
    """Return the words before a command that root starts as in such a container."""
    program = base64.b64encode(container_profile()).decode()
    return (sys.executable, "-I", "-S", "-c", _ENTER, program)
