"""A key that must not be found. Nothing that is part of a harness may name it."""

from __future__ import annotations

REAL_KEY = "sk-real-canary-0123456789abcdef"
