"""Where the keys of providers are: looked up once for each run, and shown to nobody."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import assert_never

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from capsule_runtime.core.providers import CommandKey, EnvKey, FileKey, NoKey, Provider
from capsule_runtime.core.relaying import Credential
from capsule_runtime.errors import UsageError

COMMAND_SECONDS = 10.0
_MOST_BYTES = 16 * 1024


async def resolve_key(
    provider: Provider, environ: Mapping[str, str] | None = None
) -> Credential | None:
    """Return the key of *provider*; None where it takes none.

    Raises:
        UsageError: E-PRO-003, there is none; E-PRO-004, it cannot be had. Neither shows it.
    """
    match provider.key:
        case EnvKey(names):
            text = _in_environment(provider, names, os.environ if environ is None else environ)
        case CommandKey(argv):
            text = await _printed(provider, argv)
        case FileKey(path):
            text = await anyio.to_thread.run_sync(_in_file, provider, path)
        case NoKey():
            return None
        case _:
            assert_never(provider.key)
    try:
        return provider.credential(_one_line(provider, text))
    except ValueError as exc:
        raise _failed(provider, str(exc)) from None


def _in_environment(provider: Provider, names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    for name in names:
        if text := environ.get(name):
            return text
    shown = " or ".join(names)
    raise UsageError(
        "E-PRO-003",
        f"there is no key for the provider {provider.name!r}: {shown} is not set",
        f"Set {names[0]}, or say under [providers.{provider.name}] where it is.",
    )


async def _printed(provider: Provider, argv: tuple[str, ...]) -> str:
    """Return what the program prints; its complaints are its user's to see, and not ours."""
    with anyio.move_on_after(COMMAND_SECONDS):
        try:
            process = await _open(argv)
        except OSError as exc:
            raise _failed(provider, f"{argv[0]}: {exc.strerror}") from None
        async with process:
            assert process.stdout is not None
            try:
                said = await _read(process.stdout)
                if said is not None and await process.wait() == 0:
                    return said.decode("utf-8", "replace")
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):  # it ended, and we have yet to hear of it
                        os.killpg(process.pid, signal.SIGKILL)  # a session of its own
        what = "printed too much" if said is None else f"ended with {process.returncode}"
        raise _failed(provider, f"{argv[0]} {what}")
    raise _failed(provider, f"{argv[0]} took longer than {COMMAND_SECONDS:g} s")


async def _open(argv: tuple[str, ...]) -> Process:
    process: Process | None = None
    # Cut short it would leave a process that nobody knows of.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            (_below_home(argv[0]), *argv[1:]),
            stdin=subprocess.DEVNULL,
            stderr=None,
            start_new_session=True,
        )
    assert process is not None
    return process


def _below_home(program: str) -> str:
    return os.path.expanduser(program)


async def _read(stream: ByteReceiveStream) -> bytes | None:
    """Return all of *stream*; None if it is too much."""
    said = b""
    async for part in stream:
        said += part
        if len(said) > _MOST_BYTES:
            return None
    return said


def _in_file(provider: Provider, path: str) -> str:
    whole = os.path.expanduser(path)
    try:
        descriptor = os.open(whole, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if why := _trouble_with(os.fstat(descriptor)):
                raise _failed(provider, f"{whole} {why}")
            data = os.read(descriptor, _MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise _failed(provider, f"{whole}: {exc.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise _failed(provider, f"{whole} holds more than a key")
    return data.decode("utf-8", "replace")


def _trouble_with(found: os.stat_result) -> str | None:
    """Say why a file that is *found* so cannot hold a key."""
    if not stat.S_ISREG(found.st_mode):
        return "is no file"
    if found.st_uid != os.geteuid():
        return "belongs to somebody else"
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        return f"may be used by others: its mode is {mode:04o}, not 0600"
    return None


def _one_line(provider: Provider, text: str) -> str:
    lines = text.split("\n")
    if len([line for line in lines if line.strip()]) != 1:
        raise _failed(provider, "where it should be there is not one line")
    return text.strip()


def _failed(provider: Provider, what: str) -> UsageError:
    return UsageError(
        "E-PRO-004",
        f"the key of the provider {provider.name!r} cannot be had: {what}",
        f"`capsule explain E-PRO-004` says what [providers.{provider.name}] may name.",
    )
