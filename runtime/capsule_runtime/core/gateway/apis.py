"""The ways in which models are called over HTTP. They are named by what is posted where."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

ChatCap = Literal["max_completion_tokens", "max_tokens"]
"""What a provider of Chat Completions calls the cap. Older ones know the second name only."""


class Api(StrEnum):
    """A way to call a model: its paths, its bodies, its usage and its errors."""

    MESSAGES = "messages"
    CHAT = "chat-completions"
    RESPONSES = "responses"
    GENERATE = "generate-content"
