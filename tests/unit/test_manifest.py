"""capsule.toml: what it may say, and what its author is told when it says something else."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Literal, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from capsule_runtime import Manifest, ManifestError, parse_manifest
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.grants import Capabilities
from capsule_runtime.manifest import (
    Harness,
    Idle,
    Interaction,
    Limits,
    Spending,
    Workdir,
    convert_config,
)

LEAST = 'name = "demo"\n[harness]\ndriver = "jsonl"\n'
MOST = """\
name = "demo.v1_a-b"
version = "1.2.3"
description = "it counts"

[harness]
driver = "jsonl"
command = ["python3", "./agent.py"]
args = ["-v"]
model = "m"
system_prompt = "be short"
system_prompt_file = "prompt.md"
version = ">=2.1,<3"

[harness.config]
interrupt = "int"

[workdir]
mode = "ro"
copies_at_most = "1GiB"

[limits]
wall = "1h30m"
grace = "500ms"
output = "1GiB"
line = "64KiB"
memory = "1GiB"
processes = 64
files = 256
disk = "2GiB"
cpus = 1.5

[limits.idle]
first_token = "1m"
streaming = "2m"
tool = "3m"
rate_limited = "4m"

[capabilities]
read = ["~/models", "./data"]
write = ["/var/cache/demo"]
hosts = ["example.org", "*.example.org:8443"]
env = ["EDITOR"]
secrets = ["DEMO_TOKEN"]
providers = ["acme"]
containment = "advisory"
[spend]
usd = "1.50"
tokens = 20000
turns = 10
tool_calls = 0
on_unmetered = "allow"
[interaction]
on_permission = "fail"
"""
TABLES: dict[str, type[Struct]] = {
    "": Manifest,
    "harness": Harness,
    "workdir": Workdir,
    "limits": Limits,
    "interaction": Interaction,
    "limits.idle": Idle,
    "capabilities": Capabilities,
    "spend": Spending,
}


def refused(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "capsule.toml")
    return caught.value


# What it may say.


def test_the_least_manifest_has_the_defaults() -> None:
    manifest = parse_manifest(LEAST, "capsule.toml")

    assert manifest == Manifest("demo", Harness("jsonl"))
    assert (manifest.version, manifest.description, manifest.workdir.mode) == ("0.0.0", "", None)


def test_the_default_limits() -> None:
    assert Limits().in_units() == {
        "wall_seconds": 3600,
        "grace_seconds": 5,
        "output_bytes": 256 * 1024**2,
        "line_bytes": 16 * 1024**2,
        "memory_bytes": 4 * 1024**3,
        "processes": 512,
        "files": 4096,
        "disk_bytes": 10 * 1024**3,
        "idle_first_token_seconds": 300,
        "idle_streaming_seconds": 180,
        "idle_tool_seconds": 1800,
        "idle_rate_limited_seconds": 600,
    }


def test_every_key_is_read() -> None:
    assert parse_manifest(MOST, "capsule.toml") == Manifest(
        name="demo.v1_a-b",
        version="1.2.3",
        description="it counts",
        harness=Harness(
            driver="jsonl",
            command=("python3", "./agent.py"),
            args=("-v",),
            model="m",
            system_prompt="be short",
            system_prompt_file="prompt.md",
            version=">=2.1,<3",
            config={"interrupt": "int"},
        ),
        workdir=Workdir("ro", "1GiB"),
        limits=Limits(
            "1h30m",
            "500ms",
            "1GiB",
            "64KiB",
            Idle("1m", "2m", "3m", "4m"),
            memory="1GiB",
            processes=64,
            files=256,
            disk="2GiB",
            cpus=1.5,
        ),
        capabilities=Capabilities(
            read=("~/models", "./data"),
            write=("/var/cache/demo",),
            hosts=("example.org", "*.example.org:8443"),
            env=("EDITOR",),
            secrets=("DEMO_TOKEN",),
            providers=("acme",),
            containment="advisory",
        ),
        spend=Spending("1.50", 20_000, 10, 0, "allow"),
        interaction=Interaction("fail"),
    )


def test_the_most_manifest_sets_every_key_there_is() -> None:
    """So that a key added later is added to this test as well."""
    raw = tomllib.loads(MOST)
    for table, kind in TABLES.items():
        here: dict[str, Any] = raw
        for part in filter(None, table.split(".")):
            here = here[part]
        assert set(here) == set(kind.__struct_fields__)


def test_limits_are_recorded_in_seconds_and_bytes() -> None:
    assert parse_manifest(MOST, "capsule.toml").limits.in_units() == {
        "wall_seconds": 5400,
        "grace_seconds": 0.5,
        "output_bytes": 1024**3,
        "line_bytes": 64 * 1024,
        "memory_bytes": 1024**3,
        "processes": 64,
        "files": 256,
        "disk_bytes": 2 * 1024**3,
        "cpus": 1.5,
        "idle_first_token_seconds": 60,
        "idle_streaming_seconds": 120,
        "idle_tool_seconds": 180,
        "idle_rate_limited_seconds": 240,
    }


@pytest.mark.parametrize(
    ("usd", "microusd"), [('"0.10"', 100_000), ("0.1", 100_000), ("2", 2_000_000), ("0", 0)]
)
def test_dollars_are_read_without_binary_fractions(usd: str, microusd: int) -> None:
    manifest = parse_manifest(LEAST + f"[spend]\nusd = {usd}\n", "capsule.toml")

    assert manifest.spend.ceilings() == Ceilings(microusd)
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest


@pytest.mark.parametrize(
    ("line", "words", "hint"),
    [
        ("usd = -1", "-1 is negative", "Dollars are written like"),
        ('usd = "much"', "'much' is not a number of dollars", "Dollars are written like"),
        ("usd = 0.0000001", "more than 6 decimals", "Dollars are written like"),
        ("usd = true", "spend.usd = True", "Dollars are written like"),
        ("tokens = -1", "spend.tokens = -1", "`capsule schema manifest`"),
        ("turns = 1.5", "spend.turns = 1.5", "`capsule schema manifest`"),
        ('on_unmetered = "maybe"', "spend.on_unmetered = 'maybe'", "One of 'refuse', 'allow'."),
    ],
)
def test_what_is_no_ceiling_is_refused(line: str, words: str, hint: str) -> None:
    error = refused(LEAST + f"[spend]\n{line}\n")

    assert words in error.message
    assert hint in error.hint


def test_a_manifest_keeps_its_form_in_the_log() -> None:
    manifest = parse_manifest(MOST, "capsule.toml")

    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest


@pytest.mark.parametrize("version", ["", "==1", ">=2.1,<3", "<=10.0.1"])
def test_ranges_of_versions(version: str) -> None:
    manifest = parse_manifest(LEAST + f'version = "{version}"\n', "capsule.toml")

    assert manifest.harness.version == version


# What it may not say.


@pytest.mark.parametrize(
    ("text", "line", "key", "hint"),
    [
        (LEAST.replace("[harness]", 'nmae = "x"\n[harness]'), 2, "nmae", "Did you mean 'name'?"),
        (LEAST + 'comand = ["x"]\n', 4, "harness.comand", "Did you mean 'command'?"),
        (LEAST + '[workdir]\nmod = "ro"\n', 5, "workdir.mod", "Did you mean 'mode'?"),
        (LEAST + '[limits]\nwal = "1s"\n', 5, "limits.wal", "Did you mean 'wall'?"),
        (LEAST + '[limits.idle]\ntol = "1s"\n', 5, "limits.idle.tol", "Did you mean 'tool'?"),
        (LEAST + "[harnes]\n", 4, "harnes", "Did you mean 'harness'?"),
        (LEAST + "[workdir]\nzzz = 1\n", 5, "workdir.zzz", "Known here: mode, copies_at_most."),
        (LEAST + '[limits]\nidle.tol = "1s"\n', 5, "limits.idle.tol", "Did you mean 'tool'?"),
        ('limits.wal = "1s"\n' + LEAST, 1, "limits.wal", "Did you mean 'wall'?"),
        (LEAST + "[ limits . idle ]\ntol = 1\n", 5, "limits.idle.tol", "Did you mean 'tool'?"),
        (LEAST + '["limits"]\n"wal" = 1\n', 5, "limits.wal", "Did you mean 'wall'?"),
        (LEAST + "'comand' = []\n", 4, "harness.comand", "Did you mean 'command'?"),
        (
            'name = "a"\nharness = { driver = "x", comand = [] }\n',
            2,
            "harness.comand",
            "Did you mean 'command'?",
        ),
        (
            LEAST + "[limits]\nidle = { tol = 1 }\n",
            5,
            "limits.idle.tol",
            "Did you mean 'tool'?",
        ),
    ],
    ids=[
        "top",
        "harness",
        "workdir",
        "limits",
        "idle",
        "table",
        "nothing near",
        "dotted",
        "dotted at the top",
        "spaces in the header",
        "quoted",
        "quoted key",
        "inline table",
        "inline table in a table",
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_name(
    text: str, line: int, key: str, hint: str
) -> None:
    error = refused(text)

    assert (error.code, error.message) == (
        "E-MAN-002",
        f"capsule.toml:{line}: unknown key {key!r}",
    )
    assert error.hint == hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "capsule.toml: 'name' is missing", "Write name = … there."),
        ('[harness]\ndriver = "x"\n', "capsule.toml:1: 'name' is missing", "Write name = … there."),
        ('name = "a"\n', "capsule.toml:1: 'harness' is missing", "Begin a table [harness]."),
        (
            'name = "a"\n\n[harness]\nmodel = "m"\n',
            "capsule.toml:3: 'harness.driver' is missing",
            "Write driver = … there.",
        ),
    ],
)
def test_a_missing_key_is_named_with_the_line_of_its_table(
    text: str, message: str, hint: str
) -> None:
    error = refused(text)

    assert (error.code, error.message, error.hint) == ("E-MAN-003", message, hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            LEAST + "[limits]\nwall = 15\n",
            "capsule.toml:5: limits.wall = 15: Expected `str`, got `int`",
            "Durations are written",
        ),
        (
            LEAST + '[limits]\nwall = "15x"\n',
            "capsule.toml:5: limits.wall = '15x': it is not written right",
            "Durations are written",
        ),
        (
            LEAST + '[limits.idle]\ntool = "soon"\n',
            "capsule.toml:5: limits.idle.tool = 'soon': it is not written right",
            "Durations are written",
        ),
        (
            LEAST + '[limits]\noutput = "1 GB"\n',
            "capsule.toml:5: limits.output = '1 GB': it is not written right",
            "Sizes are written",
        ),
        (
            LEAST + 'command = ["a", 3]\n',
            "capsule.toml:4: harness.command[1] = 3: Expected `str`, got `int`",
            "`capsule schema manifest`",
        ),
        (
            LEAST + 'version = "latest"\n',
            "capsule.toml:4: harness.version = 'latest': it is not written right",
            "A range of versions",
        ),
        (
            LEAST + '[workdir]\nmode = "rx"\n',
            "capsule.toml:5: workdir.mode = 'rx': Invalid enum value 'rx'",
            "One of 'ro', 'copy', 'rw'.",
        ),
        (
            LEAST.replace("demo", "My Capsule"),
            "capsule.toml:1: name = 'My Capsule': it is not written right",
            "A name has up to 64",
        ),
        (
            LEAST + '[capabilities]\nread = ["/a", "b"]\n',
            "capsule.toml:5: capabilities.read[1] = 'b': it is neither absolute nor begins with ~/",
            "`capsule explain E-TRU-001`",
        ),
        (
            LEAST + '[capabilities]\nwrite = ["./cache"]\n',
            "capsule.toml:5: capabilities.write[0] = './cache': a capsule never writes into its own"
            " folder: it would not be what was trusted",
            "`capsule explain E-TRU-001`",
        ),
        (
            LEAST + '[capabilities]\nenv = ["LD_PRELOAD"]\n',
            "capsule.toml:5: capabilities.env[0] = 'LD_PRELOAD': no capsule gets the caller's value"
            " of it",
            "`capsule explain E-TRU-001`",
        ),
        (
            LEAST + '[capabilities]\ncontainment = "none"\n',
            "capsule.toml:5: capabilities.containment = 'none': Invalid enum value 'none'",
            "One of 'sealed', 'scoped', 'advisory'.",
        ),
        (
            LEAST + "[[limits]]\n",
            "capsule.toml:4: limits = [{}]: Expected `object`, got `array`",
            "`capsule schema manifest`",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_how_it_is_written(
    text: str, message: str, hint: str
) -> None:
    error = refused(text)

    assert (error.code, error.message) == ("E-MAN-004", message)
    assert error.hint.startswith(hint)


@pytest.mark.parametrize("name", ["", "A", "-a", "a b", "a/b", "..", "a" * 65, "a\\n", "ä"])
def test_a_name_is_plain(name: str) -> None:
    assert refused(LEAST.replace("demo", name)).code == "E-MAN-004"


@pytest.mark.parametrize("size", ["1B\\n", "9" * 400 + "B"])
def test_no_size_passes_that_cannot_be_read(size: str) -> None:
    assert refused(LEAST + f'[limits]\nline = "{size}"\n').code == "E-MAN-004"


def test_what_is_no_toml_is_refused_with_its_place() -> None:
    error = refused("name = \n")

    assert error.code == "E-MAN-001"
    assert error.message.startswith("capsule.toml: Invalid value")
    assert "line 1" in error.message


def test_a_key_inside_a_text_is_not_taken_for_its_line() -> None:
    text = LEAST.replace("[harness]", 'description = "a\\nharness.comand = 1"\n[harness]')

    assert refused(text + "comand = 1\n").message.startswith("capsule.toml:5:")


@given(st.text())
def test_any_text_is_a_manifest_or_refused(text: str) -> None:
    with pytest.raises(ManifestError, match=r"capsule\.toml"):
        parse_manifest(text, "capsule.toml")


_keys = st.sampled_from(
    sorted({name for kind in TABLES.values() for name in kind.__struct_fields__} | {"zzz"})
)
_scalar = st.one_of(st.booleans(), st.integers(-9, 9), st.sampled_from(["x", "1m", "2MiB", "rw"]))
_value = st.recursive(
    _scalar, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=2)
)


@given(st.dictionaries(_keys, _value, max_size=4))
def test_any_table_is_a_manifest_or_refused_with_its_line(raw: dict[str, Any]) -> None:
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in raw.items())
    try:
        parse_manifest(text, "capsule.toml")
    except ManifestError as exc:
        assert re.match(r"capsule\.toml(:\d+)?: ", exc.message)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in table.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, cast("list[object]", value))) + "]"
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'


# A driver's own table.


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    depth: int = 1


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["low", "high"] = "low"
    inner: Inner = Inner()


def config_refused(text: str) -> ManifestError:
    raw = tomllib.loads(text)["harness"]["config"]
    with pytest.raises(ManifestError) as caught:
        convert_config(raw, Config, "capsule.toml", text)
    return caught.value


def test_a_drivers_configuration_is_checked_by_the_drivers_own_struct() -> None:
    assert convert_config({"level": "high"}, Config, "capsule.toml") == Config("high")
    assert convert_config({}, Config, "capsule.toml") == Config()


def test_an_unknown_key_of_a_driver_is_refused_with_its_line_and_the_nearest_name() -> None:
    error = config_refused(LEAST + '[harness.config]\nlevl = "low"\n')

    assert (error.code, error.message, error.hint) == (
        "E-MAN-002",
        "capsule.toml:5: unknown key 'harness.config.levl'",
        "Did you mean 'level'?",
    )


def test_a_wrong_value_of_a_driver_is_refused_with_its_line_and_the_choices() -> None:
    error = config_refused(LEAST + '[harness.config]\nlevel = "mid"\n')

    assert (error.code, error.message, error.hint) == (
        "E-MAN-004",
        "capsule.toml:5: harness.config.level = 'mid': Invalid enum value 'mid'",
        "One of 'low', 'high'.",
    )


def test_an_unknown_key_deep_in_a_drivers_configuration_is_refused_too() -> None:
    error = config_refused(LEAST + "[harness.config.inner]\ndepht = 1\n")

    assert error.message == "capsule.toml:5: unknown key 'harness.config.inner.depht'"


# Its schema.


def walk(schema: object) -> list[dict[str, Any]]:
    """Return every object inside *schema*."""
    if isinstance(schema, dict):
        table = cast("dict[str, Any]", schema)
        return [table, *(found for inner in table.values() for found in walk(inner))]
    if isinstance(schema, list):
        return [found for inner in cast("list[object]", schema) for found in walk(inner)]
    return []


def test_the_schema_names_every_key_and_no_other() -> None:
    definitions = msgspec.json.schema(Manifest)["$defs"]

    for kind in TABLES.values():
        described = definitions[kind.__name__]
        assert list(described["properties"]) == list(kind.__struct_fields__)
        assert described["additionalProperties"] is False
        assert described["description"]


def test_the_schema_says_what_is_required() -> None:
    definitions = msgspec.json.schema(Manifest)["$defs"]

    assert definitions["Manifest"]["required"] == ["name", "harness"]
    assert definitions["Harness"]["required"] == ["driver"]


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = msgspec.json.schema(Manifest)
    references = [found["$ref"] for found in walk(schema) if "$ref" in found]

    assert references
    for reference in references:
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_the_types_of_the_schema_are_those_of_json_schema() -> None:
    types = {"object", "array", "string", "number", "integer", "boolean", "null"}

    for found in walk(msgspec.json.schema(Manifest)):
        if isinstance(kind := found.get("type"), str):
            assert kind in types


def test_the_patterns_of_the_schema_are_read_alike_by_every_reader() -> None:
    """No Python-only syntax: the schema is for editors, which are written in JavaScript."""
    patterns = [
        found["pattern"] for found in walk(msgspec.json.schema(Manifest)) if "pattern" in found
    ]

    assert len(patterns) > 3
    for pattern in patterns:
        re.compile(pattern)
        assert not re.search(r"\\[AZz]|\(\?P|\(\?<|\(\?[aiLmsux]", pattern)


def test_the_defaults_in_the_schema_are_the_defaults() -> None:
    limits = msgspec.json.schema(Manifest)["$defs"]["Limits"]["properties"]

    assert {name: found.get("default") for name, found in limits.items() if name != "idle"} == {
        "wall": "1h",
        "grace": "5s",
        "output": "256MiB",
        "line": "16MiB",
        "memory": "4GiB",
        "processes": 512,
        "files": 4096,
        "disk": "10GiB",
        "cpus": None,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('line = "1KiB"', "at least 64KiB"),
        ('memory = "1MiB"', "at least 32MiB"),
        ('disk = "1KiB"', "at least 1MiB"),
        ("processes = 0", "processes = 0"),
        ('wall = "0s"', "wall is 0s"),
        ('idle = {tool = "0ms"}', "tool is 0ms"),
    ],
)
def test_a_limit_that_nothing_can_keep_is_refused(line: str, words: str) -> None:
    text = f'name = "a"\n[harness]\ndriver = "jsonl"\n[limits]\n{line}\n'

    with pytest.raises(ManifestError, match=words):
        parse_manifest(text, "capsule.toml")
