"""Root as containers have it, by default and on overlayfs: safe, and able to work all the same.

Whole `capsule run`s, with the rights that Docker leaves to root and behind what its filter refuses;
and with all rights, where the work directory or everything lies on an overlay.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from capsule_runtime.host.namespaces import find_namespaces
from capsule_runtime.host.run_users import FIRST
from capsule_runtime.host.scoping import find_scopes
from support.command import HELLO, PROGRAM, STUBBORN, Command, Done
from support.docker import in_docker
from support.mounts import can_mount

SYSTEM_PATH = "/usr/bin:/bin"
WORKS = """
read task
echo changed > there; echo new > made; mkdir deep; echo x > deep/file; rm gone
chmod 0640 made; chown $(id -u) made; touch -d 2001-01-01 deep/file
echo left > "$CAPSULE_OUT/left"; echo kept > "$HOME/kept"; echo x > "$TMPDIR/x"
echo "{\\"type\\":\\"turn-end\\",\\"result\\":\\"$(id -u) $(stat -c %a made)\\"}"
"""
TRIES = """
read task
told=$(cat /etc/shadow "$SECRET" 2>&1; (echo no > here) 2>&1; grep CapEff /proc/self/status)
echo "{\\"type\\":\\"turn-end\\",\\"result\\":\\"$(echo "$told" | tr '\\n\\t"' ';  ')\\"}"
"""
FETCHES = """
read task
python3 -I -c '
import json, urllib.request
told = urllib.request.urlopen("http://PLACE/", timeout=10).read().decode()
print(json.dumps({"type": "turn-end", "result": told}))'
"""
Words = Callable[[Command], tuple[str, ...]]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be taken away")


@pytest.fixture
def place() -> Generator[Path]:
    """Return a folder that others can enter, as those of a container are."""
    if why := find_scopes().why:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="container-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def command(place: Path) -> Command:
    made = Command(place)
    made.env["PATH"] = SYSTEM_PATH
    work(made)
    return made


def work(command: Command, folder: str = "work") -> Path:
    """Make a work directory of root's."""
    made = command.folder / folder
    made.mkdir(parents=True)
    (made / "there").write_text("as it was\n")
    (made / "gone").write_text("to be removed\n")
    return made


def docker(command: Command, *words: str) -> Done:
    """Run `capsule` with *words* as root of a container."""
    return command(*words, before=in_docker())


def run(command: Command, harness: str, *words: str, workdir: str = "work") -> Done:
    """Run the shell script *harness* in a container; its capsule names no mode of the work directory."""
    return docker(
        command, "run", capsule(command, harness), "--task", "go", "--workdir", workdir, *words
    )


def capsule(command: Command, harness: str, *, program: str = "sh") -> str:
    folder = command.folder / "caps"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "capsule.toml").write_text(
        f'name = "sample"\n[harness]\ndriver = "jsonl"\ncommand = ["{program}", "./harness.sh"]\n'
    )
    (folder / "harness.sh").write_text(harness)
    return str(folder)


def owners(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return whose all that is in *folder* is, and its modes."""
    found = [folder, *folder.rglob("*")]
    return {
        str(path): (path.lstat().st_uid, path.lstat().st_gid, path.lstat().st_mode)
        for path in found
    }


def users(folder: Path) -> set[int]:
    return {user for user, _, _ in owners(folder).values()}


def show(command: Command) -> dict[str, object]:
    told: dict[str, object] = json.loads(docker(command, "show", "@last", "--json").out)
    return told


def test_the_tier_and_the_copy_are_named_with_the_reason(command: Command) -> None:
    done = run(command, HELLO)

    assert (done.status, done.out) == (0, "hello world\n")
    assert "containment: scoped" in done.err
    assert "note: it works on a copy: root cannot show" in done.err
    assert "CAP_SYS_ADMIN" in done.err
    found = show(command)
    assert (found["containment"], found["workdir_mode"]) == ("scoped", "copy")
    assert "CAP_SYS_ADMIN" in str(found["why_copy"])


def test_the_plan_says_the_same_and_makes_nothing(command: Command) -> None:
    done = run(command, HELLO, "--explain", "--json")

    told = json.loads(done.out)
    assert (told["containment"], told["workdir_mode"]) == ("scoped", "copy")
    assert any("works on a copy" in one for one in told["caveats"])
    assert not (command.state / "runs").exists()


def test_the_doctor_says_the_same(command: Command) -> None:
    told = json.loads(docker(command, "doctor", "--json").out)

    sealed, scoped, _ = told["tiers"]
    assert (told["tier"], sealed["is_had"], scoped["is_had"]) == ("scoped", False, True)
    assert "a work directory is copied" in scoped["how"]
    assert "CAP_SYS_ADMIN" in scoped["how"]


def test_it_works_as_nobody_else_and_what_it_made_is_applied_as_the_caller_s(
    command: Command,
) -> None:
    before = owners(command.folder / "work")

    done = run(command, WORKS)

    user, mode = done.out.split()
    assert int(user) >= FIRST
    assert mode == "640"
    assert owners(command.folder / "work") == before
    assert docker(command, "apply", "@last", "--yes").status == 0
    made = command.folder / "work"
    assert (made / "there").read_text() == "changed\n"
    assert (made / "deep/file").read_text() == "x\n"
    assert not (made / "gone").exists()
    assert users(made) == {0}


def test_what_it_leaves_belongs_to_the_caller(command: Command) -> None:
    before = owners(Path(capsule(command, WORKS)))

    run(command, WORKS)

    assert users(command.state) == {0}
    assert owners(command.folder / "caps") == before
    (out,) = (command.state / "runs").glob("*/out")
    assert sorted(path.name for path in out.iterdir()) == ["left", "result.txt"]
    assert list((command.state / "runs").glob("*/work")) == []


def test_another_run_of_the_context_finds_its_home(command: Command) -> None:
    script = (
        'read task; echo "{\\"type\\":\\"turn-end\\",\\"result\\":\\"$(cat "$HOME/kept")\\"}"\n'
    )
    run(command, WORKS, "--context", "one")

    done = run(command, script, "--context", "one")

    assert done.out == "kept\n"
    assert users(command.state) == {0}


def test_what_is_reported_is_so(command: Command) -> None:
    secret = command.folder / "secret"
    secret.write_text("canary")
    secret.chmod(0o644)

    done = run(command, TRIES, "--env", f"SECRET={secret}", "--workdir-mode", "ro")

    assert done.status == 0, done.err
    assert "canary" not in done.out
    assert done.out.count("Permission denied") == 3
    assert "CapEff: 0000000000000000" in done.out
    walls = show(command)["walls"]
    assert isinstance(walls, dict)
    assert (walls["axes"]["fs"], walls["axes"]["net"], walls["axes"]["proc"]) == (
        "denied",
        "mediated",
        "uid",
    )


@pytest.fixture
def upstream() -> Generator[int]:
    """Return the port of a server on this machine that answers once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nupstream")

        serving = threading.Thread(target=answer)
        serving.start()
        yield server.getsockname()[1]
        serving.join()


def test_its_broker_connects_it_to_its_upstream(command: Command, upstream: int) -> None:
    place = f"127.0.0.1:{upstream}"

    done = run(command, FETCHES.replace("PLACE", place), "--upstream", place)

    assert done.out == "upstream\n"
    assert f"{place} (upstream): 1 allowed" in docker(command, "show", "@last").out


def test_a_capsule_and_a_work_directory_that_only_root_may_enter_are_served(
    command: Command,
) -> None:
    home = command.folder / "home"
    home.mkdir(mode=0o700)
    work(command, "home/work")
    moved = home / "caps"
    Path(capsule(command, WORKS)).rename(moved)
    (moved / "harness.sh").chmod(0o600)

    done = docker(command, "run", str(moved), "--task", "go", "--workdir", "home/work")

    assert done.status == 0, done.err
    assert show(command)["changes"] is not None
    assert not list((command.state / "runs").glob("*/capsule"))
    assert home.stat().st_mode & 0o777 == 0o700


def closed_program(command: Command) -> tuple[str, ...]:
    programs = command.folder / "home/bin"
    programs.mkdir(parents=True)
    programs.parent.chmod(0o700)
    shutil.copy("/bin/sh", programs / "shell")
    command.env["PATH"] = f"{programs}:{SYSTEM_PATH}"
    return ("run", capsule(command, HELLO, program="shell"))


def closed_state(command: Command) -> tuple[str, ...]:
    home = command.folder / "home"
    home.mkdir(mode=0o700)
    command.env["CAPSULE_STATE"] = str(home / "state")
    return ("run", capsule(command, HELLO))


def in_place(command: Command) -> tuple[str, ...]:
    return ("run", capsule(command, HELLO), "--workdir-mode", "rw")


def granted(command: Command) -> tuple[str, ...]:
    data = command.folder / "data"
    data.mkdir()
    folder = Path(capsule(command, HELLO))
    with (folder / "capsule.toml").open("a") as manifest:
        manifest.write(f'[capabilities]\nwrite = ["{data}"]\n')
    return ("run", str(folder), "--grant", f"write={data}")


@pytest.mark.parametrize(
    ("words", "code", "helps"),
    [
        (closed_program, "E-CAP-007", "/opt"),
        (closed_state, "E-CAP-007", "CAPSULE_STATE"),
        (in_place, "E-CAP-008", "capsule apply"),
        (granted, "E-CAP-008", "plain user"),
    ],
    ids=["program", "state", "in place", "grant"],
)
def test_what_cannot_be_is_refused_before_anything_is_recorded(
    command: Command, words: Words, code: str, helps: str
) -> None:
    done = docker(command, *words(command), "--task", "go", "--workdir", "work")

    assert done.status == 6
    assert done.err.startswith(f"error[{code}]: ")
    assert helps in done.err
    assert json.loads(docker(command, "ps", "--all", "--json").out or "[]") == []


def test_the_state_of_root_is_where_a_run_s_user_can_be_let_through(command: Command) -> None:
    home = command.folder / "home"
    home.mkdir(mode=0o700)
    python = str(Path(PROGRAM).with_name("python"))
    code = "from capsule_runtime.host.state import default_state; print(default_state())"
    env = {"HOME": str(home), "PATH": SYSTEM_PATH}

    def told(*before: str) -> str:
        words = [*before, python, "-c", code]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    assert told(*in_docker()) == "/var/lib/capsule/state\n"
    assert told().startswith(str(home))
    home.chmod(0o755)
    assert told(*in_docker()).startswith(str(home))


def test_whoever_comes_after_a_killed_supervisor_takes_back_what_it_gave(command: Command) -> None:
    words = ("run", capsule(command, STUBBORN), "--task", "go", "--workdir", "work")
    with subprocess.Popen(
        [*in_docker(), PROGRAM, *words, "--format", "jsonl"],
        env=command.env,
        cwd=command.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if b"working" in line)
        while_it_works = users(command.state)
        readable = [
            path
            for path in command.state.rglob("*")
            if path.is_file() and path.stat().st_mode & 0o077 and "work" not in path.parts
        ]
        process.send_signal(signal.SIGKILL)
    run(command, HELLO)

    assert max(while_it_works) >= FIRST
    assert readable == []
    assert users(command.state) == {0}


OVERLAID = """
mount -t tmpfs none "$0" && cd "$0" && mkdir lower upper scratch work &&
echo "as it was" > lower/there && echo x > lower/gone &&
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=scratch work &&
"$@"; ended=$?
cp -a work "$KEPT"
exit $ended
"""


def overlaid(command: Command, *words: str, env: dict[str, str] | None = None) -> Done:
    """Run *words* in a folder with a work directory on overlayfs, which is in the folder `kept` then."""
    folder = command.folder / "overlaid"
    folder.mkdir(exist_ok=True)
    before = ("unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAID, str(folder))
    shutil.rmtree(command.folder / "kept", ignore_errors=True)
    kept = {"KEPT": str(command.folder / "kept")}
    return command(*words, before=before, env={**kept, **(env or {})})


@pytest.fixture(params=["sealed", "scoped"])
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "sealed" and (why := find_namespaces().why):
        pytest.skip(why)
    if not can_mount():
        pytest.skip("no mount namespace to be had")
    return name


@pytest.mark.parametrize("state", ["", "overlaid/work/state"], ids=["work", "everything"])
def test_on_an_overlay_root_works_on_a_copy(command: Command, tier: str, state: str) -> None:
    lies = str(command.folder / "overlaid/work")
    env = {"CAPSULE_STATE": str(command.folder / state), "TMPDIR": lies} if state else {}
    words = (capsule(command, WORKS), "--task", "go", "--workdir", lies, "--containment", tier)

    done = overlaid(command, "run", *words, env=env)

    assert done.status == 0, done.err
    assert int(done.out.split()[0]) >= FIRST
    assert f"containment: {tier}" in done.err
    assert "cannot show files under another owner" in done.err
    kept = command.folder / "kept"
    assert (kept / "there").read_text() == "as it was\n"
    assert users(kept) == {0}


def test_on_an_overlay_in_place_is_refused_with_the_way_out(command: Command, tier: str) -> None:
    lies = str(command.folder / "overlaid/work")
    words = (capsule(command, WORKS), "--task", "go", "--workdir", lies, "--containment", tier)

    done = overlaid(command, "run", *words, "--workdir-mode", "rw")

    assert done.status == 6
    assert done.err.startswith("error[E-CAP-008]: ")
    assert "capsule apply" in done.err


@pytest.mark.parametrize("right", ["chown", "kill", "setuid"])
def test_without_a_right_that_it_takes_root_is_told_so(command: Command, right: str) -> None:
    words = ("run", capsule(command, HELLO), "--task", "go", "--workdir", "work")
    before = (*in_docker(), "setpriv", "--bounding-set", f"-{right}")

    done = command(*words, before=before)

    assert done.status == 6
    assert f"CAP_{right.upper()}" in done.err
    assert "plain user" in done.err
