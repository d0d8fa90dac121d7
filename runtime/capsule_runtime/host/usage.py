"""What a run uses, where the kernel keeps no account of it: looked at from outside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from capsule_runtime.host.sweep import children

_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_THREADS = re.compile(rb"^Threads:\s+(\d+)", re.MULTILINE)
_BLOCK_BYTES = 512


def tree_of(root: int) -> list[int]:
    """Return the processes below *root*, which is not counted itself."""
    found = children(root)
    for pid in found:
        found += children(pid)
    return found


def burier_of(harness: int) -> int | None:
    """Return the process under which all of a harness's tree is; none when it is gone."""
    with suppress(OSError):
        stat = Path("/proc", str(harness), "stat").read_bytes()
        return int(stat[stat.rfind(b")") + 2 :].split()[1])
    return None


def tree_memory(pids: Iterable[int], limit: float) -> int:
    """Return how many bytes *pids* use; what they share is looked at only beyond *limit*."""
    pids = list(pids)
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= limit else sum(_proportional(pid) for pid in pids)


def tree_tasks(pids: Iterable[int]) -> int:
    """Return how many processes and threads *pids* are."""
    return sum(_number(pid, "status", _THREADS) for pid in pids)


def disks_of(places: Iterable[str]) -> dict[int, str]:
    """Return one of *places* for each file system that they lie on, by the number of its device."""
    found: dict[int, str] = {}
    for place in places:
        with suppress(OSError):
            found.setdefault(os.stat(place).st_dev, place)
    return found


def used_bytes(places: Iterable[str]) -> int:
    """Return what is used of the file systems that *places* lie on, one on each."""
    used = 0
    for place in places:
        with suppress(OSError):
            disk = os.statvfs(place)
            used += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return used


def written_bytes(places: Iterable[str], since: float) -> int:
    """Return how large the files beneath *places* are that changed after *since*, in epoch seconds.

    A file with several names counts once; links are not followed.
    """
    sizes: dict[tuple[int, int], int] = {}
    for place in places:
        for file in _files(place):
            if file.st_ctime >= since and S_ISREG(file.st_mode):
                sizes[file.st_dev, file.st_ino] = file.st_blocks * _BLOCK_BYTES
    return sum(sizes.values())


def largest_written(places: Iterable[str], since: float) -> int:
    """Return the size of the largest file beneath *places* that changed after *since*."""
    files = (file for place in places for file in _files(place) if file.st_ctime >= since)
    return max((file.st_size for file in files if S_ISREG(file.st_mode)), default=0)


def _files(place: str) -> Iterator[os.stat_result]:
    folders = [place]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False)


def _resident(pid: int) -> int:
    with suppress(OSError):
        pages = Path("/proc", str(pid), "statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional(pid: int) -> int:
    return _number(pid, "smaps_rollup", _PSS) * 1024


def _number(pid: int, file: str, pattern: re.Pattern[bytes]) -> int:
    with suppress(OSError):
        found = pattern.search(Path("/proc", str(pid), file).read_bytes())
        return int(found[1]) if found else 0
    return 0
