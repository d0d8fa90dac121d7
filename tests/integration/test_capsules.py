"""The capsules that ship: each can be loaded, says what it is, and is held to something."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.driver import driver_names
from capsule_runtime.host.capsule import load_capsule
from capsule_runtime.manifest import Spending

FOLDER = Path(__file__).parents[2] / "capsules"
CAPSULES = sorted(path.parent for path in FOLDER.glob("*/capsule.toml"))
WITHOUT_ONE = {"acp"}
"""Drivers of which no harness is known before somebody names one."""


@pytest.mark.parametrize("folder", CAPSULES, ids=lambda path: path.name)
def test_a_capsule_is_what_its_folder_is_called_and_has_a_page(folder: Path) -> None:
    capsule = load_capsule(folder)

    assert capsule.manifest.name == folder.name
    assert f"capsule run capsules/{folder.name}" in (folder / "README.md").read_text()
    assert f"[{folder.name}]({folder.name}/)" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("folder", CAPSULES, ids=lambda path: path.name)
def test_what_asks_a_model_is_bounded(folder: Path) -> None:
    manifest = load_capsule(folder).manifest
    is_bounded = manifest.spend != Spending() or "step_limit" in manifest.harness.config

    assert is_bounded or not manifest.capabilities.secrets


def test_every_driver_has_a_capsule() -> None:
    driven = {load_capsule(folder).manifest.harness.driver for folder in CAPSULES}

    assert driven == set(driver_names()) - WITHOUT_ONE
