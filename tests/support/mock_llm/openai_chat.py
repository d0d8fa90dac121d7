"""OpenAI's Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.mock_llm.dialect import Event, words_of
from support.mock_llm.plan import Answer, Asked, Call, Json, Role, Say, Served, Step, Think

_STOPS = {
    "stop": "stop",
    "tool": "tool_calls",
    "refusal": "content_filter",
    "length": "length",
}
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
}


class OpenAIChat:
    """`POST /v1/chat/completions`: cached input is part of `prompt_tokens`."""

    def read(self, body: Json, path: str) -> Asked:
        messages: list[tuple[Role, str]] = [
            (_ROLES.get(message["role"], "other"), words_of(message.get("content")))
            for message in body.get("messages") or ()
        ]
        functions = [tool["function"] for tool in body.get("tools") or () if "function" in tool]
        tools: dict[str, Json] = {one["name"]: one.get("parameters") or {} for one in functions}
        return Asked(str(body.get("model")), messages, tools, bool(body.get("stream")), body)

    def stream(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        head = self._head(asked, served, "chat.completion.chunk")
        yield _chunk(head, {"role": "assistant", "content": ""})
        calls = 0
        for step in answer.steps:
            match step:
                case Say(text):
                    yield _chunk(head, {"content": text})
                case Think(text):
                    yield _chunk(head, {"reasoning_content": text})
                case Call(name, arguments):
                    began = _call(served, calls, name, "")
                    yield _chunk(head, {"tool_calls": [{"index": calls, **began}]})
                    more = {"index": calls, "function": {"arguments": json.dumps(arguments)}}
                    yield _chunk(head, {"tool_calls": [more]})
                    calls += 1
                case _:
                    pass
            yield step
        yield _chunk(head, {}, _STOPS[answer.stop])
        yield Event(None, {**head, "choices": [], "usage": chat_usage(served)}, is_usage=True)
        yield Event(None, "[DONE]")

    def whole(self, asked: Asked, answer: Answer, served: Served) -> object:
        words = "".join(step.text for step in answer.steps if isinstance(step, Say))
        message: dict[str, Any] = {"role": "assistant", "content": words or None}
        calls = [step for step in answer.steps if isinstance(step, Call)]
        if calls:
            message["tool_calls"] = [
                _call(served, index, call.name, json.dumps(call.arguments))
                for index, call in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": _STOPS[answer.stop]}
        head = self._head(asked, served, "chat.completion")
        return {**head, "choices": [choice], "usage": chat_usage(served)}

    def usage(self, served: Served) -> dict[str, int]:
        return openai_usage(served)

    def begun(self, served: Served) -> dict[str, int] | None:
        return None

    def failure(self, status: int) -> object:
        return openai_failure(status)

    def _head(self, asked: Asked, served: Served, kind: str) -> dict[str, Any]:
        made = {"object": kind, "created": 1_700_000_000, "model": asked.model}
        return {"id": f"chatcmpl-{served.number:04d}", **made}


def openai_usage(served: Served) -> dict[str, int]:
    """Return what *served* means in our terms."""
    return {
        "input_tokens": served.prompt - served.cache_read,
        "cache_read_tokens": served.cache_read,
        "output_tokens": served.output,
        "reasoning_tokens": served.reasoning,
    }


def openai_failure(status: int) -> object:
    """Return the document of an HTTP error."""
    kind = _ERRORS.get(status, "server_error")
    error = {"type": kind, "message": f"mock error {status}", "param": None, "code": kind}
    return {"error": error}


def chat_usage(served: Served) -> dict[str, Any]:
    """Return *served* as Chat Completions says it."""
    return {
        "prompt_tokens": served.prompt,
        "completion_tokens": served.output,
        "total_tokens": served.prompt + served.output,
        "prompt_tokens_details": {"cached_tokens": served.cache_read},
        "completion_tokens_details": {"reasoning_tokens": served.reasoning},
    }


def _chunk(head: Json, delta: Json, finish: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Event(None, {**head, "choices": [choice]})


def _call(served: Served, index: int, name: str, arguments: str) -> dict[str, Any]:
    call = f"call_{served.number:04d}_{index}"
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
