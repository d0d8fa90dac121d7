"""The files of the program that puts up the walls inside a sealed root."""

from __future__ import annotations

import marshal
import os
import sys
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from capsule_runtime.core.seal import STUB_MODULES

_UNCHECKED_HEADER = MAGIC_NUMBER + bytes(12)


@cache
def stub_files(python: str) -> tuple[tuple[str, bytes], ...]:
    """Return the files, by name, for the interpreter *python*; the first is the program.

    An interpreter like ours gets them compiled: that is a third of what it does before a harness.
    """
    is_ours = os.path.basename(python) == f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return tuple(_file(module, is_compiled=is_ours) for module in STUB_MODULES)


def _file(module: str, *, is_compiled: bool) -> tuple[str, bytes]:
    path = Path(__file__).with_name(f"{module}.py")
    source = path.read_bytes()
    if not is_compiled:
        return path.name, source
    code = compile(source, path.name, "exec", dont_inherit=True)
    return f"{module}.pyc", _UNCHECKED_HEADER + marshal.dumps(code)
