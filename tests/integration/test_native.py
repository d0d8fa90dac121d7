"""A launcher that hides the real program: what is started is the program itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule_runtime.host.footprint import program_of
from capsule_runtime.host.native import native_program

MACHINE = os.uname().machine
PATTERNS = ("../real-*/{machine}/tool", "node_modules/real-*/{machine}/tool")


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder of packages with a launcher, and a link to it as on a search path."""
    launcher = write(tmp_path / "lib/node_modules/tool/bin/tool.js", b"#!/usr/bin/env node\n")
    (launcher.parents[1] / "package.json").write_text("{}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").symlink_to("../lib/node_modules/tool/bin/tool.js")
    return tmp_path / "lib/node_modules"


def write(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def found(modules: Path, *patterns: str) -> str:
    return native_program(str(modules.parents[1] / "bin/tool"), patterns or PATTERNS)


@pytest.mark.parametrize("place", ["real-linux", "tool/node_modules/real-linux"])
def test_the_program_lies_beside_the_launchers_package_or_in_it(modules: Path, place: str) -> None:
    program = write(modules / place / MACHINE / "tool")

    assert found(modules) == str(program)


def test_the_first_pattern_that_fits_wins(modules: Path) -> None:
    write(modules / "tool/node_modules/real-linux" / MACHINE / "tool")
    beside = write(modules / "real-linux" / MACHINE / "tool")

    assert found(modules) == str(beside)


def test_a_program_for_another_processor_is_none(modules: Path) -> None:
    write(modules / "real-linux/pdp11/tool")

    assert found(modules) == str(modules.parents[1] / "bin/tool")


def test_what_cannot_be_run_is_no_program(modules: Path) -> None:
    write(modules / "real-linux" / MACHINE / "tool").chmod(0o644)
    (modules / "real-too" / MACHINE / "tool").mkdir(parents=True)

    assert found(modules) == str(modules.parents[1] / "bin/tool")


def test_a_program_that_hides_nothing_is_started_as_it_is(modules: Path, tmp_path: Path) -> None:
    write(modules / "real-linux" / MACHINE / "tool")
    binary = write(modules / "tool/bin/native")
    script = write(tmp_path / "script", b"#!/bin/sh\n")

    assert native_program(str(binary), PATTERNS) == str(binary)
    assert native_program(str(script), PATTERNS) == str(script)
    assert native_program(str(tmp_path / "gone"), PATTERNS) == str(tmp_path / "gone")
    assert native_program(str(modules.parents[1] / "bin/tool"), ()).endswith("bin/tool")


def test_signs_of_a_pattern_in_the_name_of_a_folder_mean_nothing(tmp_path: Path) -> None:
    launcher = write(tmp_path / "[a]*/tool/bin/tool.js", b"#!/usr/bin/env node\n")
    (launcher.parents[1] / "package.json").write_text("{}")
    program = write(tmp_path / "[a]*/real-x" / MACHINE / "tool")

    assert native_program(str(launcher), PATTERNS) == str(program)


def test_the_walls_open_what_the_launcher_was_installed_into(modules: Path) -> None:
    program = write(modules / "real-linux" / MACHINE / "tool")
    folder = modules.parents[1] / "bin"

    opened = program_of(str(folder / "tool"), {"PATH": str(folder)})

    assert any(program.is_relative_to(prefix) for prefix in opened.prefixes)
