"""Which mounts a folder lies in and holds, as the kernel's list of them says."""

from __future__ import annotations

import pytest

from capsule_runtime.core.mounts import mounts_at

ROOT = b"8:1 / / rw ext4"
PEOPLE = b"8:2 /people /people rw,nosuid xfs"
INNER = b"0:9 / /people/me/in\\040ner rw overlay"
OVER = b"0:7 / /people rw tmpfs"
LIST = b"""\
20 1 8:1 / / rw shared:1 - ext4 /dev/a rw
21 20 8:2 /people /people rw,nosuid shared:2 master:3 - xfs /dev/b rw
22 21 0:9 / /people/me/in\\040ner rw - overlay overlay rw,lowerdir=/l
"""


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        (b"/", (ROOT, PEOPLE, INNER)),
        (b"/srv", (ROOT,)),
        (b"/peopled", (ROOT,)),
        (b"/people", (PEOPLE, INNER)),
        (b"/people/me/in ner/deep", (INNER,)),
        (b"/people/you", (PEOPLE,)),
    ],
)
def test_a_folder_has_the_mount_it_lies_in_and_those_beneath(
    folder: bytes, found: tuple[bytes, ...]
) -> None:
    assert mounts_at(LIST, folder) == found


def test_of_two_mounts_at_one_place_the_later_counts() -> None:
    covered = LIST + b"23 21 0:7 / /people rw - tmpfs none rw\n"

    assert mounts_at(covered, b"/people/you")[0] == OVER
