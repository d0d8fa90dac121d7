"""Whether the gateway is the only way to a model that a run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_runtime.core.grants import Grants
from capsule_runtime.providing import has_other_way

CONFIG = """
[providers.ours]
family = "openai"
base_url = "https://models.example.org:8443/v1"
keyless = true

[providers.by-address]
family = "openai"
base_url = "https://[2606:4700:0::1111]/v1"
keyless = true

[providers.odd]
family = "openai"
base_url = "https://a..b/v1"
keyless = true
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    monkeypatch.setenv("CAPSULE_CONFIG", str(path))


@pytest.mark.parametrize(
    ("host", "has"),
    [
        ("api.anthropic.com", True),
        ("*.anthropic.com", True),
        ("*.com", True),
        ("models.example.org:8443", True),
        ("*.example.org:8443", True),
        ("[2606:4700::1111]", True),
        ("api.anthropic.com:8443", False),
        ("models.example.org", False),
        ("example.org", False),
        ("[2606:4700::1112]", False),
    ],
)
def test_a_granted_host_is_a_way_if_a_provider_is_there(host: str, has: bool) -> None:
    assert has_other_way(Grants(hosts=(host,)), (), ()) is has


def test_a_key_of_its_own_is_a_way() -> None:
    assert has_other_way(Grants(), ("EDITOR", "MODEL_KEY"), ("MODEL_KEY", "OTHER"))
    assert not has_other_way(Grants(), ("EDITOR",), ("MODEL_KEY",))
