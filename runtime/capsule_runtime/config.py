"""config.toml, the caller's own settings, to `Config`. Unknown keys are refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from capsule_runtime.core.capability_forms import (
    trouble_with_path,
    trouble_with_provider,
    troubles,
)
from capsule_runtime.core.ceilings import DayCeilings
from capsule_runtime.core.grants import Capabilities, Tier, Wish
from capsule_runtime.core.money import parse_usd
from capsule_runtime.core.prices import DollarsPerMillion
from capsule_runtime.core.provider_settings import ProviderSettings
from capsule_runtime.errors import UsageError
from capsule_runtime.toml_file import Codes, Tables, TomlFile

Dollars = str | int | float
"""An amount as it was written; whoever counts money reads it."""
Tokens = Annotated[int, Meta(ge=0, le=2**53)]


class RunSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for every run of this caller."""

    containment: Tier | None = None
    """The weakest tier that will ever do; no flag and no manifest lowers it."""
    on_permission: Wish | None = None
    """What a harness is told at least when it asks whether it may use a tool."""
    bwrap: str | None = None
    """The bubblewrap that seals runs, tried before those of the system; absolute, or below `~/`."""


class DaySettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all runs of one day may spend together."""

    usd: Dollars | None = None
    tokens: Tokens | None = None

    def __post_init__(self) -> None:
        if self.usd is not None:
            parse_usd(self.usd)


class SpendSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ceilings beyond one run."""

    day: DaySettings = field(default_factory=DaySettings)


class Config(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The caller's settings, as config.toml has them."""

    run: RunSettings = field(default_factory=RunSettings)
    grants: Capabilities = field(default_factory=Capabilities)
    """What every capsule gets that asks for it."""
    grants_for: dict[str, Capabilities] = field(default_factory=dict[str, Capabilities])
    """What the capsule in a folder gets. By folder, as its author chooses a capsule's name."""
    spend: SpendSettings = field(default_factory=SpendSettings)
    prices: dict[str, DollarsPerMillion] = field(default_factory=dict[str, DollarsPerMillion])
    """Prices by model, `provider:id`."""
    providers: dict[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    """Who serves models, by the name that capsules and grants use."""

    @property
    def day(self) -> DayCeilings:
        """Return what all runs of a day may spend together."""
        usd = self.spend.day.usd
        return DayCeilings(None if usd is None else parse_usd(usd), self.spend.day.tokens)


_CODES = Codes(UsageError, "E-CFG-001", "E-CFG-002", "E-CFG-003", "E-CFG-004")
_TABLES: Tables = {
    "": Config,
    "run": RunSettings,
    "grants": Capabilities,
    "grants_for.*": Capabilities,
    "spend": SpendSettings,
    "spend.day": DaySettings,
    "prices.*": DollarsPerMillion,
    "providers.*": ProviderSettings,
}
_UNSHOWN = frozenset({"base_url", "key_env", "key_command", "key_file"})
"""Where somebody may have written a key, or a password: no error shows what stands there."""


def parse_config(text: str, path: str) -> Config:
    """Read the settings *text* of the file *path*.

    Raises:
        UsageError: it is not TOML, or says what no config.toml may say; names file, line and key.
    """
    sample = "`capsule schema config` describes it."
    file = TomlFile(text, path, _TABLES, _CODES, _hint_for, sample, _UNSHOWN)
    config = file.parse(Config)
    for trouble in troubles(config.grants, of_manifest=False):
        file.refuse_value(("grants", *trouble.key), trouble.value, trouble.what)
    if (named := config.run.bwrap) is not None and (what := trouble_with_path(named)):
        file.refuse_value(("run", "bwrap"), named, what, "Name the program by its whole path.")
    if config.providers:
        _check_providers(file, config)
    for folder, granted in config.grants_for.items():
        if what := trouble_with_path(folder):
            file.refuse_value(("grants_for", folder), folder, what, "Name the capsule's folder.")
        for trouble in troubles(granted, of_manifest=False):
            key = ("grants_for", folder, *trouble.key)
            file.refuse_value(key, trouble.value, trouble.what)
    return config


def _check_providers(file: TomlFile, config: Config) -> None:
    from capsule_runtime.core.configured_providers import Misconfigured, provider_of  # few have any

    for name, settings in config.providers.items():
        if what := trouble_with_provider(name):
            file.refuse_value(("providers", name), name, what, "Name it in lower case.")
        if settings.key_file is not None and (what := trouble_with_path(settings.key_file)):
            file.refuse_value(("providers", name, "key_file"), settings.key_file, what)
        try:
            provider_of(name, settings)
        except Misconfigured as wrong:
            key = ("providers", name, wrong.key)
            if wrong.is_missing:
                file.refuse_missing(key, str(wrong))
            file.refuse_value(key, getattr(settings, wrong.key), str(wrong))


def _hint_for(key: str) -> str:
    if key.startswith("grants"):
        return "`capsule explain E-TRU-001` says what can be granted, and how it is written."
    if key in ("spend.day", "spend.day.usd"):
        return 'Dollars are written like "1.50", 1.5 or 2.'
    if key.startswith("providers"):
        return "`capsule explain E-PRO-001` shows how a provider is written."
    return "`capsule schema config` describes every key."
