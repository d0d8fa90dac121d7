"""One provider of models as config.toml has it, before anybody looks whether it can be so."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from capsule_runtime.core.gateway.apis import ChatCap

Family = Literal["anthropic", "openai", "google"]
"""Whose interfaces a provider speaks."""


class ProviderSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One provider, as config.toml has it. What is left out is as built in."""

    family: Family | None = None
    base_url: str | None = None
    key_env: str | None = None
    """The variable of the caller that holds the key."""
    key_command: tuple[str, ...] | None = None
    """The program that prints the key, and its words: no shell reads them."""
    key_file: str | None = None
    """The file, its owner's alone, that holds the key; absolute, or below `~/`."""
    keyless: bool = False
    prices: str | None = None
    """Its name in the table of prices."""
    requests_per_minute: int | None = None
    concurrent_calls: int | None = None
    models: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    allow_features: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    chat_cap: ChatCap | None = None
