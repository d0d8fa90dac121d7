"""Every program is led to the same proxy, and to itself without one."""

from __future__ import annotations

from capsule_runtime.core.proxy_env import proxy_environment


def test_all_names_of_the_proxy_lead_to_the_same_door() -> None:
    env = proxy_environment(3128)

    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        assert env[name] == env[name.lower()] == "http://127.0.0.1:3128"
    assert env["NO_PROXY"] == env["no_proxy"] == "localhost,127.0.0.1,::1"
    assert env["NODE_USE_ENV_PROXY"] == "1"
