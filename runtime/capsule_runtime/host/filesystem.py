"""Which file system holds a path: locks and shared memory only work on a local one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

NETWORK_TYPES = frozenset(
    "9p acfs afpfs afs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2"
    " orangefs pvfs2 smb3 smbfs wekafs".split()
)
"""Kernel file systems that several machines may write at once."""

NETWORK_FUSE = frozenset(
    "blobfuse blobfuse2 ceph curlftpfs davfs gcsfuse glusterfs goofys gvfsd-fuse juicefs mfs"
    " moosefs rclone s3fs seaweedfs sshfs vmhgfs-fuse".split()
)
"""The same through FUSE, where a mount's type reads `fuse.NAME`."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One line of /proc/self/mountinfo."""

    id: int
    point: str
    type: str

    @property
    def is_network(self) -> bool:
        """Say whether other machines may write to it."""
        family, _, name = self.type.partition(".")
        return self.type in NETWORK_TYPES or (family == "fuse" and name in NETWORK_FUSE)


def parse_mounts(mountinfo: str) -> dict[int, Mount]:
    """Return the mounts of *mountinfo* by their id. Lines that make no sense are left out."""
    mounts: dict[int, Mount] = {}
    for line in mountinfo.splitlines():
        # Between the sixth field and the lone hyphen stand any number of optional fields.
        fields, _, behind = line.partition(" - ")
        words = fields.split(" ")
        if len(words) >= 6 and words[0].isdigit() and behind:
            point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), words[4])
            mounts[int(words[0])] = Mount(int(words[0]), point, behind.split(" ")[0])
    return mounts


def parse_mount_id(fdinfo: str) -> int | None:
    """Return the mount id that /proc/self/fdinfo/N gives for an open file."""
    found = re.search(r"^mnt_id:\s*(\d+)$", fdinfo, re.MULTILINE)
    return int(found[1]) if found else None


def find_mount(path: Path) -> Mount | None:
    """Return the mount that holds the directory *path*, or None where /proc does not say.

    The kernel is asked by file, not by comparing prefixes: mounts may lie over one another.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fdinfo = Path(f"/proc/self/fdinfo/{fd}").read_text()
        mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except FileNotFoundError:
        return None
    finally:
        os.close(fd)
    mount_id = parse_mount_id(fdinfo)
    return parse_mounts(mountinfo).get(mount_id) if mount_id is not None else None
