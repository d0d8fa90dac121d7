"""The shipped prices as a table of ours: the same prices as their own package tells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path

import genai_prices
import msgspec
import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime import UsageError
from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.money import Cost
from capsule_runtime.core.prices import DollarsPerMillion, PriceTable, Rate, cost_of_call
from capsule_runtime.host.price_cache import read_prices
from capsule_runtime.host.price_table import load_price_table
from capsule_runtime.pricing import PriceBook

DAY, EARLIER = date(2026, 11, 30), date(2025, 6, 1)
DEAREST_HOUR = time(3, 0, tzinfo=UTC)
"""An hour at which every price that changes with the hour is at its dearest."""

MODELS = [
    (provider.id, model.id)
    for provider in providers
    for model in provider.models
    if model.is_match(model.id)
]


@cache
def table(on: date) -> PriceTable:
    return load_price_table(on, {})


def our_cost(provider: str, model: str, used: CallUsage, on: date) -> Cost:
    return cost_of_call(table(on).find(f"{provider}:{model}"), used)


def their_cost(provider: str, model: str, used: CallUsage, on: date) -> float:
    """Return what the package itself makes of *used*, in micro-dollars."""
    usage = genai_prices.Usage(
        input_tokens=used.prompt_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        cache_write_1h_tokens=used.cache_write_1h_tokens,
    )
    price = genai_prices.calc_price(
        usage,
        model,
        provider_id=provider,
        genai_request_timestamp=datetime.combine(on, DEAREST_HOUR),
    )
    return float(price.total_price * 1_000_000)


@pytest.mark.parametrize("on", [DAY, EARLIER], ids=str)
@pytest.mark.parametrize(
    ("used", "least_compared"),
    [
        (CallUsage(1000, 100, model=""), 1900),
        (CallUsage(10_000, 2000, 50_000, 0, 0, model=""), 1900),
        (CallUsage(10_000, 2000, 300_000, 0, 0, model=""), 1900),
        (CallUsage(10_000, 2000, 50_000, 5000, 0, model=""), 200),
        (CallUsage(10_000, 2000, 500_000, 5000, 4000, model=""), 200),
    ],
    ids=["plain", "cached", "cached, of the higher tier", "written", "written for an hour"],
)
def test_every_complete_cost_is_the_packages_own(
    used: CallUsage, least_compared: int, on: date
) -> None:
    compared = 0
    for provider, model in MODELS:
        cost = our_cost(provider, model, used, on)
        if not cost.incomplete:
            theirs = their_cost(provider, model, used, on)
            assert cost.least_microusd == pytest.approx(theirs, rel=1e-5, abs=1), model
            compared += 1

    assert compared >= least_compared


tokens = st.integers(0, 400_000)


@st.composite
def calls(draw: st.DrawFn) -> CallUsage:
    """Draw a call of which all is known."""
    write = draw(tokens)
    counts = draw(tokens), draw(tokens), draw(tokens), write, min(write, draw(tokens))
    return CallUsage(*counts, model="")


@given(st.sampled_from(MODELS), calls())
def test_no_cost_is_lower_than_the_packages_own(model: tuple[str, str], used: CallUsage) -> None:
    cost = our_cost(*model, used, DAY)

    if not cost.incomplete:
        assert cost.least_microusd >= their_cost(*model, used, DAY) * (1 - 1e-9)


def test_what_has_a_price_of_another_kind_has_none() -> None:
    """A fee for each request would be missing from the sum."""
    fees = [
        (provider.id, model.id)
        for provider in providers
        for model in provider.models
        if model.get_prices(datetime.combine(DAY, DEAREST_HOUR)).requests_kcount
    ]

    assert fees
    assert [table(DAY).find(f"{provider}:{model}") for provider, model in fees] == [None] * len(
        fees
    )


def test_a_table_is_of_one_day_and_says_so() -> None:
    version = table(DAY).version

    assert version == f"genai-prices {genai_prices.__version__} of 2026-11-30"
    assert table(EARLIER).providers != table(DAY).providers


def test_the_callers_prices_go_first_and_change_the_version() -> None:
    own = {"anthropic:claude-3-haiku": DollarsPerMillion(input="1", output="2")}
    other = {"anthropic:claude-3-haiku": DollarsPerMillion(input="1", output="3")}

    first, second = load_price_table(DAY, own), load_price_table(DAY, other)

    price = first.find("anthropic:claude-3-haiku")
    assert price is not None
    assert price.output == Rate(2_000_000)
    assert first.version.startswith(f"{table(DAY).version} with overrides ")
    assert len({first.version, second.version, table(DAY).version}) == 3
    assert load_price_table(DAY, own) == first


def test_a_price_of_the_caller_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="the price of 'acme:large': 'free' is not a number"):
        load_price_table(DAY, {"acme:large": DollarsPerMillion(input="free", output=0)})


# What is kept on disk.


def test_kept_prices_are_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "prices.msgpack"
    own = {"acme:new": DollarsPerMillion("1", "2")}

    first, second = (load_price_table(DAY, own, cache) for _ in range(2))

    assert first == second == load_price_table(DAY, own)
    assert os.listdir(cache.parent) == ["prices.msgpack"]


def test_prices_of_another_day_are_replaced(tmp_path: Path) -> None:
    cache = tmp_path / "prices.msgpack"
    load_price_table(EARLIER, {}, cache)

    assert load_price_table(DAY, {}, cache) == table(DAY)
    assert read_prices(cache, table(DAY).version) == table(DAY).providers


def spoil_nothing(_path: Path) -> None:
    return


def make_garbage(path: Path) -> None:
    path.write_bytes(b"\x00not prices")


def make_negative(path: Path) -> None:
    rate = {"base": -1}
    row = {"pattern": {"kind": "equals", "text": "m"}, "price": {"input": rate}}
    forged = {"version": table(DAY).version, "providers": [{"id": "acme", "rows": [row]}]}
    path.write_bytes(msgspec.msgpack.encode(forged))


def make_unsearchable(path: Path) -> None:
    row = {"pattern": {"kind": "regex", "text": "("}, "price": {}}
    forged = {"version": table(DAY).version, "providers": [{"id": "acme", "rows": [row]}]}
    path.write_bytes(msgspec.msgpack.encode(forged))


def let_others_write(path: Path) -> None:
    path.chmod(0o666)


def make_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "trusted"),
    [
        (spoil_nothing, True),
        (make_garbage, False),
        (make_negative, False),
        (make_unsearchable, False),
        (let_others_write, False),
        (make_link, False),
        (make_pipe, False),
        (make_folder, False),
    ],
)
def test_what_is_kept_is_not_trusted(
    tmp_path: Path, spoil: Callable[[Path], None], trusted: bool
) -> None:
    cache = tmp_path / "prices.msgpack"
    load_price_table(DAY, {}, cache)
    spoil(cache)

    assert (read_prices(cache, table(DAY).version) is not None) is trusted
    assert load_price_table(DAY, {}, cache) == table(DAY)


def test_a_disk_that_keeps_nothing_is_no_reason_to_have_no_prices() -> None:
    assert load_price_table(DAY, {}, Path("/proc/none/prices.msgpack")) == table(DAY)


def test_a_price_of_the_callers_that_is_none_is_their_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the price of 'acme:large'") as refused:
        PriceBook(tmp_path, {"acme:large": DollarsPerMillion(input="free", output=0)})

    assert refused.value.code == "E-USE-042"


def test_the_package_is_imported_only_when_prices_are_asked_for() -> None:
    code = "import sys, capsule_runtime.host.price_table; print('genai_prices' in sys.modules)"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout

    assert printed == b"False\n"
