"""Which mounts a folder lies in and holds, of what /proc/self/mountinfo says. Pure."""

from __future__ import annotations

_DEVICE, _ROOT, _POINT, _OPTIONS, _FIRST_OPTIONAL = 2, 3, 4, 5, 6
_ESCAPES = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\"))


def mounts_at(mountinfo: bytes, folder: bytes) -> tuple[bytes, ...]:
    """Return the mount that *folder*, without links, lies in, and those beneath it.

    Each is device, root, place, options and file system: what says the same of another process's
    mounts is the same to us.
    """
    lies_in, beneath = b"", list[bytes]()
    deepest = -1
    for line in mountinfo.splitlines():
        point, told = _read(line)
        if _is_beneath(folder, point) and len(point) >= deepest:
            lies_in, deepest = told, len(point)
        elif _is_beneath(point, folder):
            beneath.append(told)
    return (lies_in, *beneath)


def _read(line: bytes) -> tuple[bytes, bytes]:
    words = line.split(b" ")
    kind = words[words.index(b"-", _FIRST_OPTIONAL) + 1]
    point = words[_POINT]
    for escaped, plain in _ESCAPES:
        point = point.replace(escaped, plain)
    told = (words[_DEVICE], words[_ROOT], words[_POINT], words[_OPTIONS], kind)
    return point, b" ".join(told)


def _is_beneath(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
