"""A request to launch a harness, for tests of drivers."""

from __future__ import annotations

from capsule_runtime import Driver, LaunchRequest, Message, TextPart


def request_of(driver: type[Driver], **given: object) -> LaunchRequest:
    """Return a request that *driver* can plan, with *given* in place of what is usual."""
    values: dict[str, object] = {
        "run": "run_1",
        "context": "talk",
        "message": Message("m1", (TextPart("fix the test"),)),
        "command": driver().describe().command,
        "args": ("-v",),
        "config": driver.Config(),
        "home": "/private",
        "workdir": "/work",
        "tmp": "/tmp",
        "out": "/out",
        "agent_path": "/agent",
        "limits": {},
    }
    return LaunchRequest(**{**values, **given})  # type: ignore[arg-type]  # any of its fields
