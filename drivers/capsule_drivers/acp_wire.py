"""The lines of the Agent Client Protocol: JSON-RPC 2.0, one message a line, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from capsule_runtime import DataPart, Message, TextPart

INITIALIZE, SESSION, PROMPT = 1, 2, 3
"""The ids of our requests. What is asked later (a setting, another prompt) has higher ones."""
_NO_METHOD = -32601
_COMMANDS = frozenset("/$")
_OURS = re.compile(r"[0-9]{1,9}")
_BESIDE = re.compile(r"[^\w.\-]+")


class Content(Struct, frozen=True):
    """A block of a message."""

    type: str = ""
    text: str = ""


class Money(Struct, frozen=True):
    """An amount of money."""

    amount: float | None = None
    currency: str = ""


class ClaudeMeta(Struct, frozen=True, rename="camel"):
    """What one agent says of its tools beside the protocol."""

    tool_name: str | None = None


class UpdateMeta(Struct, frozen=True, rename="camel"):
    """What an agent says of an update beside the protocol."""

    claude_code: ClaudeMeta | None = None
    tool_name: object = None
    usage: object = None
    """What one call of the model used: a `PromptUsage`, if it can be read."""


class Update(Struct, frozen=True, rename="camel"):
    """One `session/update`, whatever its kind; of a tool call only what changed."""

    session_update: str = ""
    message_id: str | None = None
    content: Content | list[object] | None = None
    tool_call_id: str | None = None
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    raw_input: object = None
    raw_output: object = None
    locations: object = None
    cost: Money | None = None
    meta: UpdateMeta | None = msgspec.field(name="_meta", default=None)


class Option(Struct, frozen=True, rename="camel"):
    """One answer to a question for permission."""

    option_id: str = ""
    kind: str = ""


class Params(Struct, frozen=True, rename="camel"):
    """What comes with a request or notification of the agent."""

    session_id: str | None = None
    update: Update | None = None
    tool_call: Update | None = None
    options: list[Option] = []


class PromptUsage(Struct, frozen=True, rename="camel"):
    """What an agent says it used, in the answer to a prompt."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    total_tokens: int | None = None


class TokenCount(Struct, frozen=True):
    """Gemini's count: the cache is in the input, thoughts are in neither."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class ModelQuota(Struct, frozen=True):
    """Gemini's count for one model."""

    model: str = ""
    token_count: TokenCount = TokenCount()


class Quota(Struct, frozen=True):
    """Gemini's counts for the whole turn."""

    model_usage: list[ModelQuota] = []


class ResultMeta(Struct, frozen=True):
    """What an agent says of an answer beside the protocol."""

    quota: Quota | None = None


class Capabilities(Struct, frozen=True, rename="camel"):
    """What an agent can do."""

    load_session: bool = False


class Models(Struct, frozen=True, rename="camel"):
    """Which model answers."""

    current_model_id: str | None = None


class ConfigOption(Struct, frozen=True, rename="camel"):
    """A setting of a session."""

    id: str = ""
    current_value: object = None


class Result(Struct, frozen=True, rename="camel"):
    """The agent's answer to a request of ours, whichever it was."""

    protocol_version: int | None = None
    agent_capabilities: Capabilities | None = None
    session_id: str | None = None
    models: Models | None = None
    config_options: list[ConfigOption] | None = None
    stop_reason: str | None = None
    usage: PromptUsage | None = None
    meta: ResultMeta | None = msgspec.field(name="_meta", default=None)

    @property
    def model(self) -> str | None:
        """Return the name of the model that answers, if that is told."""
        if self.models is not None and self.models.current_model_id:
            return self.models.current_model_id
        for option in self.config_options or ():
            if option.id == "model" and isinstance(option.current_value, str):
                return option.current_value
        return None


class Problem(Struct, frozen=True):
    """A JSON-RPC error."""

    code: int = 0
    message: str = ""
    data: object = None


class Line(Struct, frozen=True):
    """One line of the agent."""

    id: int | str | None = None
    method: str | None = None
    params: Params | None = None
    result: Result | UnsetType | None = UNSET
    error: Problem | None = None


def blocks_of(texts: Sequence[str]) -> list[Mapping[str, str]]:
    """Return the blocks of a prompt that say *texts*."""
    return [{"type": "text", "text": text} for text in plain(texts)]


def words_of(message: Message, system_prompt: str | None = None) -> list[str]:
    """Return the texts of *message*, each under its name if it has one, behind *system_prompt*."""
    words = [system_prompt] if system_prompt else []
    for part in message.parts:
        match part:
            case TextPart(text, name):
                words.append(f"{name}:\n\n{text}" if name else text)
            case DataPart(data, name):
                words.append(f"{name or 'data'}:\n\n{msgspec.json.encode(data).decode()}")
    return plain(words)


def plain(texts: Sequence[str]) -> list[str]:
    """Return *texts* so that no agent takes them for a command of its own.

    Agents look at the first character that is no space, of all texts together.
    """
    said = list(texts)
    for place, text in enumerate(texts):
        if (begin := text.replace("\ufeff", " ").lstrip()[:1]) in _COMMANDS:
            said[place] = f"Task:\n\n{text}"
        if begin:
            break
    return said


def model_name(model: str, provider: str) -> str:
    """Return *model* as `provider:id`; it may name its provider before a slash."""
    before, slash, id = model.partition("/")
    return f"{before}:{id}" if slash else f"{provider}:{model}"


def is_model(name: str | None, wanted: str) -> bool:
    """Whether an agent's *name* of a model is *wanted*, with whatever it says beside that."""
    return name is not None and (name == wanted or wanted in _BESIDE.split(name))


def call_line(method: str, params: object, id: int | None = None) -> bytes:
    """Return the line of a request, or of a notification without *id*."""
    head: dict[str, object] = {"jsonrpc": "2.0"} if id is None else {"jsonrpc": "2.0", "id": id}
    return msgspec.json.encode({**head, "method": method, "params": params}) + b"\n"


def opening_line() -> bytes:
    """Return the first line for an agent: no file and no terminal of ours is offered."""
    able = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    client = {"name": "capsule", "version": "1"}
    given = {"protocolVersion": 1, "clientCapabilities": able, "clientInfo": client}
    return call_line("initialize", given, INITIALIZE)


def choice_line(id: int | str, option: str | None) -> bytes:
    """Return the answer to a question for permission; without *option* it is withdrawn."""
    chosen = {"outcome": "cancelled"}
    if option is not None:
        chosen = {"outcome": "selected", "optionId": option}
    said = {"jsonrpc": "2.0", "id": id, "result": {"outcome": chosen}}
    return msgspec.json.encode(said) + b"\n"


def no_method_line(id: int | str, method: str) -> bytes:
    """Return the answer to a request for what we cannot do."""
    error = {"code": _NO_METHOD, "message": f"not offered: {method[:100]}"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error}) + b"\n"


def number_of(id: int | str) -> int | str:
    """Return the *id* of an answer as we gave it: some agents give a number back as words."""
    return int(id) if isinstance(id, str) and _OURS.fullmatch(id) else id
