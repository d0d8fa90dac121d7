"""A provider is asked for, granted and explained like all else; its key stays with the caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import ADVISORY, HELLO, Command, Done

CANARY = "sk-canary-5eed"
OWN = """
[providers.ours]
family = "openai"
base_url = "https://models.example.org/v1"
"""


class Asking(Command):
    """`capsule`, a capsule that asks for providers, and a config.toml."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asking = self.capsule(HELLO)

    def asks(self, *names: str, more: str = "") -> None:
        """Have the capsule ask for the providers *names*."""
        manifest = Path(self.asking, "capsule.toml")
        listed = json.dumps(names)
        manifest.write_text(f"{manifest.read_text()}[capabilities]\nproviders = {listed}\n{more}\n")

    def set(self, text: str) -> None:
        """Write config.toml."""
        path = self.folder / ".config/capsule/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def go(self, *words: str, **env: str) -> Done:
        """Run the capsule on a folder of its own."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        where = ("--workdir", str(work), *ADVISORY)
        return self("run", self.asking, "--task", "go", *where, *words, env=env)

    def caveats(self, *words: str, **env: str) -> list[str]:
        """Return what `--explain` says a person should know of providers."""
        done = self.go("--explain", "--json", *words, **env)
        assert done.status == 0, done.err
        assert CANARY not in done.out + done.err
        return [it for it in json.loads(done.out)["caveats"] if it.startswith("provider=")]


@pytest.fixture
def command(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


def test_who_asks_for_a_provider_needs_a_grant(command: Asking) -> None:
    command.asks("anthropic")

    done = command.go(ANTHROPIC_API_KEY=CANARY)
    assert done.status == 7
    assert "\n  provider=anthropic\n" in done.err
    assert "--grant provider=anthropic" in done.err
    assert CANARY not in done.err


@pytest.mark.parametrize("way", ["flag", "environment", "config", "trust"])
def test_each_way_of_granting_grants_a_provider(command: Asking, way: str) -> None:
    command.asks("anthropic")
    words, env = list[str](), {"ANTHROPIC_API_KEY": CANARY}
    match way:
        case "flag":
            words = ["--grant", "provider=anthropic"]
        case "environment":
            env["CAPSULE_GRANT"] = "provider=anthropic"
        case "config":
            command.set('[grants]\nproviders = ["anthropic"]\n')
        case _:
            assert command("trust", command.asking, "--yes").status == 0

    assert command.caveats(*words, **env) == [
        "provider=anthropic: the key stays outside; calls cost money"
    ]


def test_what_is_granted_and_not_asked_for_counts_for_nothing(command: Asking) -> None:
    assert command.caveats("--grant", "provider=nobody-knows") == []


def test_that_there_is_no_key_is_told_beforehand(command: Asking) -> None:
    command.asks("google")
    [caveat] = command.caveats("--grant", "provider=google")

    assert caveat == (
        "provider=google: there is no key: GEMINI_API_KEY or GOOGLE_API_KEY is not set here"
    )


def test_without_a_key_nothing_starts(command: Asking) -> None:
    command.asks("openai")
    done = command.go("--grant", "provider=openai")

    assert done.status == 2
    assert done.err.startswith("error[E-PRO-003]: ")
    assert "OPENAI_API_KEY is not set" in done.err
    assert list(command.state.glob("runs/*")) == []


def test_a_key_that_cannot_be_had_is_told_and_not_shown(command: Asking) -> None:
    command.set(f'{OWN}key_command = ["sh", "-c", "echo {CANARY}; exit 3"]\n')
    command.asks("ours")
    done = command.go("--grant", "provider=ours")

    assert done.status == 2
    assert done.err.startswith("error[E-PRO-004]: ")
    assert "sh ended with 3" in done.err
    assert CANARY not in done.out + done.err


def test_one_of_config_toml_is_known_by_its_name(command: Asking) -> None:
    command.set(f"{OWN}keyless = true\n")
    command.asks("ours", "anthropic")
    words = ("--grant", "provider=ours", "--grant", "provider=anthropic")

    assert command.caveats(*words, ANTHROPIC_API_KEY=CANARY) == [
        "provider=ours: it takes no key; calls may cost money",
        "provider=anthropic: the key stays outside; calls cost money",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic", "Did you mean 'anthropic'?"),
        ("nobody", "Known are anthropic, google, openai, openrouter, ours."),
    ],
)
def test_whom_nobody_knows_is_refused(command: Asking, name: str, hint: str) -> None:
    command.set(f"{OWN}keyless = true\n")
    command.asks(name)

    for words in ((), ("--explain",)):
        done = command.go("--grant", f"provider={name}", *words)
        assert done.status == 2
        assert done.err.startswith(f"error[E-PRO-001]: nobody knows the provider '{name}'")
        assert hint in done.err


def test_two_that_a_harness_cannot_tell_apart_are_refused(command: Asking) -> None:
    command.set(f"{OWN}keyless = true\n")
    command.asks("openai", "ours")
    done = command.go("--grant", "provider=openai", "--grant", "provider=ours")

    assert done.status == 2
    assert done.err.startswith("error[E-PRO-002]: openai and ours would be told")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"])
def test_what_the_gateway_sets_is_not_given_as_well(command: Asking, name: str) -> None:
    command.asks("anthropic", more=f'env = ["{name}"]')
    words = ("--grant", "provider=anthropic")
    ways = [command.go(*words, "--grant", f"env={name}", **{name: CANARY})]
    command.asking = command.capsule(HELLO)
    command.asks("anthropic")
    ways.append(command.go(*words, "--env", f"{name}={CANARY}"))

    for done in ways:
        assert done.status == 2
        assert done.err.startswith(f"error[E-PRO-002]: {name} is given")
        assert CANARY not in done.err


def test_a_manifest_names_no_address(command: Asking) -> None:
    command.asks("https://example.org")
    done = command.go()

    assert done.status == 2
    assert "capabilities.providers[0] = 'https://example.org'" in done.err


def test_a_word_that_grants_no_provider_is_told_how_one_is_granted(command: Asking) -> None:
    done = command.go("--grant", "provider=https://example.org")

    assert done.status == 2
    assert "never by an address" in done.err
    assert "--grant provider=NAME" in done.err
