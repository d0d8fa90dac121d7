"""Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.mock_llm.dialect import Event, words_of
from support.mock_llm.plan import Answer, Asked, Call, Json, Role, Say, Served, Step, Think

_STOPS = {
    "stop": "end_turn",
    "tool": "tool_use",
    "refusal": "refusal",
    "length": "max_tokens",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    """`POST /v1/messages`: cached input stands beside `input_tokens`."""

    def read(self, body: Json, path: str) -> Asked:
        messages: list[tuple[Role, str]] = []
        for message in body.get("messages") or ():
            content: Any = message.get("content")
            parts: list[Json] = [] if isinstance(content, str) else content
            # Words of the user may come in what a tool gave, too.
            results = [part for part in parts if part.get("type") == "tool_result"]
            messages.extend(("tool", words_of(part.get("content"))) for part in results)
            if words := words_of(content).strip():
                messages.append((message["role"], words))
        tools: dict[str, Json] = {
            t["name"]: t.get("input_schema") or {} for t in body.get("tools") or ()
        }
        return Asked(str(body.get("model")), messages, tools, bool(body.get("stream")), body)

    def stream(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        message = self._message(asked, served)
        yield _event("message_start", message=message)
        index, open_kind = -1, ""
        for step in answer.steps:
            block = _block(step, served, index + 1)
            if block is not None and (block["type"] != open_kind or isinstance(step, Call)):
                if index >= 0:
                    yield _event("content_block_stop", index=index)
                index, open_kind = index + 1, block["type"]
                yield _event("content_block_start", index=index, content_block=block)
            for delta in _deltas(step):
                yield _event("content_block_delta", index=index, delta=delta)
            yield step
        yield _event("content_block_stop", index=index)
        ending = {"stop_reason": _STOPS[answer.stop], "stop_sequence": None}
        usage = {**message["usage"], "output_tokens": served.output}
        data = {"type": "message_delta", "delta": ending, "usage": usage}
        yield Event("message_delta", data, is_usage=True)
        yield _event("message_stop")

    def whole(self, asked: Asked, answer: Answer, served: Served) -> object:
        message = self._message(asked, served)
        words = "".join(step.text for step in answer.steps if isinstance(step, Say))
        content: list[Any] = [{"type": "text", "text": words}] if words else []
        for index, step in enumerate(answer.steps):
            if isinstance(step, Call):
                block = _block(step, served, index)
                content.append({**(block or {}), "input": step.arguments})
        return {
            **message,
            "content": content,
            "stop_reason": _STOPS[answer.stop],
            "usage": {**message["usage"], "output_tokens": served.output},
        }

    def usage(self, served: Served) -> dict[str, int]:
        return {**self.begun(served), "output_tokens": served.output}

    def begun(self, served: Served) -> dict[str, int]:
        return {
            "input_tokens": served.prompt,
            "cache_read_tokens": served.cache_read,
            "cache_write_tokens": served.cache_write,
        }

    def failure(self, status: int) -> object:
        error = {"type": _ERRORS.get(status, "api_error"), "message": f"mock error {status}"}
        return {"type": "error", "error": error, "request_id": "req_mock"}

    def _message(self, asked: Asked, served: Served) -> dict[str, Any]:
        return {
            "id": f"msg_{served.number:04d}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": asked.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": served.prompt,
                "cache_creation_input_tokens": served.cache_write,
                "cache_read_input_tokens": served.cache_read,
                "output_tokens": 1,
            },
        }


def _event(name: str, **fields: object) -> Event:
    return Event(name, {"type": name, **fields})


def _block(step: Step, served: Served, index: int) -> dict[str, Any] | None:
    """Return the content block that *step* belongs to, as it begins."""
    match step:
        case Say():
            return {"type": "text", "text": ""}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Call(name):
            call = f"toolu_{served.number:04d}_{index}"
            return {"type": "tool_use", "id": call, "name": name, "input": {}}
        case _:
            return None


def _deltas(step: Step) -> Iterator[Json]:
    match step:
        case Say(text):
            yield {"type": "text_delta", "text": text}
        case Think(text):
            yield {"type": "thinking_delta", "thinking": text}
            yield {"type": "signature_delta", "signature": "c2lnbmF0dXJl"}
        case Call(_, arguments):
            written = json.dumps(arguments)
            yield {"type": "input_json_delta", "partial_json": written[:9]}
            yield {"type": "input_json_delta", "partial_json": written[9:]}
        case _:
            return
