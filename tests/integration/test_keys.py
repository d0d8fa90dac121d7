"""Keys of providers come from variables, programs and files, on both event loops; none is shown."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from capsule_runtime import UsageError
from capsule_runtime.core.providers import (
    BUILT_IN,
    CommandKey,
    EnvKey,
    FileKey,
    KeySource,
    NoKey,
    Provider,
)
from capsule_runtime.host import keys
from capsule_runtime.host.keys import resolve_key

CANARY = "sk-canary-77c0ffee"
HIDDEN = "77c0ffee"
PATIENCE_SECONDS = 10


def keyed(source: KeySource) -> Provider:
    return replace(BUILT_IN["openai"], key=source)


async def key_of(source: KeySource, **environ: str) -> bytes:
    credential = await resolve_key(keyed(source), environ)
    assert credential is not None
    return credential.secret


async def refused(
    source: KeySource, caplog: pytest.LogCaptureFixture, code: str = "E-PRO-004", **environ: str
) -> str:
    """Return what is said; nothing that is, or that a traceback would show, holds the canary."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UsageError) as caught:
        await resolve_key(keyed(source), environ)
    error = caught.value
    causes = list[BaseException]()
    one: BaseException | None = error
    while one is not None:
        causes.append(one)
        one = one.__context__
    told = f"{error!r} {error.message} {error.hint} {causes!r}"
    assert HIDDEN not in told + caplog.text + "".join(traceback.format_exception(error))
    assert error.code == code
    return error.message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{CANARY}\n")
    path.chmod(0o600)
    return path


def program(tmp_path: Path, script: str) -> CommandKey:
    path = tmp_path / "printing"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return CommandKey((str(path),))


# Where there is one.


async def test_a_key_in_the_first_variable_that_is_set() -> None:
    source = EnvKey(("FIRST", "SECOND"))

    assert await key_of(source, FIRST=CANARY, SECOND="other") == CANARY.encode()
    assert await key_of(source, FIRST="", SECOND=CANARY) == CANARY.encode()


async def test_variables_are_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", CANARY)
    credential = await resolve_key(keyed(EnvKey(("OURS",))))

    assert credential is not None
    assert credential.reveal() == f"Bearer {CANARY}".encode()


async def test_a_key_that_a_program_prints(tmp_path: Path) -> None:
    assert await key_of(program(tmp_path, f"printf {CANARY}")) == CANARY.encode()
    assert await key_of(program(tmp_path, f"echo; echo {CANARY}; echo")) == CANARY.encode()


async def test_no_shell_reads_the_words_of_a_program() -> None:
    assert await key_of(CommandKey(("printf", "%s", "$HOME;`id`"))) == b"$HOME;`id`"


async def test_a_program_may_be_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program(tmp_path, f"echo {CANARY}")

    assert await key_of(CommandKey(("~/printing",))) == CANARY.encode()


async def test_a_program_reads_nothing_of_its_callers(tmp_path: Path) -> None:
    assert await key_of(program(tmp_path, f"cat; echo {CANARY}")) == CANARY.encode()


async def test_a_key_in_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(file.parent))

    assert await key_of(FileKey(str(file))) == CANARY.encode()
    assert await key_of(FileKey("~/key")) == CANARY.encode()
    os.chmod(file, 0o400)
    assert await key_of(FileKey(str(file))) == CANARY.encode()


async def test_none_where_none_is_taken() -> None:
    assert await resolve_key(keyed(NoKey()), {}) is None


# Where there is none, or one that cannot be had.


async def test_a_variable_that_is_not_set(caplog: pytest.LogCaptureFixture) -> None:
    said = await refused(EnvKey(("FIRST", "SECOND")), caplog, "E-PRO-003", FIRST="", OTHER=CANARY)

    assert said == "there is no key for the provider 'openai': FIRST or SECOND is not set"


@pytest.mark.parametrize("more", ["\n-", "\r-", "\x00", "é", "\udcff", " -"])
async def test_what_no_key_can_be(more: str, caplog: pytest.LogCaptureFixture) -> None:
    await refused(EnvKey(("OURS",)), caplog, OURS=CANARY + more)


async def test_a_program_that_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = await refused(CommandKey((str(tmp_path / "none"), CANARY)), caplog)

    assert said.endswith("/none: No such file or directory")


@pytest.mark.parametrize(
    ("script", "part"),
    [
        (f"echo {CANARY}; exit 3", "printing ended with 3"),
        (f"echo {CANARY}; kill -9 $$", "printing ended with -9"),
        (":", "not one line"),
        (f"echo {CANARY}; echo {CANARY}", "not one line"),
        (f"while echo {CANARY}; do :; done", "printing printed too much"),
        (f"printf '{CANARY}\\377'", "characters"),
    ],
)
async def test_a_program_that_prints_no_key(
    script: str, part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert part in await refused(program(tmp_path, script), caplog)


class Watch:
    """Tells when a program began, and when neither it nor any that it started is left."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "alive")
        self.descriptor = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
        self.script = f"exec 3>{folder}/alive; echo >&3; echo {CANARY}; sleep 1000 & wait"

    async def began(self) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await anyio.wait_readable(self.descriptor)
        assert os.read(self.descriptor, 100) == b"\n"

    async def is_over(self) -> bool:
        with anyio.move_on_after(PATIENCE_SECONDS):
            await anyio.wait_readable(self.descriptor)
            return os.read(self.descriptor, 100) == b""
        return False


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(tmp_path)
    yield watch
    os.close(watch.descriptor)


async def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path,
    watch: Watch,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "COMMAND_SECONDS", 1.0)

    said = await refused(program(tmp_path, watch.script), caplog)
    await watch.began()
    assert said.endswith("printing took longer than 1 s")
    assert await watch.is_over()


async def test_a_program_does_not_outlive_whoever_waits_for_it(
    tmp_path: Path, watch: Watch
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resolve_key, keyed(program(tmp_path, watch.script)))
        await watch.began()
        tasks.cancel_scope.cancel()

    assert await watch.is_over()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o700 | 0o010, 0o666])
async def test_a_file_that_others_may_use(
    mode: int, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chmod(file, mode)

    said = await refused(FileKey(str(file)), caplog)
    assert said.endswith(f"/key may be used by others: its mode is {mode:04o}, not 0600")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_file_of_somebody_else(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(file, 12345, -1)

    assert "belongs to somebody else" in await refused(FileKey(str(file)), caplog)


async def test_a_link_is_judged_by_what_it_leads_to(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (file.parent / "link").symlink_to(file)
    assert await key_of(FileKey(f"{file.parent}/link")) == CANARY.encode()
    os.chmod(file, 0o644)

    assert "0644" in await refused(FileKey(f"{file.parent}/link"), caplog)


async def test_a_folder_a_pipe_and_nothing_are_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    assert "is no file" in await refused(FileKey(str(tmp_path)), caplog)
    assert "is no file" in await refused(FileKey(f"{tmp_path}/pipe"), caplog)
    assert "No such file" in await refused(FileKey(f"{tmp_path}/none"), caplog)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "not one line"),
        (b" \n\n", "not one line"),
        (b"name=x\n" + CANARY.encode(), "not one line"),
        (CANARY.encode() + b"\xff", "characters"),
        (CANARY.encode() * 2000, "more than a key"),
    ],
)
async def test_a_file_that_holds_no_key(
    text: bytes, part: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await anyio.Path(file).write_bytes(text)

    assert part in await refused(FileKey(str(file)), caplog)
