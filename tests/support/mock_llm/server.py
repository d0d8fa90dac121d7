"""The mock as a program: `python -m support.mock_llm.server LOG`.

It listens on a port of the loopback, prints `ready PORT`, and writes a line to LOG for each request
when it comes ("asked") and when it is over ("answered"), with the usage that was served.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.mock_llm.anthropic import Anthropic
from support.mock_llm.dialect import Dialect, Event
from support.mock_llm.google import Google
from support.mock_llm.openai_chat import OpenAIChat
from support.mock_llm.openai_responses import OpenAIResponses
from support.mock_llm.plan import Answer, Asked, Cut, Fail, Say, Served, Step, Wait, answer_to

ANY_KEY = "?"
_MODELS = {"id": "mock-model", "object": "model", "type": "model", "display_name": "mock"}
_FLAKES = 2


def dialect_of(path: str) -> Dialect | None:
    """Return who speaks at *path*."""
    if path.endswith("/messages"):
        return Anthropic()
    if path.endswith("/responses"):
        return OpenAIResponses()
    if path.endswith("/chat/completions"):
        return OpenAIChat()
    return Google() if ":generateContent" in path or ":streamGenerateContent" in path else None


class Books:
    """Who asked how often, and the log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()  # over the counts and the file: each request has a thread
        self._served = Counter[str]()
        self._flaked = Counter[str]()

    def serve(self, key: str) -> Served:
        """Count one more answer to *key*."""
        with self._lock:
            self._served[key] += 1
            return Served(self._served[key])

    def is_flaky(self, key: str) -> bool:
        """Tell whether *key* is to be told to come again."""
        with self._lock:
            self._flaked[key] += 1
            return self._flaked[key] <= _FLAKES

    def write(self, line: dict[str, object]) -> None:
        """Write a *line* of the log."""
        with self._lock, self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    books: Books

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def do_GET(self) -> None:
        found = urlsplit(self.path).path.endswith("/models")
        self.books.write({"at": "looked up", "path": self.path, "key": self._key()})
        body = {"object": "list", "data": [_MODELS], "has_more": False}
        self._reply(200 if found else 404, body if found else {"error": {"message": "not found"}})

    def do_HEAD(self) -> None:
        self._reply(200, {})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        if path.endswith(("/count_tokens", ":countTokens")):
            self._reply(200, {"input_tokens": 1234, "totalTokens": 1234})
            return
        dialect = dialect_of(path)
        if dialect is None:
            self.books.write({"at": "looked up", "path": path, "key": self._key()})
            self._reply(404, {"error": {"message": "not found", "type": "not_found_error"}})
            return
        asked = dialect.read(json.loads(raw), path)
        answer = answer_to(asked)
        if answer.scenario == "flaky" and not answer.is_side and self.books.is_flaky(self._key()):
            answer = Answer("flaky", (Fail(529 if isinstance(dialect, Anthropic) else 503),))
        self._answer(dialect, asked, answer)

    def _answer(self, dialect: Dialect, asked: Asked, answer: Answer) -> None:
        served = self.books.serve(self._key())
        line: dict[str, object] = {
            "key": self._key(),
            "call": served.number,
            "dialect": type(dialect).__name__,
            "scenario": answer.scenario,
            "side": answer.is_side,
            "model": asked.model,
        }
        tools, path = sorted(asked.tools), urlsplit(self.path).path
        self.books.write({"at": "asked", **line, "path": path, "tools": tools})
        first = answer.steps[0]
        if isinstance(first, Fail):
            self.books.write({"at": "answered", **line, "status": first.status, "usage": None})
            self._reply(first.status, dialect.failure(first.status))
            return
        is_whole, end = False, "done"
        try:
            if asked.streams:
                for event in self._paced(dialect.stream(asked, answer, served)):
                    self._chunk(event)
                    is_whole = is_whole or event.is_usage
                self.wfile.write(b"0\r\n\r\n")
            else:
                for step in answer.steps:
                    self._pause(step)
                self._reply(200, dialect.whole(asked, answer, served))
                is_whole = True
        except OSError as exc:
            end, self.close_connection = type(exc).__name__, True
        usage = dialect.usage(served) if is_whole else None
        begun = None if is_whole else dialect.begun(served)
        done = {"status": 200, "end": end, "usage": usage, "begun": begun}
        self.books.write({"at": "answered", **line, **done})

    def _paced(self, said: Iterator[Event | Step]) -> Iterator[Event]:
        """Yield the events of *said*, and pause where its steps say so."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for one in said:
            if isinstance(one, Event):
                yield one
            else:
                self._pause(one)

    def _pause(self, step: Step) -> None:
        """Wait as *step* says, or until the client hangs up.

        Raises:
            ConnectionError: it did, or the step is that we do.
        """
        if isinstance(step, Cut):
            raise ConnectionAbortedError
        pause = step.seconds if isinstance(step, Wait) else 0.0
        pause = step.pause if isinstance(step, Say) else pause
        if pause <= 0:
            return
        self.connection.settimeout(pause)
        try:
            if self.connection.recv(1) == b"":
                raise ConnectionResetError
        except TimeoutError:
            return  # the pause is over, and the client still there
        finally:
            self.connection.settimeout(None)

    def _chunk(self, event: Event) -> None:
        name = f"event: {event.name}\n" if event.name else ""
        data = event.data if isinstance(event.data, str) else json.dumps(event.data)
        block = f"{name}data: {data}\n\n".encode()
        self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")

    def _reply(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if status in (429, 503, 529):
            self.send_header("retry-after", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _key(self) -> str:
        """Return the key that the client shows: it names the test."""
        bearer = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        query = parse_qs(urlsplit(self.path).query).get("key", [ANY_KEY])[0]
        shown = self.headers.get("x-api-key") or self.headers.get("x-goog-api-key")
        return shown or bearer or query


class Server(ThreadingHTTPServer):
    """One thread for each connection, and none is waited for."""

    daemon_threads = True


def main(log: Path) -> None:
    """Serve for ever."""
    Handler.books = Books(log)
    with Server(("127.0.0.1", 0), Handler) as server:
        sys.stdout.write(f"ready {server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
