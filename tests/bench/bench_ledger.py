"""What metering costs: a call entered and priced, and the price table loaded.

Run: python tests/bench/bench_ledger.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from capsule_runtime import Usage
from capsule_runtime.core.ceilings import Ceilings
from capsule_runtime.core.ledger import Ledger
from capsule_runtime.core.prices import PriceTable
from capsule_runtime.core.usage import UsageFold
from capsule_runtime.pricing import PriceBook

CALLS = 20_000
ROUNDS = 5
MODELS = ("anthropic:claude-sonnet-4-5", "openai:gpt-5", "acme:unknown")
LOAD = """
import sys, time
from pathlib import Path
from capsule_runtime.pricing import PriceBook
started = time.perf_counter()
PriceBook(Path(sys.argv[1])).load()
print((time.perf_counter() - started) * 1000)
"""


def reports(model: str) -> list[Usage]:
    """Return many calls of *model*, each with all that a provider reports."""
    return [Usage(model, n, 500, 20_000, 300, 100, 50, call_id=f"c{n}") for n in range(CALLS)]


def microseconds_a_call(enter: Callable[[], None]) -> float:
    """Return how long *enter* takes for each of its calls, at best."""
    took: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        enter()
        took.append(time.perf_counter() - started)
    return min(took) / CALLS * 1_000_000


def load_milliseconds(state: Path, *, cold: bool) -> float:
    """Return how long a new process takes to load the prices."""
    took: list[float] = []
    for _ in range(ROUNDS):
        if cold:
            (state / "cache" / "prices.msgpack").unlink(missing_ok=True)
        words = [sys.executable, "-c", LOAD, str(state)]
        took.append(float(subprocess.run(words, check=True, capture_output=True).stdout))
    return statistics.median(took)


def fold(told: list[Usage]) -> None:
    usage = UsageFold()
    for report in told:
        usage.apply(report)


def account(table: PriceTable, told: list[Usage]) -> None:
    ledger = Ledger(Ceilings(10**15, 10**12, on_unmetered="allow"), table)
    for report in told:
        ledger.used(report)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        table = PriceBook(state).load()
        cold, kept = load_milliseconds(state, cold=True), load_milliseconds(state, cold=False)
        sys.stdout.write(
            f"load of the price table: cold {cold:.0f} ms, kept on disk {kept:.1f} ms\n"
        )
    took = microseconds_a_call(partial(fold, reports(MODELS[0])))
    sys.stdout.write(f"fold: {took:.2f} us a call\n")
    for model in MODELS:
        took = microseconds_a_call(partial(account, table, reports(model)))
        sys.stdout.write(f"fold, price and ceilings, {model}: {took:.2f} us a call\n")
    started = time.perf_counter()
    found = [table.find(model) is not None for model in MODELS]
    took = (time.perf_counter() - started) / len(MODELS) * 1_000_000
    sys.stdout.write(f"first search of a price: {took:.0f} us a model ({sum(found)} known)\n")


if __name__ == "__main__":
    main()
