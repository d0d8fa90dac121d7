"""Google's generateContent and streamGenerateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.mock_llm.dialect import Event, words_of
from support.mock_llm.plan import RESULT, Answer, Asked, Call, Json, Role, Say, Served, Step, Think

_STOPS = {"stop": "STOP", "tool": "STOP", "refusal": "SAFETY", "length": "MAX_TOKENS"}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class Google:
    """`POST /v1beta/models/M:…`: thoughts stand beside the output, cached input in the input."""

    def read(self, body: Json, path: str) -> Asked:
        messages: list[tuple[Role, str]] = []
        for content in body.get("contents") or ():
            parts: list[Any] = content.get("parts") or []
            messages += [RESULT for part in parts if "functionResponse" in part]
            if words := words_of(parts).strip():
                role: Role = "assistant" if content.get("role") == "model" else "user"
                messages.append((role, words))
        declared = [
            one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())
        ]
        tools: dict[str, Json] = {
            one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {}
            for one in declared
        }
        model = path.rpartition("/")[2].partition(":")[0]
        return Asked(model, messages, tools, ":stream" in path, body)

    def stream(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        for step in answer.steps:
            if (part := _part(step)) is not None:
                yield Event(None, _chunk(served, [part]), is_usage=True)
            yield step
        yield Event(None, _chunk(served, [{"text": ""}], _STOPS[answer.stop]), is_usage=True)

    def whole(self, asked: Asked, answer: Answer, served: Served) -> object:
        parts = [part for step in answer.steps if (part := _part(step)) is not None]
        return _chunk(served, parts, _STOPS[answer.stop])

    def usage(self, served: Served) -> dict[str, int]:
        return {
            "input_tokens": served.prompt - served.cache_read,
            "cache_read_tokens": served.cache_read,
            "output_tokens": served.output,
            "reasoning_tokens": served.reasoning,
        }

    def begun(self, served: Served) -> dict[str, int] | None:
        return None

    def failure(self, status: int) -> object:
        word = _ERRORS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": f"mock error {status}", "status": word}}


def _part(step: Step) -> Json | None:
    match step:
        case Say(text):
            return {"text": text}
        case Think(text):
            return {"text": f"**Thinking** {text}", "thought": True}
        case Call(name, arguments):
            called = {"name": name, "args": arguments}
            return {"functionCall": called, "thoughtSignature": "c2ln"}
        case _:
            return None


def _chunk(served: Served, parts: list[Json], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    usage = {
        "promptTokenCount": served.prompt,
        "candidatesTokenCount": served.output - served.reasoning,
        "thoughtsTokenCount": served.reasoning,
        "cachedContentTokenCount": served.cache_read,
        "totalTokenCount": served.prompt + served.output,
    }
    made = {"modelVersion": "mock-gemini", "responseId": f"g{served.number}"}
    return {"candidates": [candidate], "usageMetadata": usage, **made}
