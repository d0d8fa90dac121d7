"""Probes of what puts up the walls: to be run by it, to change it, to learn what it knows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from support.corpus.probe import Elsewhere, probe
from support.corpus.rig import Rig

ELSEWHERE = (
    Elsewhere(30, "outlive a supervisor killed in the first 40 ms", "tests/crash/test_tiers.py"),
    Elsewhere(31, "die with the thread that started it", "tests/crash/test_tiers.py"),
    Elsewhere(38, "take over a port that was handed out", "tests/escape/test_egress.py"),
    Elsewhere(40, "confuse the gateway", "waits for the gateway"),
    Elsewhere(
        41, "confuse the proxy's reader of CONNECT", "tests/integration/test_egress_proxy.py"
    ),
    Elsewhere(
        42,
        "have an allowed name lead to a forbidden address",
        "tests/integration/test_egress_proxy.py",
    ),
    Elsewhere(
        43, "reach another server behind an allowed name", "tests/integration/test_egress_proxy.py"
    ),
    Elsewhere(44, "rewrite an address while the broker looks at it", "tests/escape/test_broker.py"),
    Elsewhere(45, "flood the broker", "tests/escape/test_broker.py"),
    Elsewhere(53, "run behind less than was said", "tests/escape/test_lacking.py"),
    Elsewhere(54, "run where the machine is poor", "tests/escape/test_poor.py"),
)


@contextmanager
def _environment(**names: str) -> Generator[None]:
    before = dict(os.environ)
    os.environ.update(names)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@probe(35, "have its own bwrap or python3 run in place of the system's")
async def plant_programs(rig: Rig) -> list[str]:
    landed = rig.outside / "landed"
    for name in ("bwrap", "cat", "python3", "python3.11", "unshare"):
        planted = rig.workdir / name
        planted.write_text(f"#!/bin/sh\necho {name} >> {landed}\n")
        planted.chmod(0o755)
    with _environment(PATH=f"{rig.workdir}:{os.environ['PATH']}"):
        if not rig.is_walled:
            # What a program does that looks for its helpers on PATH.
            subprocess.run(["bwrap", "--version"], check=True)
        await rig.tries("print('ran')", PATH=f"{rig.workdir}:/usr/bin:/bin")
    return landed.read_text().split() if landed.exists() else []


@probe(36, "change what puts up the walls, or have its own code run before them")
async def tamper_with_the_stub(rig: Rig) -> list[str]:
    landed = rig.outside / "landed"
    (rig.workdir / "sitecustomize.py").write_text(f"open({str(landed)!r}, 'w').close()\n")
    (rig.workdir / "marshal.py").write_text(f"open({str(landed)!r}, 'w').close()\n")
    code = """
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        path = f"/proc/{name}/mem"
        route(path, lambda: done(os.close(os.open(path, os.O_RDWR))))
"""
    if not rig.is_walled:
        python = ["python3", "-c", "import marshal"]
        subprocess.run(python, check=True, env={**os.environ, "PYTHONPATH": str(rig.workdir)})
    changed = await rig.successes(code, PYTHONPATH=str(rig.workdir), PYTHONHOME="")
    return [*changed, *(["ran before"] if landed.exists() else [])]


@probe(50, "learn a key that only the supervisor has")
async def learn_a_key(rig: Rig) -> list[str]:
    code = """
def scan(file):
    found = b""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found += read(f"/proc/{name}/{file}")
            except OSError:
                pass
    return found
route("own environment", lambda: dict(os.environ))
route("environments", lambda: scan("environ"))
route("arguments", lambda: scan("cmdline"))
route("files", lambda: b"".join(read(path + "/" + name) for path in (".", os.environ["HOME"], "/etc") for name in os.listdir(path) if os.path.isfile(path + "/" + name) and os.access(path + "/" + name, os.R_OK)))
"""
    with _environment(PROBE_API_KEY=rig.canary):
        return await rig.leaks(code)
