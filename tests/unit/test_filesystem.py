from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.host.filesystem import Mount, find_mount, parse_mount_id, parse_mounts

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /mnt/a\040b\134c rw shared:1 master:2 - nfs4 server:/x\040y rw,vers=4.2
41 27 0:51 /sub /mnt/no-optional-field rw - fuse.sshfs me@host:/ rw
torn line
42 27 0:52 / /mnt/
"""


def test_mounts_are_read_with_their_escapes_and_optional_fields() -> None:
    mounts = parse_mounts(MOUNTINFO)

    assert mounts == {
        22: Mount(22, "/proc", "proc"),
        27: Mount(27, "/", "ext4"),
        40: Mount(40, "/mnt/a b\\c", "nfs4"),
        41: Mount(41, "/mnt/no-optional-field", "fuse.sshfs"),
    }


@pytest.mark.parametrize(
    "kind",
    "nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre 9p ocfs2 gfs2 fuse.sshfs fuse.glusterfs "
    "fuse.s3fs fuse.rclone".split(),
)
def test_a_file_system_of_several_machines_is_network(kind: str) -> None:
    assert Mount(1, "/", kind).is_network


@pytest.mark.parametrize(
    "kind",
    "ext4 xfs btrfs zfs tmpfs overlay f2fs fuseblk fuse.gocryptfs fuse.fuse-overlayfs".split(),
)
def test_a_file_system_of_this_machine_is_not(kind: str) -> None:
    assert not Mount(1, "/", kind).is_network


def test_the_mount_of_an_open_file_is_in_its_fdinfo() -> None:
    assert parse_mount_id("pos:\t0\nflags:\t0100000\nmnt_id:\t27\nino:\t2\n") == 27
    assert parse_mount_id("pos:\t0\n") is None


def test_a_directory_of_this_machine_has_a_mount(tmp_path: Path) -> None:
    assert find_mount(Path("/proc")) == Mount(find_id("/proc"), "/proc", "proc")
    assert find_mount(tmp_path) is not None


def find_id(point: str) -> int:
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    return [mount.id for mount in mounts.values() if mount.point == point][-1]
