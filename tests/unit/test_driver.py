"""Drivers are found by name, and only the one that was asked for is loaded."""

from __future__ import annotations

import pytest

from capsule_drivers.jsonl import JsonlDriver
from capsule_runtime import HarnessError, find_driver
from capsule_runtime.driver import driver_names


def test_the_native_driver_is_installed() -> None:
    assert "jsonl" in driver_names()
    assert find_driver("jsonl") is JsonlDriver


def test_the_names_are_sorted() -> None:
    assert driver_names() == sorted(driver_names())


def test_an_unknown_driver_is_refused_with_the_choices() -> None:
    with pytest.raises(HarnessError) as caught:
        find_driver("nope")

    assert caught.value.code == "E-HAR-002"
    assert caught.value.message.startswith("no driver is named 'nope'; installed: ")
    assert "jsonl" in caught.value.message
    assert caught.value.hint
