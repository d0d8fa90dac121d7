"""What an answer tells, piece by piece: of usage, of its end, of a failure. One reader an API.

A piece is the data of an event, or a whole document. It is decoded only if it may tell something:
nearly all events of a stream do not, and keys are written plainly by all providers. A piece that is
no JSON, or tells impossible numbers, tells nothing.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, assert_never

import msgspec
from msgspec import Struct

from capsule_runtime.core.calls import CallUsage
from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.told_usage import (
    ChatUsage,
    GenerateUsage,
    MessagesUsage,
    ResponsesUsage,
)


class Answer:
    """What was told so far. *is_final*: no more will be told of usage."""

    def __init__(self) -> None:
        self.usage: CallUsage | None = None
        self.is_final = False
        self.has_ended = False
        self.has_failed = False
        self.tier: str | None = None
        self.model: str | None = None


class AnswerReader(Protocol):
    """Read the pieces of one answer."""

    answer: Answer

    def read(self, data: bytes) -> bool:
        """Read a piece. Return whether it tells of usage and nothing else."""
        ...


class _Stop(Struct):
    stop_reason: str | None = None


class _Message(Struct):
    model: str | None = None
    usage: MessagesUsage | None = None


class _MessagesPiece(Struct):
    type: str = ""
    model: str | None = None
    usage: MessagesUsage | None = None
    message: _Message | None = None
    delta: _Stop | None = None


class _Choice(Struct):
    finish_reason: str | None = None


class _ChatPiece(Struct):
    model: str | None = None
    usage: ChatUsage | None = None
    choices: list[_Choice] | None = None
    service_tier: str | None = None
    error: Any = None


class _Response(Struct):
    model: str | None = None
    status: str | None = None
    usage: ResponsesUsage | None = None
    service_tier: str | None = None


class _ResponsesPiece(_Response):
    type: str = ""
    response: _Response | None = None
    error: Any = None


class _Candidate(Struct, rename="camel"):
    finish_reason: str | None = None


class _GeneratePiece(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: GenerateUsage | None = None
    model_version: str | None = None
    prompt_feedback: Any = None
    error: Any = None


T = TypeVar("T")
_messages = msgspec.json.Decoder(_MessagesPiece)
_chat = msgspec.json.Decoder(_ChatPiece)
_responses = msgspec.json.Decoder(_ResponsesPiece)
_generate = msgspec.json.Decoder(_GeneratePiece)


class MessagesReader:
    """Read `message_start`, `message_delta`, `message_stop` and `error`, or a message."""

    def __init__(self, model: str) -> None:
        self.answer = Answer()
        self._model = model
        self._usage: MessagesUsage | None = None

    def read(self, data: bytes) -> bool:
        """Read a piece."""
        if b'"usage"' in data or b'"message_stop"' in data or b'"error"' in data:
            piece = _decoded(_messages, data)
            if piece is not None:
                self._tell(piece)
        return False

    def _tell(self, piece: _MessagesPiece) -> None:
        answer = self.answer
        match piece.type:
            case "message_start" if piece.message is not None:
                answer.model = piece.message.model
                self._use(piece.message.usage)
            case "message_delta":
                self._use(piece.usage)
                answer.is_final = piece.usage is not None
            case "message":
                answer.model = piece.model
                self._use(piece.usage)
                answer.is_final = answer.has_ended = True
            case "message_stop":
                answer.has_ended = True
            case "error":
                answer.has_failed = True
            case _:
                pass

    def _use(self, usage: MessagesUsage | None) -> None:
        if usage is None:
            return
        self._usage = usage.after(self._usage)
        self.answer.tier = self._usage.service_tier
        self.answer.usage = self._usage.call(self._model)


class ChatReader:
    """Read chunks with usage, `[DONE]` and errors, or a completion."""

    def __init__(self, model: str) -> None:
        self.answer = Answer()
        self._model = model

    def read(self, data: bytes) -> bool:
        """Read a piece. The chunk of usage at the end has no choices."""
        if data == b"[DONE]":
            self.answer.has_ended = True
            self.answer.is_final = self.answer.usage is not None
        elif b'"usage"' in data or b'"error"' in data:
            piece = _decoded(_chat, data)
            if piece is not None:
                return self._tell(piece)
        return False

    def _tell(self, piece: _ChatPiece) -> bool:
        answer = self.answer
        answer.has_failed |= piece.error is not None
        answer.tier = piece.service_tier or answer.tier
        answer.model = piece.model or answer.model
        if piece.usage is None:
            return False
        answer.usage = piece.usage.call(self._model)
        is_last = not piece.choices or any(one.finish_reason for one in piece.choices)
        answer.has_ended |= is_last
        answer.is_final |= is_last
        return piece.choices == []


class ResponsesReader:
    """Read the events that a response ends with, or a response."""

    def __init__(self, model: str) -> None:
        self.answer = Answer()
        self._model = model

    def read(self, data: bytes) -> bool:
        """Read a piece."""
        if b'"usage"' in data or b'"error"' in data or b'"response.failed"' in data:
            piece = _decoded(_responses, data)
            if piece is not None:
                self._tell(piece)
        return False

    def _tell(self, piece: _ResponsesPiece) -> None:
        answer = self.answer
        response = piece.response or piece
        answer.tier = response.service_tier or answer.tier
        answer.model = response.model or answer.model
        if piece.type in {"error", "response.failed"} or response.status == "failed":
            answer.has_failed = True
        elif piece.error is not None and piece.response is None:
            answer.has_failed = True
        if response.usage is not None:
            answer.usage = response.usage.call(self._model)
        ends = {"response.completed", "response.incomplete", "response.failed"}
        if piece.type in ends or (not piece.type and response.usage is not None):
            answer.has_ended = True
            answer.is_final = answer.usage is not None


class GenerateReader:
    """Read chunks, each of which tells all usage so far, or an answer."""

    def __init__(self, model: str) -> None:
        self.answer = Answer()
        self._model = model

    def read(self, data: bytes) -> bool:
        """Read a piece."""
        if b'"usageMetadata"' in data or b'"error"' in data or b'"finishReason"' in data:
            piece = _decoded(_generate, data)
            if piece is not None:
                self._tell(piece)
        return False

    def _tell(self, piece: _GeneratePiece) -> None:
        answer = self.answer
        answer.has_failed |= piece.error is not None
        answer.model = piece.model_version or answer.model
        if piece.usage_metadata is not None:
            answer.usage = piece.usage_metadata.call(self._model)
        # A prompt that was blocked has no candidates at all.
        stopped = any(one.finish_reason for one in piece.candidates or ())
        answer.has_ended |= stopped or piece.prompt_feedback is not None
        # What an earlier chunk told is not all.
        answer.is_final |= answer.has_ended and piece.usage_metadata is not None


def reader_of(api: Api, model: str) -> AnswerReader:
    """Return a reader for an answer of *api*. *model*, `provider:id`, goes into its usage."""
    match api:
        case Api.MESSAGES:
            return MessagesReader(model)
        case Api.CHAT:
            return ChatReader(model)
        case Api.RESPONSES:
            return ResponsesReader(model)
        case Api.GENERATE:
            return GenerateReader(model)
        case _:
            assert_never(api)


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
