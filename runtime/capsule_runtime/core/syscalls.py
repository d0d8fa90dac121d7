"""The numbers of the system calls that our filters name, on both architectures.

Compared with the kernel's own headers by a test, where they are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

MachineName = Literal["x86_64", "aarch64"]
"""An architecture as `uname -m` writes it."""


class Architecture(Struct, frozen=True):
    """What a filter must know of the machine that it runs on."""

    audit: int
    """The name that the kernel gives to calls that were made for it."""
    reviewed: tuple[tuple[int, int], ...]
    """The numbers, first and last, whose calls we know; ascending. Later kernels will have more."""


TIOCGPTPEER = 0x5441
"""The request of `ioctl` that opens the other end of a terminal, for who has its master."""

ARCHITECTURES: dict[MachineName, Architecture] = {
    "x86_64": Architecture(0xC000003E, ((0, 336), (424, 469))),
    "aarch64": Architecture(0xC00000B7, ((0, 294), (424, 469))),
}

# Name, number on x86_64, number on aarch64; `-` where there is no such call.
_TABLE = """
# What is judged by its arguments.
socket                    41  198
socketpair                53  199
clone                     56  220
ioctl                     16   29
personality              135   92
sendto                    44  206
sendmsg                   46  211
sendmmsg                 307  269
prctl                    157  167
setsockopt                54  208
# Servers and clients.
bind                      49  200
listen                    50  201
connect                   42  203
# Namespaces and mounts.
unshare                  272   97
setns                    308  268
clone3                   435  435
mount                    165   40
umount2                  166   39
pivot_root               155   41
chroot                   161   51
open_tree                428  428
open_tree_attr           467  467
move_mount               429  429
fsopen                   430  430
fsconfig                 431  431
fsmount                  432  432
fspick                   433  433
mount_setattr            442  442
statmount                457  457
listmount                458  458
# Other processes.
ptrace                   101  117
process_vm_readv         310  270
process_vm_writev        311  271
process_madvise          440  440
pidfd_getfd              438  438
kcmp                     312  272
perf_event_open          298  241
lookup_dcookie           212   18
# Limits and turns of processes, one's own or another's.
prlimit64                302  261
setpriority              141  140
ioprio_set               251   30
sched_setparam           142  118
sched_setscheduler       144  119
sched_setaffinity        203  122
sched_setattr            314  274
# Wide doors into the kernel.
bpf                      321  280
userfaultfd              323  282
io_uring_setup           425  425
io_uring_enter           426  426
io_uring_register        427  427
keyctl                   250  219
add_key                  248  217
request_key              249  218
open_by_handle_at        304  265
name_to_handle_at        303  264
fanotify_init            300  262
fanotify_mark            301  263
memfd_secret             447  447
vmsplice                 278   75
modify_ldt               154    -
uselib                   134    -
# The machine itself.
init_module              175  105
finit_module             313  273
delete_module            176  106
create_module            174    -
get_kernel_syms          177    -
query_module             178    -
kexec_load               246  104
kexec_file_load          320  294
reboot                   169  142
swapon                   167  224
swapoff                  168  225
acct                     163   89
quotactl                 179   60
quotactl_fd              443  443
settimeofday             164  170
clock_settime            227  112
clock_adjtime            305  266
adjtimex                 159  171
sethostname              170  161
setdomainname            171  162
syslog                   103  116
vhangup                  153   58
iopl                     172    -
ioperm                   173    -
ustat                    136    -
sysfs                    139    -
_sysctl                  156    -
nfsservctl               180   42
# Where memory lies.
mbind                    237  235
set_mempolicy            238  237
get_mempolicy            239  236
migrate_pages            256  238
move_pages               279  239
set_mempolicy_home_node  450  450
# Memory and messages that all processes of a user share.
shmget                    29  194
shmat                     30  196
shmctl                    31  195
semget                    64  190
semop                     65  193
semtimedop               220  192
semctl                    66  191
msgget                    68  186
msgsnd                    69  189
msgrcv                    70  188
msgctl                    71  187
mq_open                  240  180
mq_unlink                241  181
# What makes files.
open                       2    -
creat                     85    -
mknod                    133    -
mknodat                  259   33
openat                   257   56
openat2                  437  437
# Modes, owners, times and attributes of files.
chmod                     90    -
fchmod                    91   52
fchmodat                 268   53
fchmodat2                452  452
chown                     92    -
fchown                    93   55
lchown                    94    -
fchownat                 260   54
utime                    132    -
utimes                   235    -
futimesat                261    -
utimensat                280   88
setxattr                 188    5
lsetxattr                189    6
fsetxattr                190    7
setxattrat               463  463
removexattr              197   14
lremovexattr             198   15
fremovexattr             199   16
removexattrat            466  466
file_setattr             469  469
"""


def _rows() -> Iterator[tuple[str, str, str]]:
    for line in _TABLE.splitlines():
        if line and not line.startswith("#"):
            name, *numbers = line.split()
            yield name, numbers[0], numbers[1]


NUMBERS: dict[MachineName, dict[str, int]] = {
    "x86_64": {name: int(number) for name, number, _ in _rows()},
    "aarch64": {name: int(number) for name, _, number in _rows() if number != "-"},
}
"""By architecture: what each call is numbered. A call that is not there cannot be made."""


def known_machine(name: str) -> MachineName:
    """Return the architecture that `uname -m` calls *name*.

    Raises:
        ValueError: its calls are numbered in a way we do not know.
    """
    for machine in ARCHITECTURES:
        if name == machine:
            return machine
    raise ValueError(f"no filter knows the machine {name!r}; known: {', '.join(ARCHITECTURES)}")
