"""The rig of the live tests. A module of them says which kit it drives: `KIT = "claude-code"`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from support.live.island import Island, NoIsland, opened
from support.live.kits import NotToBeHad, installed
from support.live.rig import TIER, Rig
from support.processes import processes_below, started_by_runs

_FOLDER = Path(__file__).parent
_TEST_SECONDS = 180
"""How long one test may take, installing not counted."""
_BUDGET_SECONDS = {"": 900, "every_tier": 180}
"""How long those of a mark, or all, should take together, once everything is installed."""
_seconds: dict[str, float] = {}


@pytest.fixture(scope="session")
def island(tmp_path_factory: pytest.TempPathFactory) -> Generator[Island]:
    """A network that ends at the mock."""
    try:
        with opened(tmp_path_factory.mktemp("island")) as found:
            yield found
    except NoIsland as exc:
        pytest.skip(f"no network namespace: {exc}")


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path, island: Island) -> Generator[Rig]:
    """Return the rig for the kit that the test names, else for that of its module.

    At the end nothing of it is alive.
    """
    of_module: str = getattr(request.node.getparent(pytest.Module).obj, "KIT")  # noqa: B009
    name: str = getattr(request, "param", of_module)
    try:
        kit, search_path = installed(name)
    except NotToBeHad as exc:
        pytest.skip(f"{name} cannot be installed: {exc}")
    yield Rig(tmp_path, island, kit, search_path)
    assert processes_below(tmp_path / "state") + started_by_runs(tmp_path / "state") == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a harness take its time, and its installation more."""
    for item in items:
        if _FOLDER in item.path.parents:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS, func_only=True))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count how long the live tests take, to the module."""
    module = report.nodeid.partition("::")[0]
    if Path(module).parent.name == _FOLDER.name:
        _seconds[module] = _seconds.get(module, 0.0) + report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the live tests took."""
    if _seconds:
        shown = ", ".join(f"{Path(name).stem} {took:.0f} s" for name, took in _seconds.items())
        chosen = str(terminalreporter.config.getoption("markexpr"))
        budget = _BUDGET_SECONDS.get(chosen, _BUDGET_SECONDS[""])
        took = f"{sum(_seconds.values()):.0f} s of {budget} s, {TIER}"
        terminalreporter.write_line(f"live tests: {took} ({shown})")
