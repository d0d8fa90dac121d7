"""Every error code is explained, and every explanation belongs to a code."""

from __future__ import annotations

import re
from pathlib import Path

import capsule_drivers
import capsule_runtime
from capsule_runtime.codes import load_codes

_CODE = re.compile(r"""["'](E-[A-Z]+-\d{3})["']""")
_PACKAGES = (capsule_runtime, capsule_drivers)


def _reported_codes() -> set[str]:
    folders = [Path(package.__file__).parent for package in _PACKAGES if package.__file__]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    return {code for path in sources for code in _CODE.findall(path.read_text(encoding="utf-8"))}


def test_every_code_that_is_reported_is_explained() -> None:
    assert _reported_codes() - set(load_codes()) == set()


def test_every_code_that_is_explained_is_reported() -> None:
    assert set(load_codes()) - _reported_codes() == set()


def test_every_code_says_what_happened_and_what_to_do() -> None:
    for name, code in load_codes().items():
        assert code.title and not code.title.endswith("."), name
        assert code.meaning.endswith("."), name
        assert code.remedy.endswith("."), name
