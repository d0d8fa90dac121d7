"""What a capsule asks for is granted by its caller, in one of several places, or there is no run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.scoping import find_scopes
from support.command import ADVISORY, Command, Done

ASKS = """
[capabilities]
read = ["~/data", "./own"]
hosts = ["Example.org:443"]
env = ["FAVOURITE"]
secrets = ["TOKEN"]
"""
WORDS = ("read={folder}/data", "host=example.org", "env=FAVOURITE", "secret=TOKEN")
TELLING = r"""
read -r task
printf '%s\n' "$FAVOURITE $TOKEN $OTHER" > "$CAPSULE_OUT/variables"
echo '{"type":"turn-end","result":"told"}'
"""
OURS = {"FAVOURITE": "blue", "TOKEN": "very-secret", "OTHER": "not asked for"}


class Asking(Command):
    """`capsule` and a capsule that asks for something."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "data").mkdir()
        self.config = folder / ".config/capsule/config.toml"
        self.words = [word.format(folder=folder) for word in WORDS]
        self.options = [part for word in self.words for part in ("--grant", word)]
        self.asking = self.capsule(TELLING)
        self.asks(ASKS)

    def asks(self, text: str) -> None:
        """Have the capsule ask for *text*."""
        manifest = Path(self.asking, "capsule.toml")
        manifest.write_text(manifest.read_text().partition("[capabilities]")[0] + text)

    def go(
        self, *words: str, walls: Sequence[str] = ADVISORY, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run the capsule."""
        given = {**OURS, **(env or {})}
        workdir = self.folder / "work"
        workdir.mkdir(exist_ok=True)
        where = ("--workdir", str(workdir))
        return self("run", self.asking, "--task", "go", *where, *walls, *words, env=given)

    def set(self, text: str, mode: int = 0o600) -> None:
        """Write config.toml."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)
        self.config.chmod(mode)


@pytest.fixture
def command(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


def grants_of(command: Command) -> dict[str, list[str]]:
    """Return what the last run got, by its own record."""
    shown = json.loads(command("show", "@last", "--json").out)
    grants: dict[str, list[str]] = shown["grants"]
    return grants


def test_without_grants_nothing_starts_and_all_that_is_missing_is_listed(command: Asking) -> None:
    done = command.go()

    assert done.status == 7
    assert done.out == ""
    told, _, hint = done.err.partition("hint: ")
    assert told.splitlines() == [
        "error[E-TRU-001]: the capsule 'sample' asks for what nobody granted:",
        *(f"  {word}" for word in command.words),
    ]
    assert shlex.join(command.options) in hint
    assert hint.splitlines()[-1].endswith(f"capsule trust {command.asking}")
    assert list(command.state.glob("runs/*")) == []
    assert list(command.state.glob("contexts/*")) == []
    assert json.loads(command("ps", "--all", "--json").out) == []


def test_the_words_that_a_refusal_prints_do(command: Asking) -> None:
    hint = command.go().err.partition("hint: Grant it for one run with ")[2].splitlines()[0]

    assert command.go(*shlex.split(hint)).status == 0


def test_a_program_reads_what_is_missing(command: Asking) -> None:
    error = json.loads(command.go("--format", "jsonl").err)["error"]

    assert (error["code"], error["exit_status"]) == ("E-TRU-001", 7)


def test_a_detached_run_is_refused_as_well(command: Asking) -> None:
    done = command.go("--detach")

    assert (done.status, done.out) == (7, "")
    assert "error[E-TRU-001]" in done.err


def by_flag(command: Asking) -> Done:
    return command.go(*command.options)


def by_environment(command: Asking) -> Done:
    return command.go(env={"CAPSULE_GRANT": shlex.join(command.words)})


GRANTED = """
read = ["~/data"]
hosts = ["*.org", "example.org"]
env = ["FAVOURITE"]
secrets = ["TOKEN"]
"""


def by_config(command: Asking) -> Done:
    command.set("[grants]" + GRANTED.replace("*.org", "*.a.org"))
    return command.go()


def by_config_for_its_folder(command: Asking) -> Done:
    command.set('[grants_for."~/capsule"]' + GRANTED.replace("*.org", "*.a.org"))
    return command.go()


def by_config_named_elsewhere(command: Asking) -> Done:
    command.set("[grants]" + GRANTED.replace("*.org", "*.a.org"))
    elsewhere = command.config.rename(command.folder / "mine.toml")
    return command.go(env={"CAPSULE_CONFIG": str(elsewhere)})


def by_trust(command: Asking) -> Done:
    assert command("trust", command.asking, "--yes").status == 0
    return command.go()


def by_everything_a_little(command: Asking) -> Done:
    command.set('[grants]\nhosts = ["example.org"]\n')
    return command.go(
        *command.options[:2], "--grant", "env=FAVOURITE", env={"CAPSULE_GRANT": "secret=TOKEN"}
    )


def by_more_than_is_asked(command: Asking) -> Done:
    words = ("--grant", f"write={command.folder}/data", "--grant", "env=OTHER")
    return command.go(*command.options[2:], *words)


WAYS = (
    by_flag,
    by_environment,
    by_config,
    by_config_for_its_folder,
    by_config_named_elsewhere,
    by_trust,
    by_everything_a_little,
    by_more_than_is_asked,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_of_granting_gives_what_was_asked_for_and_no_more(
    command: Asking, way: Callable[[Asking], Done]
) -> None:
    done = way(command)

    assert (done.status, done.out) == (0, "told\n")
    assert grants_of(command) == {
        "read": [f"{command.folder}/data"],
        "hosts": ["example.org"],
        "env": ["FAVOURITE"],
        "secrets": ["TOKEN"],
    }
    [told] = command.state.glob("runs/*/out/variables")
    assert told.read_text() == "blue very-secret \n"


def test_values_are_nowhere_on_record(command: Asking) -> None:
    command.go(*command.options)
    for written in command.state.glob("runs/*/out/*"):
        written.unlink()

    assert "TOKEN" in command("explain", "@last").out
    for path in command.state.rglob("*"):
        if path.is_file():
            assert b"very-secret" not in path.read_bytes(), path


def test_the_callers_own_variables_need_no_grant(command: Asking) -> None:
    command.asks("")
    done = command.go("--env", "OTHER", "--env", "TOKEN=mine")
    [told] = command.state.glob("runs/*/out/variables")

    assert done.status == 0
    assert told.read_text() == " mine not asked for\n"


def test_a_variable_of_the_callers_goes_before_one_that_is_granted(command: Asking) -> None:
    command.go(*command.options, "--env", "TOKEN=mine")
    [told] = command.state.glob("runs/*/out/variables")

    assert told.read_text() == "blue mine \n"


def test_a_capsule_that_asks_for_nothing_is_not_looked_through(command: Asking) -> None:
    command.asks('[capabilities]\nread = ["./own"]\n')
    command.go()
    told = json.loads(command("explain", "@last", "--json").out)

    assert "digest" not in told["created"]
    assert told["attempt"]["grants"] == {}


def test_the_digest_and_the_grants_are_facts_of_the_run(command: Asking) -> None:
    command.go(*command.options)
    told = json.loads(command("explain", "@last", "--json").out)

    assert told["created"]["digest"].startswith("sha256:")
    assert told["attempt"]["grants"]["secrets"] == ["TOKEN"]


def test_explain_says_what_is_asked_granted_and_missing(command: Asking) -> None:
    command.set('[grants]\nhosts = ["example.org"]\n')
    plan = json.loads(command("explain", command.asking, "--json").out)

    assert plan["asks"]["asked"] == command.words
    assert plan["asks"]["granted"] == {"host=example.org": "config.toml"}
    assert plan["asks"]["missing"] == [w for w in command.words if w != "host=example.org"]
    assert plan["grants"] == {"hosts": ["example.org"]}
    caveat = "hosts: nothing holds the harness to them; the network is open"
    assert (caveat in plan["caveats"]) == (plan["walls"]["axes"]["net"] == "open")


def test_run_explain_says_where_everything_comes_from_and_shows_no_value(command: Asking) -> None:
    done = command.go(*command.options, "--explain", "--json", "--env", "FAVOURITE=red")
    plan = json.loads(done.out)

    assert plan["asks"]["granted"] == dict.fromkeys(command.words, "--grant")
    assert plan["asks"]["missing"] == []
    assert plan["env"]["TOKEN"] == "secret of the caller"
    assert plan["env"]["FAVOURITE"] == "caller"
    assert "very-secret" not in done.out
    assert not command.state.exists()


def test_a_secret_too_short_to_be_redacted_is_told(command: Asking) -> None:
    told = "shorter than 8 characters, so not redacted: TOKEN"

    short = command.go(*command.options, "--explain", "--json", env={"TOKEN": "seven77"})
    long = command.go(*command.options, "--explain", "--json")

    assert told in json.loads(short.out)["caveats"]
    assert told not in json.loads(long.out)["caveats"]


def test_what_is_granted_and_not_set_is_told(command: Asking) -> None:
    plan = json.loads(
        command(
            "explain", command.asking, "--json", env={"CAPSULE_GRANT": "env=FAVOURITE secret=TOKEN"}
        ).out
    )

    assert "asked for, granted, and not set here: FAVOURITE, TOKEN" in plan["caveats"]


# What is refused, whoever grants it.


@pytest.mark.parametrize(
    ("asks", "part"),
    [
        ('read = ["/"]', "it belongs to the system"),
        ('read = ["~"]', "it holds your home folder"),
        ('write = ["~/.ssh"]', "credentials are kept in ~/.ssh"),
        ('read = ["~/keys"]', "credentials are kept in ~/.ssh"),
        ('read = ["~/state/runs"]', "kept there"),
        ('write = ["~/capsule"]', "the capsule's own folder"),
        ('write = ["~/capsule/cache"]', "the capsule's own folder"),
        ('read = ["~/data"]\nwrite = ["~/data/out"]', "one holds the other"),
        ('read = ["~/to-data/out"]\nwrite = ["~/data"]', "one holds the other"),
    ],
)
def test_what_no_capsule_gets(command: Asking, asks: str, part: str) -> None:
    (command.folder / "keys").symlink_to(".ssh")
    (command.folder / "to-data").symlink_to("data")
    command.asks(f"[capabilities]\n{asks}\n")
    ways = [command.go("--grant", "read=/", "--grant", "write=/"), command("trust", "capsule")]

    for done in ways:
        assert done.status == 2
        assert done.err.startswith("error[E-MAN-010]: ")
        assert part in done.err


def test_paths_are_granted_where_they_lead(command: Asking) -> None:
    command.asks('[capabilities]\nread = ["~/link"]\n')
    (command.folder / "link").symlink_to("data")
    (command.folder / "other").mkdir()
    data, other = (f"read={command.folder}/{name}" for name in ("data", "other"))

    assert command.go("--grant", data).status == 0
    assert command.go("--grant", other).status == 7
    assert command("trust", "capsule", "--yes").status == 0
    assert command.go().status == 0
    (command.folder / "link").unlink()
    (command.folder / "link").symlink_to("other")
    assert f"\n  {other}\n" in command.go().err


def test_text_of_a_manifest_steers_no_terminal_and_no_runner(command: Asking) -> None:
    command.asks('[capabilities]\nread = ["/x/\u202e##[group]"]\n')
    for done in (command.go(), command("trust", "capsule", "--yes"), command("explain", "capsule")):
        assert "read=/x/<U+202E>## [group]" in done.out + done.err
        assert "\u202e" not in done.out + done.err
        assert "##[" not in done.out + done.err


def test_control_characters_are_refused_and_shown(command: Asking) -> None:
    command.asks('[capabilities]\nread = ["/x\\u001b[2J"]\n')
    done = command.go()

    assert done.status == 2
    assert "it holds control characters" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("word", ["all", "read=data", "hots=a.org", "env=LD_PRELOAD", "tier=no"])
def test_what_is_no_grant(command: Asking, word: str) -> None:
    assert command.go("--grant", word).err.startswith("error[E-USE-032]: --grant: ")
    assert command.go(env={"CAPSULE_GRANT": word}).err.startswith("error[E-USE-032]: CAPSULE_GRANT")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("api.*.org", "a * elsewhere than in one leading *."),
        ("*.org", "at least two names"),
        ("example.org:65536", "from 1 to 65535"),
        ("2606:4700::1", "in brackets"),
        ("127.0.0.1", "no capsule reaches that address: it is loopback"),
        ("169.254.169.254", "it is the metadata of a cloud"),
        ("https://example.org", "only http:// may stand before it"),
    ],
)
def test_a_host_that_no_grant_opens_is_told_why_and_how_hosts_are_written(
    command: Asking, host: str, why: str
) -> None:
    done = command.go("--grant", f"host={host}")

    assert done.status == 2
    assert done.err.startswith("error[E-USE-032]: --grant: ")
    assert why in done.err
    assert "--grant host=10.1.2.3" in done.err


def test_an_open_quote_in_the_environment(command: Asking) -> None:
    done = command.go(env={"CAPSULE_GRANT": "'read=/a"})

    assert (done.status, done.err[:18]) == (2, "error[E-USE-032]: ")


# Tiers.

NO_WALLS: tuple[str, ...] = ()
HAS_SEALED = 0 if find_namespaces().variant else 6
HAS_SCOPED = 6 if find_scopes().why else 0
"""How a run ends that is to be scoped here."""
HAS_ANY = min(HAS_SEALED, HAS_SCOPED)
"""How a run ends that gets the strongest tier there is, from scoped on."""
LOWER = '[capabilities]\ncontainment = "advisory"\n'
HIGHER = '[capabilities]\ncontainment = "sealed"\n'


@pytest.mark.parametrize(
    ("asks", "config", "walls", "variable", "status"),
    [
        (LOWER, "", (), "", 7),
        (LOWER, "", ("--grant", "tier=advisory"), "", 0),
        (LOWER, '[grants]\ncontainment = "advisory"\n', (), "", 0),
        (LOWER, "", ADVISORY, "", 0),
        (LOWER, "", ("--containment", "scoped"), "", HAS_SCOPED),
        (LOWER, "", ("--containment", "scoped", "--grant", "tier=advisory"), "", HAS_SCOPED),
        (LOWER, "", ("--grant", "tier=advisory"), "scoped", HAS_SCOPED),
        (LOWER, '[run]\ncontainment = "scoped"\n', ("--grant", "tier=advisory"), "", HAS_SCOPED),
        (HIGHER, "", ADVISORY, "", HAS_SEALED),
        ("", "", (), "", HAS_ANY),
        ("", "", ("--grant", "tier=advisory"), "", HAS_ANY),
        ("", "", (), "advisory", 0),
        ("", '[run]\ncontainment = "advisory"\n', (), "", 0),
        ("", '[run]\ncontainment = "scoped"\n', ADVISORY, "", HAS_SCOPED),
        ("", "", ADVISORY, "scoped", HAS_SCOPED),
        ("", "", ADVISORY, "none", 2),
    ],
)
def test_the_strictest_of_all_that_set_a_floor_holds(
    command: Asking, asks: str, config: str, walls: tuple[str, ...], variable: str, status: int
) -> None:
    command.asks(asks)
    command.set(config)

    assert command.go(walls=walls, env={"CAPSULE_CONTAINMENT": variable}).status == status


# config.toml.


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_config_that_others_may_read_is_refused(command: Asking, mode: int) -> None:
    command.set("", mode)
    done = command.go()

    assert done.status == 2
    assert done.err.startswith(f"error[E-CFG-006]: {command.config} has mode {mode:04o}")
    assert f"hint: chmod 600 {command.config}\n" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_config_of_somebody_else_is_refused(command: Asking) -> None:
    command.set("")
    os.chown(command.config, 12345, 12345)

    assert "error[E-CFG-006]" in command.go().err
    assert "belongs to user 12345" in command.go().err


def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_name(command: Asking) -> None:
    command.set('[grants]\nhots = ["example.org"]\n')
    done = command.go()

    assert done.status == 2
    assert done.err == (
        f"error[E-CFG-002]: {command.config}:2: unknown key 'grants.hots'\n"
        "hint: Did you mean 'hosts'?\n"
    )


def test_a_config_that_is_named_must_be_there(command: Asking) -> None:
    done = command.go(env={"CAPSULE_CONFIG": "absent.toml"})

    assert done.status == 2
    assert done.err.startswith(f"error[E-CFG-005]: {command.folder}/absent.toml cannot be read")


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, no_text])
def test_a_config_that_is_no_text_is_refused(command: Asking, make: Callable[[Path], None]) -> None:
    path = command.folder / "config"
    make(path)
    path.chmod(0o600)

    assert "error[E-CFG-005]" in command.go(env={"CAPSULE_CONFIG": str(path)}).err


def test_names_that_are_no_text_are_told_to_a_program_as_well(command: Asking) -> None:
    for name, code in (("CAPSULE_CONFIG", "E-CFG-005"), ("CAPSULE_GRANT", "E-USE-032")):
        done = command.go("--format", "jsonl", env={name: "read=/\udcff"})

        assert json.loads(done.err)["error"]["code"] == code


def test_a_path_that_leads_to_what_is_no_text_is_refused(command: Asking) -> None:
    command.asks('[capabilities]\nread = ["~/link"]\n')
    (command.folder / "link").symlink_to("\udcff")
    done = command.go("--format", "jsonl")

    assert json.loads(done.err)["error"]["code"] == "E-MAN-010"


def test_a_variable_that_is_no_text_reaches_the_harness(command: Asking) -> None:
    done = command.go(*command.options, env={"TOKEN": "\udcff"})
    [told] = command.state.glob("runs/*/out/variables")

    assert done.status == 0
    assert told.read_bytes() == b"blue \xff \n"


def test_a_granted_path_that_is_not_there_is_told(command: Asking) -> None:
    (command.folder / "data").rmdir()
    plan = json.loads(command.go(*command.options, "--explain", "--json").out)

    assert f"asked for, granted, and not there: {command.folder}/data" in plan["caveats"]
