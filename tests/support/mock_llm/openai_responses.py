"""OpenAI's Responses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from support.mock_llm.dialect import Event, words_of
from support.mock_llm.openai_chat import openai_failure, openai_usage
from support.mock_llm.plan import RESULT, Answer, Asked, Call, Json, Role, Say, Served, Step, Think

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_CUTS = {"refusal": "content_filter", "length": "max_output_tokens"}


class OpenAIResponses:
    """`POST /v1/responses`: items, each with its events; cached input is part of the input."""

    def read(self, body: Json, path: str) -> Asked:
        given: Any = body.get("input") or []
        items: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
        messages: list[tuple[Role, str]] = []
        for item in items:
            if str(item.get("type", "")).endswith("_output"):
                messages.append(RESULT)
            else:
                role = _ROLES.get(str(item.get("role")), "other")
                messages.append((role, words_of(item.get("content"))))
        offered = [tool for tool in body.get("tools") or () if tool.get("name")]
        tools: dict[str, Json] = {tool["name"]: tool.get("parameters") or {} for tool in offered}
        return Asked(str(body.get("model")), messages, tools, bool(body.get("stream")), body)

    def stream(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        numbers = itertools.count()
        for said in self._events(asked, answer, served):
            if isinstance(said, Event):
                fields: Any = said.data
                data = {"type": said.name, **fields, "sequence_number": next(numbers)}
                yield Event(said.name, data, said.is_usage)
            else:
                yield said

    def whole(self, asked: Asked, answer: Answer, served: Served) -> object:
        last: Any = None
        for said in self._events(asked, answer, served):
            last = said.data if isinstance(said, Event) else last
        return last["response"]

    def usage(self, served: Served) -> dict[str, int]:
        return openai_usage(served)

    def begun(self, served: Served) -> dict[str, int] | None:
        return None

    def failure(self, status: int) -> object:
        return openai_failure(status)

    def _events(self, asked: Asked, answer: Answer, served: Served) -> Iterator[Event | Step]:
        made = {"object": "response", "created_at": 1_700_000_000, "model": asked.model}
        head: dict[str, Any] = {"id": f"resp_{served.number:04d}", **made, "output": []}
        yield Event("response.created", {"response": {**head, "status": "in_progress"}})
        items: list[Any] = []
        for group in _groups(answer.steps):
            item = _item(group[0], group, f"{head['id']}_{len(items)}")
            if item is None:
                yield from group
                continue
            place = {"item_id": item["id"], "output_index": len(items)}
            yield from _item_events(item, group, place)
            items.append(item)
        cut = _CUTS.get(answer.stop)
        end = {
            **head,
            "output": items,
            "usage": _usage(served),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": cut} if cut else None,
        }
        name = "response.incomplete" if cut else "response.completed"
        yield Event(name, {"response": end}, is_usage=True)


def _groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield *steps*, words in a row as one group: they are one item."""
    numbered = itertools.groupby(
        enumerate(steps), lambda it: -1 if isinstance(it[1], Say) else it[0]
    )
    return ([step for _, step in group] for _, group in numbered)


def _item(step: Step, group: Sequence[Step], name: str) -> dict[str, Any] | None:
    match step:
        case Say():
            words = "".join(one.text for one in group if isinstance(one, Say))
            part: dict[str, Any] = {"type": "output_text", "text": words, "annotations": []}
            said: dict[str, Any] = {"role": "assistant", "status": "completed", "content": [part]}
            return {"id": f"msg_{name}", "type": "message", **said}
        case Think(text):
            summary = [{"type": "summary_text", "text": text}]
            thought = {"summary": summary, "encrypted_content": "ZW5j"}
            return {"id": f"rs_{name}", "type": "reasoning", **thought}
        case Call(tool, arguments):
            called = {"call_id": f"call_{name}", "name": tool, "arguments": json.dumps(arguments)}
            return {"id": f"fc_{name}", "type": "function_call", **called, "status": "completed"}
        case _:
            return None


def _item_events(item: Json, group: Sequence[Step], place: Json) -> Iterator[Event | Step]:
    index = {"output_index": place["output_index"]}
    kinds: dict[str, dict[str, Any]] = {
        "message": {"content": [], "status": "in_progress"},
        "reasoning": {"summary": []},
        "function_call": {"arguments": "", "status": "in_progress"},
    }
    began = {**item, **kinds[item["type"]]}
    yield Event("response.output_item.added", {**index, "item": began})
    match item["type"]:
        case "message":
            yield from _words(item, group, {**place, "content_index": 0})
        case "reasoning":
            yield from _thought(item["summary"][0], {**place, "summary_index": 0})
            yield from group
        case _:
            written = item["arguments"]
            yield Event("response.function_call_arguments.delta", {**place, "delta": written})
            yield Event("response.function_call_arguments.done", {**place, "arguments": written})
            yield from group
    yield Event("response.output_item.done", {**index, "item": item})


def _words(item: Json, group: Sequence[Step], place: Json) -> Iterator[Event | Step]:
    part = item["content"][0]
    yield Event("response.content_part.added", {**place, "part": {**part, "text": ""}})
    for step in group:
        if isinstance(step, Say):
            yield Event("response.output_text.delta", {**place, "delta": step.text})
        yield step
    yield Event("response.output_text.done", {**place, "text": part["text"]})
    yield Event("response.content_part.done", {**place, "part": part})


def _thought(part: Json, place: Json) -> Iterator[Event]:
    added = {**place, "part": {**part, "text": ""}}
    yield Event("response.reasoning_summary_part.added", added)
    yield Event("response.reasoning_summary_text.delta", {**place, "delta": part["text"]})
    yield Event("response.reasoning_summary_text.done", {**place, "text": part["text"]})
    yield Event("response.reasoning_summary_part.done", {**place, "part": part})


def _usage(served: Served) -> dict[str, Any]:
    return {
        "input_tokens": served.prompt,
        "input_tokens_details": {"cached_tokens": served.cache_read},
        "output_tokens": served.output,
        "output_tokens_details": {"reasoning_tokens": served.reasoning},
        "total_tokens": served.prompt + served.output,
    }
