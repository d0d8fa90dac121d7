"""What a run would be: the plan that `--explain` prints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace as replace_fields
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.containing import Shell, walls_of
from capsule_runtime.core.ceilings import Ceilings, DayCeilings
from capsule_runtime.core.containment import Containment
from capsule_runtime.core.grants import Grants, Item, Policy
from capsule_runtime.core.ledger import Spend
from capsule_runtime.core.setting import Setting, difference
from capsule_runtime.errors import ContainmentError
from capsule_runtime.granting import Asks, caveats_of_grants
from capsule_runtime.host.capsule import Task, plan_launch
from capsule_runtime.host.rows import ContextDiffers, ContextRow
from capsule_runtime.host.run_users import FIRST
from capsule_runtime.host.state import default_state, places_of
from capsule_runtime.host.store import open_store
from capsule_runtime.pricing import PriceBook
from capsule_runtime.redacting import redactor_of
from capsule_runtime.refusals import not_created
from capsule_runtime.request import (
    Ready,
    RunRequest,
    contained,
    read_request,
    settle,
    with_version,
)
from capsule_runtime.settings import day_ceilings, price_book
from capsule_runtime.workdirs import refuse_exposing


class Plan(Struct, frozen=True):
    """What a run would be: everything but its ids. Nothing was started."""

    capsule: str
    version: str
    folder: str
    driver: str
    harness_version: str | None
    """Where its driver can tell."""
    argv: tuple[str, ...]
    env: dict[str, str]
    """The names of the variables the harness gets, and where each value comes from."""
    workdir: str
    workdir_mode: str
    containment: str
    asks: Asks
    grants: Grants
    walls: Containment
    caveats: tuple[str, ...]
    """What a person should know of harness and grants. The walls have caveats of their own."""
    on_permission: Policy
    """What the harness is told when it asks whether it may use a tool."""
    limits: dict[str, float]
    model: str | None
    context: str | None
    usage: str
    ledger: str
    spend: Spend
    ceilings: Ceilings
    day: DayCeilings


def plan_run(
    request: RunRequest,
    state: Path | None = None,
    *,
    day: DayCeilings | None = None,
    prices: PriceBook | None = None,
    in_any_tier: bool = False,
    context: ContextRow | None = None,
) -> Plan:
    """Return what `start` would do with *request*; start nothing and write nothing.

    What nobody granted stands in the plan. With *in_any_tier* a tier that cannot be had is no
    matter. *context* is the one that *request* names, if there is one: see `known_context`.

    Raises:
        CapsuleError: the same that `start` would raise, but for what nobody granted.
    """
    state = state or default_state()
    ready = settle(read_request(request, day_ceilings() if day is None else day), state)
    try:
        ready = contained(ready, state, context.tier if context else None)
    except ContainmentError:
        if not (in_any_tier or any(item.kind == "tier" for item in ready.standing.missing)):
            raise
    shell = ready.shell
    if not in_any_tier:
        refuse_exposing(ready.workdir, ready.workdir_mode, shell.tier, state)
    if shell.needs_user:
        shell = shell.of_user(FIRST)
    ready = replace(with_version(ready, None), shell=shell)
    terms = ready.terms
    table = (prices or price_book(state)).load() if terms.needs_prices else None
    terms.check(ready.model, table)
    capsule, manifest = ready.capsule, ready.capsule.manifest
    uuid = context.uuid if context else "CONTEXT"
    places = places_of(state, "RUN", uuid, ready.workdir, ready.workdir_mode)
    if context is not None:
        _check_context(context, manifest.harness.driver, shell.setting(places))
    told = _told_of_gateway(ready, shell)
    task = Task(
        run="RUN",
        context=request.context or "CONTEXT",
        message=request.message,
        args=request.args,
        env={**ready.env, **told},
        model=request.model,
        session=context.session if context and capsule.described.resumes else None,
        memory=context.memory if context else None,
        limits=ready.limits,
        network=shell.environment,
        awaited=_awaited(ready.standing.missing),
        redactor=redactor_of(ready),
    )
    launch = plan_launch(capsule, shell.seen(places), task)
    walls = walls_of(
        capsule, places, launch, ready.limits, state=state, grants=ready.grants, shell=shell
    )
    return Plan(
        capsule=manifest.name,
        version=manifest.version,
        folder=str(capsule.folder),
        driver=manifest.harness.driver,
        harness_version=ready.installed.version if ready.installed else None,
        argv=launch.argv,
        env={name: _origin(name, ready, launch.plan.env, told) for name in sorted(launch.env)},
        workdir=str(ready.workdir),
        workdir_mode=ready.workdir_mode,
        containment=shell.tier,
        asks=ready.standing.asks,
        grants=ready.grants,
        walls=walls.report,
        caveats=(
            *ready.notes,
            *caveats_of_grants(ready.standing, ready.env, walls.report.axes.net),
            *_caveats_of_providers(ready),
        ),
        on_permission=ready.on_permission,
        limits=ready.limits,
        model=ready.model,
        context=request.context,
        usage=capsule.described.usage,
        ledger=terms.ledger,
        spend=terms.spend,
        ceilings=terms.ceilings,
        day=terms.day,
    )


async def known_context(request: RunRequest, state: Path | None = None) -> ContextRow | None:
    """Return the context that *request* names; None where it names none that there is.

    Raises:
        StoreError: the state directory cannot be used.
    """
    state = state or default_state()
    if request.context is None or not (state / "capsule.db").exists():
        return None
    async with open_store(state) as store:
        return store.context(request.context)


def _check_context(context: ContextRow, driver: str, setting: Setting) -> None:
    """Refuse what `start` would refuse a run in *context* that has this *driver* and *setting*."""
    mine = replace_fields(context, driver=driver).at(setting)
    if context.driver != driver or difference(context.setting, setting) is not None:
        raise not_created(ContextDiffers(context), mine)


def _caveats_of_providers(ready: Ready) -> list[str]:
    if not ready.providers:
        return []
    from capsule_runtime.providing import caveats_of_providers  # most runs have none

    return caveats_of_providers(ready.providers, os.environ)


def _awaited(missing: Iterable[Item]) -> tuple[str, ...]:
    """Return the variables that the harness would have if all that is *missing* were granted."""
    names = list[str]()
    for item in missing:
        if item.kind in ("env", "secret"):
            names.append(item.value)
        elif item.kind == "provider":
            from capsule_runtime.providing import known_providers  # most capsules ask for none

            if (provider := known_providers().get(item.value)) is not None:
                names.append(provider.variables.key)
    return tuple(names)


def _told_of_gateway(ready: Ready, shell: Shell) -> dict[str, str]:
    """Return the variables by which the harness would be told of the gateway."""
    if not ready.providers:
        return {}
    from capsule_runtime.core.providers import told  # most runs have none

    return told(ready.providers, shell.gateway_port, "MARKER")


def _origin(name: str, ready: Ready, planned: Mapping[str, str], gateway: Mapping[str, str]) -> str:
    if name in gateway:
        return "gateway"
    if name in ready.request.env:
        return "caller"
    if name in ready.env:
        return "secret of the caller" if name in ready.grants.secrets else "caller, as granted"
    return "driver" if name in planned else "runtime"
