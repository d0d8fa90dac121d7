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
