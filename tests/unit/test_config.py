"""config.toml: what it may say, and what its owner is told when it says something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from capsule_runtime import UsageError
from capsule_runtime.config import Config, RunSettings, parse_config
from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.grants import Capabilities
from capsule_runtime.core.prices import DollarsPerMillion
from capsule_runtime.core.provider_settings import ProviderSettings

MOST = """\
[run]
containment = "scoped"

[grants]
hosts = ["example.org"]

[grants_for."~/agents/code.review"]
read = ["~/models"]
containment = "advisory"

[spend.day]
usd = "12.50"
tokens = 2_000_000

[prices."some:model-4.1"]
input = "2.50"
output = 10
cache_read = 0.25
cache_write = "3"
cache_write_1h = "5"
"""


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_config(text, "config.toml")
    return caught.value


def test_nothing_said_is_nothing_set() -> None:
    config = parse_config("", "config.toml")

    assert config == Config()
    assert config.day == DayCeilings()


def test_the_readmes_sample_is_one() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [sample] = re.findall(r"```toml\n(# ~/.config.*?)```", readme, re.DOTALL)

    config = parse_config(sample, "README.md")

    assert config.run == RunSettings("sealed")
    assert config.day == DayCeilings(20_000_000)


def test_every_key_is_read() -> None:
    config = parse_config(MOST, "config.toml")

    assert config.run == RunSettings("scoped")
    assert config.grants == Capabilities(hosts=("example.org",))
    assert config.grants_for == {
        "~/agents/code.review": Capabilities(read=("~/models",), containment="advisory")
    }
    assert config.day == DayCeilings(12_500_000, 2_000_000)
    assert config.prices == {"some:model-4.1": DollarsPerMillion("2.50", 10, 0.25, "3", "5")}


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        ("[run", "E-CFG-001", "config.toml: ", "schema config"),
        ("[rn]\n", "E-CFG-002", "config.toml:1: unknown key 'rn'", "Did you mean 'run'?"),
        (
            MOST.replace("tokens", "tokns"),
            "E-CFG-002",
            "config.toml:13: unknown key 'spend.day.tokns'",
            "Did you mean 'tokens'?",
        ),
        (
            MOST.replace("cache_read", "cached"),
            "E-CFG-002",
            "config.toml:18: unknown key 'prices.\"some:model-4.1\".cached'",
            "Did you mean 'cache_read'?",
        ),
        (
            MOST.replace("output = 10", "output = []"),
            "E-CFG-004",
            'config.toml:17: prices."some:model-4.1".output = []: Expected',
            "schema config",
        ),
        (
            MOST.replace('"advisory"', '"none"'),
            "E-CFG-004",
            "config.toml:9: grants_for.\"~/agents/code.review\".containment = 'none'",
            "One of 'sealed', 'scoped', 'advisory'.",
        ),
        (
            MOST.replace('"example.org"', '"example.org", "*"'),
            "E-CFG-004",
            "config.toml:5: grants.hosts[1] = '*': a host is",
            "E-TRU-001",
        ),
        (
            MOST.replace('"~/models"', '"models"'),
            "E-CFG-004",
            "config.toml:8: grants_for.\"~/agents/code.review\".read[0] = 'models'",
            "E-TRU-001",
        ),
        (
            MOST.replace("~/agents/code.review", "code-review"),
            "E-CFG-004",
            "config.toml:7: grants_for.code-review = 'code-review': it is neither",
            "Name the capsule's folder.",
        ),
        ("[spend.day]\ntokens = -1\n", "E-CFG-004", "config.toml:2: spend.day.tokens = -1", ""),
        ('[spend.day]\nusd = "1.5$"\n', "E-CFG-004", "config.toml:1: spend.day", 'like "1.50"'),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    text: str, code: str, message: str, hint: str
) -> None:
    error = refused(text)

    assert error.code == code
    assert error.message.startswith(message)
    assert hint in error.hint


PROVIDERS = """\
[providers.ours]
family = "openai"
base_url = "https://models.example.org/v1"
key_command = ["pass", "show", "ours"]
prices = "openai"
requests_per_minute = 60
concurrent_calls = 4
models = ["gpt-*", "o4"]
max_output_tokens = 4096
allow_features = ["web_search"]
chat_cap = "max_tokens"
aliases = { fast = "gpt-5-mini" }

[providers.anthropic]
key_file = "~/.config/key"
"""


def test_every_key_of_a_provider_is_read() -> None:
    config = parse_config(PROVIDERS, "config.toml")

    assert config.providers == {
        "ours": ProviderSettings(
            family="openai",
            base_url="https://models.example.org/v1",
            key_command=("pass", "show", "ours"),
            prices="openai",
            requests_per_minute=60,
            concurrent_calls=4,
            models=("gpt-*", "o4"),
            max_output_tokens=4096,
            allow_features=("web_search",),
            aliases={"fast": "gpt-5-mini"},
            chat_cap="max_tokens",
        ),
        "anthropic": ProviderSettings(key_file="~/.config/key"),
    }


@pytest.mark.parametrize(
    ("old", "new", "code", "message", "hint"),
    [
        (
            "base_url",
            "url",
            "E-CFG-002",
            "config.toml:3: unknown key 'providers.ours.url'",
            "Known here: family, base_url",
        ),
        (
            'family = "openai"\n',
            "",
            "E-CFG-003",
            "config.toml:1: 'providers.ours.family' is missing",
            "whose interfaces",
        ),
        (
            'key_command = ["pass", "show", "ours"]\n',
            "",
            "E-CFG-003",
            "config.toml:1: 'providers.ours.key_env' is missing",
            "Say where its key is: key_env, key_command or key_file, or keyless = true.",
        ),
        (
            '"openai"\nbase',
            '"cohere"\nbase',
            "E-CFG-004",
            "config.toml:2: providers.ours.family = 'cohere'",
            "One of 'anthropic', 'openai', 'google'.",
        ),
        (
            "[providers.ours]",
            "[providers.Ours]",
            "E-CFG-004",
            "config.toml:1: providers.Ours = 'Ours': a provider is named by",
            "lower case",
        ),
        (
            "= 60",
            "= 0",
            "E-CFG-004",
            "config.toml:6: providers.ours.requests_per_minute = 0: it must be from 1",
            "E-PRO-001",
        ),
        (
            '"~/.config/key"',
            '"key"',
            "E-CFG-004",
            "config.toml:15: providers.anthropic.key_file: it is neither absolute",
            "E-PRO-001",
        ),
        (
            'key_file = "~/.config/key"',
            'key_file = "/a"\nkeyless = true',
            "E-CFG-004",
            "config.toml:16: providers.anthropic.keyless = True: there is key_file already",
            "E-PRO-001",
        ),
        (
            '"max_tokens"',
            '"most"',
            "E-CFG-004",
            "config.toml:11: providers.ours.chat_cap = 'most'",
            "One of 'max_completion_tokens', 'max_tokens'.",
        ),
    ],
)
def test_what_is_wrong_with_a_provider_is_named_with_its_line(
    old: str, new: str, code: str, message: str, hint: str
) -> None:
    error = refused(PROVIDERS.replace(old, new, 1))

    assert error.code == code
    assert error.message.startswith(message)
    assert hint in error.hint


@pytest.mark.parametrize(
    "line",
    [
        'key_env = "sk-canary"',
        'key_env = "AIzacanary"',
        'key_env = ["sk-canary"]',
        'key_file = "sk-canary"',
        'key_command = "sk-canary"',
        'key_command = ["./sk-canary"]',
        'key_command = ["a", 1, "sk-canary"]',
        'base_url = "https://me:canary@example.org"',
        'base_url = "https://example.org/?key=canary"',
        'key = "sk-canary"',
        'key_env = "A"\nkey_file = "/canary"',
    ],
)
def test_a_key_that_was_written_in_the_wrong_place_is_not_shown(line: str) -> None:
    error = refused(f"[providers.anthropic]\n{line}\n")

    assert "providers.anthropic." in error.message
    assert "canary" not in f"{error.message} {error.hint}"


def test_a_provider_is_granted_as_all_else_is() -> None:
    config = parse_config('[grants]\nproviders = ["anthropic"]\n', "config.toml")

    assert config.grants == Capabilities(providers=("anthropic",))


def test_an_address_is_no_provider_to_grant() -> None:
    error = refused('[grants]\nproviders = ["openai", "https://example.org"]\n')

    assert error.message.startswith("config.toml:2: grants.providers[1] = 'https://example.org'")
