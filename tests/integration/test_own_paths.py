"""The paths that no capsule is ever given, whoever grants them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from capsule_runtime.host.own_paths import real_path, why_never


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "homes/me"
    made.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made / "settings"))
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "var/state"


@pytest.mark.parametrize(
    "path",
    ["/", "/proc", "/proc/1", "/sys", "/dev", "/dev/null", "/run", "/run/docker.sock", "/var/run"],
)
def test_what_belongs_to_the_system(path: str, state: Path) -> None:
    assert why_never(real_path(path), state) == "it belongs to the system"


@pytest.mark.parametrize("path", ["~", "~/", "~/.", "~/.."])
def test_home_as_a_whole(path: str, home: Path, state: Path) -> None:
    assert why_never(real_path(path), state) == "it holds your home folder"


@pytest.mark.parametrize("below", ["..", ".", "runs", "contexts/x/home"])
def test_the_state_directory(below: str, home: Path, state: Path) -> None:
    assert "kept there" in (why_never(real_path(str(state / below)), state) or "")


@pytest.mark.parametrize("path", ["~/settings", "~/settings/capsule/config.toml"])
def test_the_callers_own_settings(path: str, home: Path, state: Path) -> None:
    assert why_never(real_path(path), state) == "your config.toml is in it"


@pytest.mark.parametrize(
    "path",
    ["~/.ssh", "~/.ssh/id_ed25519", "~/.config", "~/.config/gcloud/x", "~/.claude", "~/.local"],
)
def test_folders_of_credentials_and_what_holds_them(path: str, home: Path, state: Path) -> None:
    assert "credentials are kept in ~/." in (why_never(real_path(path), state) or "")


def test_credentials_behind_links(home: Path, state: Path, tmp_path: Path) -> None:
    """A link to them is no way to them, and neither is where their own link leads."""
    (home / "keys").symlink_to(".ssh")
    (tmp_path / "elsewhere").mkdir()
    (home / ".codex").symlink_to(tmp_path / "elsewhere")

    assert "~/.ssh" in (why_never(real_path("~/keys"), state) or "")
    assert "~/.codex" in (why_never(str(tmp_path / "elsewhere/auth.json"), state) or "")


def test_sockets_and_pipes(home: Path, state: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "socket"))
    os.mkfifo(home / "pipe")

    assert "it is a socket" in (why_never(str(home / "socket"), state) or "")
    assert "neither a file" in (why_never(str(home / "pipe"), state) or "")


@pytest.mark.parametrize("path", ["~/models", "~/.cache/models", "/usr/share", "/opt/x", "~/a.txt"])
def test_what_may_be_granted(path: str, home: Path, state: Path) -> None:
    assert why_never(real_path(path), state) is None
