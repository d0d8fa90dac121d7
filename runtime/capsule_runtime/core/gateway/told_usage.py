"""What each API means by the numbers of its usage.

- `messages`: input stands without the cache's; writes are told by lifetime where they are told in
  parts; thoughts are part of the output. A stream tells the input at its start and all at its end.
- `chat-completions`, `responses`: what was read from the cache is part of the input, reasoning is
  part of the output. Some providers that serve the first have their own names for the cache, and
  some leave reasoning out of the output: the total tells which.
- `generate-content`: the cache is part of the prompt, what tools read stands beside it, and thoughts
  stand beside the candidates.

Numbers that contradict each other never make less than was told: an input below zero is none.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from capsule_runtime.core.calls import MOST_TOKENS, CallUsage

Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]


class CacheCreation(Struct, frozen=True):
    """What was written to the cache, by lifetime."""

    ephemeral_5m_input_tokens: Tokens | None = None
    ephemeral_1h_input_tokens: Tokens | None = None


class MessagesUsage(Struct, frozen=True):
    """Usage as Messages tells it."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    cache_creation: CacheCreation | None = None
    service_tier: str | None = None

    def after(self, earlier: MessagesUsage | None) -> MessagesUsage:
        """Return this with what only *earlier* told of the same call."""
        if earlier is None:
            return self
        return MessagesUsage(
            _newer(self.input_tokens, earlier.input_tokens),
            _newer(self.output_tokens, earlier.output_tokens),
            _newer(self.cache_read_input_tokens, earlier.cache_read_input_tokens),
            _newer(self.cache_creation_input_tokens, earlier.cache_creation_input_tokens),
            self.cache_creation or earlier.cache_creation,
            self.service_tier or earlier.service_tier,
        )

    def call(self, model: str) -> CallUsage:
        """Return it in our terms."""
        parts = self.cache_creation or CacheCreation()
        written = self.cache_creation_input_tokens
        told = (parts.ephemeral_5m_input_tokens, parts.ephemeral_1h_input_tokens)
        if any(told):
            written = max(written or 0, sum(part or 0 for part in told))
        return CallUsage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_input_tokens,
            written,
            parts.ephemeral_1h_input_tokens,
            model=model,
        )


class InputDetails(Struct, frozen=True):
    """Of the input, what the cache had part in."""

    cached_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None


class OutputDetails(Struct, frozen=True):
    """Of the output, what was thought."""

    reasoning_tokens: Tokens | None = None


class ChatUsage(Struct, frozen=True):
    """Usage as Chat Completions tells it, and those who serve it too."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None

    def call(self, model: str) -> CallUsage:
        """Return it in our terms."""
        details = self.prompt_tokens_details or InputDetails()
        read = _newer(
            details.cached_tokens, _newer(self.prompt_cache_hit_tokens, self.cached_tokens)
        )
        thought = (self.completion_tokens_details or OutputDetails()).reasoning_tokens
        return CallUsage(
            _without(self.prompt_tokens, read, details.cache_write_tokens),
            self._output(thought),
            read,
            details.cache_write_tokens,
            reasoning_tokens=thought,
            model=model,
        )

    def _output(self, thought: int | None) -> int | None:
        """Return all output. Where the total has more than its parts, thoughts stand beside it."""
        if self.completion_tokens is None or not thought:
            return self.completion_tokens
        parts = (self.prompt_tokens or 0) + self.completion_tokens
        is_beside = self.total_tokens is not None and self.total_tokens >= parts + thought
        return self.completion_tokens + (thought if is_beside else 0)


class ResponsesUsage(Struct, frozen=True):
    """Usage as Responses tells it."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None

    def call(self, model: str) -> CallUsage:
        """Return it in our terms."""
        details = self.input_tokens_details or InputDetails()
        return CallUsage(
            _without(self.input_tokens, details.cached_tokens, details.cache_write_tokens),
            self.output_tokens,
            details.cached_tokens,
            details.cache_write_tokens,
            reasoning_tokens=(self.output_tokens_details or OutputDetails()).reasoning_tokens,
            model=model,
        )


class GenerateUsage(Struct, frozen=True, rename="camel"):
    """Usage as GenerateContent tells it. A number that is 0 is left out there."""

    prompt_token_count: Tokens | None = None
    candidates_token_count: Tokens | None = None
    cached_content_token_count: Tokens | None = None
    thoughts_token_count: Tokens | None = None
    tool_use_prompt_token_count: Tokens | None = None
    total_token_count: Tokens | None = None

    def call(self, model: str) -> CallUsage:
        """Return it in our terms."""
        fresh = _without(self.prompt_token_count, self.cached_content_token_count)
        if fresh is not None:
            fresh += self.tool_use_prompt_token_count or 0
        return CallUsage(
            fresh,
            self._output(),
            self.cached_content_token_count,
            reasoning_tokens=self.thoughts_token_count,
            model=model,
        )

    def _output(self) -> int | None:
        parts = (self.candidates_token_count, self.thoughts_token_count)
        told = sum(part or 0 for part in parts)
        if self.total_token_count is None or self.prompt_token_count is None:
            return told if any(part is not None for part in parts) else None
        # What the total has beside the prompt was written, also where its parts were left out.
        read = self.prompt_token_count + (self.tool_use_prompt_token_count or 0)
        return max(told, self.total_token_count - read)


def _newer(newer: int | None, older: int | None) -> int | None:
    return older if newer is None else newer


def _without(whole: int | None, *parts: int | None) -> int | None:
    """Return *whole* without its *parts*."""
    return None if whole is None else max(0, whole - sum(part or 0 for part in parts))
