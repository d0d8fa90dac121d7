"""The rig itself, on an agent of our own: what is served is what is counted, and nothing else is near."""

from __future__ import annotations

from pathlib import Path

from support.live.ended import total
from support.live.rig import TIER, Rig

KIT = "native"
REFUSALS = {"sealed": "(OSError 101)", "scoped": "(PermissionError 13)"}
"""There is no way out of a sealed run's network; of a scoped one's the broker refuses all others."""
AGENT = """
import json, os, socket, urllib.request
import capsule_agent

BASH = {"name": "Bash", "input_schema": {"properties": {"command": {"type": "string"}}}}

def work(task, agent):
    messages = [{"role": "user", "content": task.text}]
    while True:
        answer = ask({"model": task.metadata["model"], "messages": messages, "tools": [BASH]})
        used = answer["usage"]
        agent.usage(
            "anthropic:" + answer["model"],
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            cache_read_tokens=used["cache_read_input_tokens"],
            cache_write_tokens=used["cache_creation_input_tokens"],
            call_id=answer["id"],
        )
        if answer["stop_reason"] != "tool_use":
            return answer["content"][0]["text"] + reached()
        messages.append({"role": "user", "content": [{"type": "tool_result"}]})

def ask(body):
    url, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"]
    request = urllib.request.Request(
        url + "/v1/messages", json.dumps(body).encode(), {"x-api-key": key}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)

def reached():
    with socket.socket() as s:
        s.settimeout(5)
        try:
            s.connect(("192.0.2.1", 80))
        except OSError as exc:
            return f" ({type(exc).__name__} {exc.errno})"
    return " (reached)"

capsule_agent.serve(work)
"""


def agent(rig: Rig) -> str:
    folder = rig.capsule("jsonl", command=("python3", "./agent.py"))
    Path(folder, "agent.py").write_text(AGENT)
    return folder


def test_what_the_mock_served_is_what_the_run_counted(rig: Rig) -> None:
    ended = rig.run("MOCK:tool", capsule=agent(rig))

    assert ended.outcome == ("completed", "completed", 0)
    assert ended.usage == rig.served()
    assert total(ended.usage) == {
        "cache_read_tokens": 201 + 202,
        "cache_write_tokens": 101 + 102,
        "input_tokens": 1001 + 1002,
        "output_tokens": 51 + 52,
    }


def test_nothing_but_the_mock_can_be_reached(rig: Rig) -> None:
    ended = rig.run("MOCK:plain", capsule=agent(rig))

    assert ended.outcome == ("completed", "completed", 0)
    assert REFUSALS[TIER] in ended.result["response"]
