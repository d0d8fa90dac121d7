"""A harness that calls a model, as a real process, and a mock model server for it.

asker.py COUNT AT_ONCE BODY   post BODY to Messages COUNT times, so many at once; tell each status and
                              what was answered, one JSON line of text each
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEY_VARIABLE = "ASKER_KEY"
MODEL = "claude-3-haiku-20240307"
"""Dollars per million tokens: 0.25 in, 1.25 out."""
_TESTS = Path(__file__).parents[1]


def body(words: str = "MOCK:plain", *, cap: int | None = 1000, **more: object) -> str:
    """Return the body of a call, whose output has a *cap*."""
    caps = {} if cap is None else {"max_tokens": cap}
    asked = {"model": MODEL, **caps, "messages": [{"role": "user", "content": words}]}
    return json.dumps(asked | more)


@contextmanager
def mock(folder: Path) -> Generator[tuple[str, Path]]:
    """Yield the URL of a mock model server, and the file of what it was asked."""
    log = folder / "asked.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "support.mock_llm.server", str(log)],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split()[1])
            yield f"http://127.0.0.1:{port}", log
        finally:
            server.kill()


def configure(folder: Path, url: str, more: str = "") -> Path:
    """Write a config.toml with anthropic at *url*; *more* are lines of its table."""
    path = folder / "config.toml"
    path.write_text(
        f'[providers.anthropic]\nbase_url = "{url}"\nkey_env = "{KEY_VARIABLE}"\n{more}\n'
    )
    path.chmod(0o600)
    return path


def asker(folder: Path, asked: str, *, count: int = 1, at_once: int = 1) -> str:
    """Write a capsule that calls a model *count* times with the body *asked*; return its folder."""
    folder.mkdir()
    shutil.copy(__file__, folder / "asker.py")
    command = ["python3", "-B", "./asker.py", str(count), str(at_once), asked]
    (folder / "capsule.toml").write_text(
        f'name = "asker"\n[harness]\ndriver = "jsonl"\ncommand = {json.dumps(command)}\n'
        '[capabilities]\nproviders = ["anthropic"]\n'
    )
    return str(folder)


def called(log: Path) -> list[dict[str, Any]]:
    """Return the calls that the mock was asked."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in map(json.loads, lines) if line["at"] == "asked"]


def _ask(asked: bytes) -> tuple[int, str]:
    url, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"]
    request = urllib.request.Request(
        url + os.environ.get("ASKED_PATH", "/v1/messages"),
        asked,
        {"x-api-key": key, "content-type": "application/json", "anthropic-version": "2023-06-01"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def main(count: int, at_once: int, asked: bytes) -> None:
    task = b""
    while not task.endswith(b"\n"):
        task += os.read(0, 1)
    said = threading.Lock()
    left = iter(range(count))

    def work() -> None:
        while True:
            with said:
                if next(left, None) is None:
                    return
            status, text = _ask(asked)
            with said:
                told = json.dumps([status, text[:2000]]) + "\n"
                line = json.dumps({"type": "text-delta", "text": told})
                os.write(1, line.encode() + b"\n")

    workers = [threading.Thread(target=work) for _ in range(at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os.write(1, b'{"type":"turn-end","result":"asked"}\n')


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode())
