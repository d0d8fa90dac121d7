"""The architecture, as a test: who may import what, and the rules of the house."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime/capsule_runtime"
DRIVERS = ROOT / "drivers/capsule_drivers"

PURE = {
    "__future__",
    "base64",
    "collections",
    "collections.abc",
    "dataclasses",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "msgspec",
    "msgspec.structs",
    "operator",
    "re",
    "struct",
    "tomllib",
    "types",
    "typing",
    "unicodedata",
    "zlib",
}
"""What may be imported where nothing may be read, written, waited for or timed."""

VALUES = {"config", "errors", "events", "frames", "manifest", "messages", "toml_file"}
"""Modules beside `core` that hold values and nothing else."""

EMBEDDING = {"embedding", "logs", "request", "supervisor"}
"""Where the public names are at home that only a program that embeds the runtime may import."""

ROOTS = {
    "acting",
    "announcing",
    "applying",
    "leavings",
    "offering",
    "probing",
    "providing",
    "active_run",
    "asking",
    "attempt",
    "burying",
    "containing",
    "deadline_watch",
    "deciding",
    "doorkeeping",
    "call_book",
    "call_ways",
    "cassettes",
    "gatekeeping",
    "gateway_plan",
    "gateway_serving",
    "granting",
    "metering",
    "heeding",
    "known_runs",
    "diagnosing",
    "launching",
    "listening",
    "plan",
    "pricing",
    "recovery",
    "redacting",
    "refusals",
    "registrar",
    "request",
    "runs",
    "settings",
    "supervisor",
    "trust",
    "workdirs",
    "yielding",
    "working",
}
"""Where deciding and acting meet. Nobody else outside `host` may import it."""

STANDALONE = {
    "host.burier",
    "host.cgroup",
    "host.door",
    "host.entering",
    "host.filter_trials",
    "host.filters",
    "host.landlock",
    "host.linux",
    "host.refusal_words",
    "host.seal_trial",
    "host.sealing",
    "host.shift_trial",
    "host.stub",
    "host.sweep",
    "host.trials",
    "host.walls",
    "host.warden",
    "host.watch",
    "host.zygote",
}
"""Run by a Python of their own that knows no packages: they find each other by bare names."""
PLAYER = "testing.player"
"""Copied into a capsule, and run there by a Python of its own."""


def modules() -> dict[str, Path]:
    """Return every module of the runtime by its name inside the package."""
    found: dict[str, Path] = {}
    for path in RUNTIME.rglob("*.py"):
        name = ".".join(path.relative_to(RUNTIME).with_suffix("").parts)
        found[name.removesuffix(".__init__").replace("__init__", "")] = path
    return found


MODULES = modules()
DRIVER_FILES = sorted(DRIVERS.rglob("*.py"))
OURS = sorted(
    path
    for folder in ("runtime", "drivers", "capsules", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
SHIPPED = [path for path in OURS if path.relative_to(ROOT).parts[0] != "tests"]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Yield the full name of everything *path* imports, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            module = node.module or ""
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                yield whole if whole.removeprefix("capsule_runtime.") in MODULES else module


def inside(name: str) -> set[str]:
    """Return the modules of the runtime that module *name* imports."""
    own = {m for m in imported(MODULES[name]) if m.split(".")[0] == "capsule_runtime"}
    return {module.removeprefix("capsule_runtime").removeprefix(".") for module in own}


def outside(path: Path) -> set[str]:
    """Return what *path* imports that is not ours."""
    return {m for m in imported(path) if m.split(".")[0] != "capsule_runtime"}


def reached(name: str) -> set[str]:
    """Return *name* and all that it imports, however far away."""
    seen: set[str] = set()
    waiting = {name}
    while waiting:
        seen |= waiting
        waiting = {new for module in waiting for new in inside(module)} - seen
    return seen


def room(name: str) -> str:
    return name.split(".")[0]


def of(*rooms: str) -> list[str]:
    """Return the modules of *rooms*, which may also be single modules."""
    found = sorted(name for name in MODULES if room(name) in rooms)
    assert found, f"no module in {rooms}"
    return found


def test_every_module_that_a_rule_names_exists() -> None:
    named = {*VALUES, *STANDALONE, *EMBEDDING, "driver", "replay", "cli", "__main__"}

    assert named <= set(MODULES)


# The arrows.


@pytest.mark.parametrize("name", of("core", *VALUES))
def test_core_and_values_reach_only_core_and_values(name: str) -> None:
    strangers = {other for other in reached(name) if room(other) not in {"core", *VALUES}}

    assert strangers == set()


@pytest.mark.parametrize("name", of("core", *VALUES))
def test_core_and_values_do_no_io_and_have_no_clock(name: str) -> None:
    assert outside(MODULES[name]) - PURE == set()


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_need_no_decisions(name: str) -> None:
    forms = {"core.capability_forms", "core.grants", "core.ceilings", "core.money", "core.prices"}
    forms |= {"core.provider_settings", "core.configured_providers"}

    assert inside(name) - VALUES <= {*forms, "core.units"}


def test_the_driver_contract_needs_values_and_the_list_of_what_is_installed() -> None:
    assert inside("driver") <= VALUES
    assert outside(MODULES["driver"]) - PURE == {"importlib.metadata"}


@pytest.mark.parametrize("path", DRIVER_FILES, ids=lambda path: path.name)
def test_drivers_use_only_the_public_runtime_and_do_no_io(path: Path) -> None:
    ours = {name for name in imported(path) if name.split(".")[0] == "capsule_runtime"}

    assert ours <= {"capsule_runtime"}
    shared = {name for name in outside(path) if name.split(".")[0] == "capsule_drivers"}
    assert outside(path) - PURE - shared == set()
    assert names_from_the_runtime(path) & embedding_names() == set()


def names_from_the_runtime(path: Path) -> set[str]:
    """Return the public names that *path* imports."""
    nodes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if node.module == "capsule_runtime"]
    return {alias.name for node in ours for alias in node.names}


def embedding_names() -> set[str]:
    """Return the public names behind which things are read, written and waited for."""
    nodes = [node for node in ast.walk(tree(MODULES[""])) if isinstance(node, ast.ImportFrom)]
    homes = {f"capsule_runtime.{home}" for home in EMBEDDING}
    return {alias.name for node in nodes if node.module in homes for alias in node.names}


def test_the_public_runtime_is_values_outcomes_the_driver_contract_and_the_embedding() -> None:
    """So a driver that imports the first three cannot reach what reads, writes or waits."""
    named = {"core.calls", "core.ceilings", "core.outcome", "core.work", "driver"}

    assert inside("") <= {*VALUES, *EMBEDDING, *named}
    assert {"Supervisor", "open_supervisor"} <= embedding_names()


@pytest.mark.parametrize("name", of("host"))
def test_host_does_not_know_who_uses_it(name: str) -> None:
    users = {other for other in inside(name) if room(other) not in {"core", "host", "driver"}}

    assert users <= VALUES


@pytest.mark.parametrize("name", sorted(set(MODULES) - set(of("host"))))
def test_only_the_roots_join_core_and_host(name: str) -> None:
    if any(room(other) == "host" for other in inside(name)):
        assert name in ROOTS


@pytest.mark.parametrize("name", of("cli"))
def test_the_command_line_never_reaches_into_host(name: str) -> None:
    assert not any(room(other) == "host" for other in inside(name))


@pytest.mark.parametrize("name", sorted(set(MODULES) - set(of("cli")) - {"__main__"}))
def test_nobody_needs_the_command_line(name: str) -> None:
    assert not any(room(other) == "cli" for other in inside(name))


def test_a_replay_has_no_process_no_clock_and_no_store() -> None:
    assert not any(room(other) in {"host", *ROOTS} for other in reached("replay"))


@pytest.mark.parametrize("name", sorted(STANDALONE))
def test_what_is_run_on_its_own_needs_the_standard_library_alone(name: str) -> None:
    siblings = {module.split(".")[1] for module in STANDALONE}

    assert inside(name) <= STANDALONE
    needed = {module.split(".")[0] for module in outside(MODULES[name])}
    assert needed <= set(sys.stdlib_module_names) | siblings


@pytest.mark.parametrize("name", ["agent.capsule_agent", PLAYER])
def test_what_runs_as_a_harness_needs_the_standard_library_alone(name: str) -> None:
    path = MODULES[name]

    assert {name.split(".")[0] for name in imported(path)} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", of("testing"))
def test_what_ships_for_tests_reaches_only_values_and_core(name: str) -> None:
    strangers = {
        other for other in reached(name) if room(other) not in {"core", "testing", *VALUES}
    }

    assert strangers == set()


# What the rooms may not do.


@pytest.mark.parametrize("path", [*(MODULES[name] for name in of("core")), *DRIVER_FILES])
def test_core_and_drivers_never_await_and_open_nothing(path: Path) -> None:
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}


VENDORS = ("anthropic", "claude", "codex", "gemini", "openai", "opencode", "qwen", "jsonl")


NAMES_AN_API_HAS = {
    "core.gateway.asked_messages",
    "core.provider_settings",
    "core.providers",
}
"""Where what a request may ask for is listed, some of which is called after a harness; and whom."""


@pytest.mark.parametrize("name", sorted({*of("core"), "frames"} - NAMES_AN_API_HAS))
def test_no_harness_driver_or_vendor_is_named_where_frames_are_decided(name: str) -> None:
    constants = {
        node.value.lower()
        for node in ast.walk(tree(MODULES[name]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree(MODULES[name]))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    }

    words = constants - {text.lower() for text in docstrings if text}
    assert [word for word in words for vendor in VENDORS if vendor in word] == []


# The rules of the house.

BROAD_HANDLERS = {
    "capsule_agent.py": "an agent's fault becomes its failed turn",
    "trying.py": "whatever goes wrong with a probe belongs into the matrix",
    "logs.py": "a logger is the caller's code: its fault costs its line only",
    "shelters.py": "raised where what was begun is waited for",
    "drivers.py": "a driver may be anybody's code: one that is broken hides no other",
    "guarded.py": "a driver may be anybody's code: its fault ends its run only",
    "failures.py": "the last line of the command: a bug is reported as one",
    "store.py": "what the writer's thread meets is raised where it was asked for",
    "supervisor.py": "raised again behind the task group, which would wrap it",
    "zygote.py": "a burier shows its bug and ends; the warden buries what it left",
}
LONG_MODULES = {
    "capsule_agent.py": "one file, so that a harness can copy it",
}
LONGEST = 280


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def is_too_broad(handler: ast.ExceptHandler) -> bool:
    """Whether *handler* takes what it does not know, and raises nothing for it."""
    caught = ast.unparse(handler.type) if handler.type else "BaseException"
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return caught in {"Exception", "BaseException"} and not raises


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_no_exception_is_swallowed(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            assert not is_too_broad(node) or path.name in BROAD_HANDLERS, f"line {node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            broad = {"Exception", "BaseException"} & {ast.unparse(arg) for arg in node.args}
            assert not broad, f"line {node.lineno}: too broad"


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_every_ignored_type_has_a_code_and_a_reason(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.search(r"#\s*(type|pyright):\s*ignore(?!\[[\w, -]+\]\s+# \w)", line):
            assert path == Path(__file__), f"line {number}: {line.strip()}"


@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_a_module_is_short_enough_to_be_read_at_once(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= LONGEST or path.name in LONG_MODULES, f"{lines} lines"


@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_every_module_says_what_it_is(path: Path) -> None:
    if tree(path).body:
        assert ast.get_docstring(tree(path))


@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_annotations_are_never_evaluated(path: Path) -> None:
    """`from __future__ import annotations` stands first wherever anything is defined."""
    body = tree(path).body
    if any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign) for node in body):
        first = body[1]
        assert isinstance(first, ast.ImportFrom)
        assert first.module == "__future__"


FOREIGN = re.compile(
    r"(?<![\w.~])/(home/(?!agent\b)|root/|Users/)\w|\bsee" r"d 0\d\d\b", re.IGNORECASE
)
"""Places and papers that are no part of the project: a reader could not find them."""
TEXT = {".py", ".md", ".toml", ".sql", ".sh", ".yml", ".js", ""}


def texts() -> list[Path]:
    folders = ("runtime", "drivers", "capsules", "tests", ".ci", ".github")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    found += [ROOT / "README.md", ROOT / "pyproject.toml"]
    caches = {"__pycache__", ".hypothesis"}
    return sorted(p for p in found if p.suffix in TEXT and caches.isdisjoint(p.parts))


def test_nothing_speaks_of_what_is_not_in_the_project() -> None:
    mentions = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FOREIGN.search(line)
    ]

    assert mentions == []
