"""What tests need that mount something where nobody else sees it."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def can_mount() -> bool:
    """Say whether a mount namespace can be had, and a mount in it."""
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp"]
    return subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mount namespace to be had")
