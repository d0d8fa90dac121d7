"""A harness that misbehaves, as a real process: misbehaving.py VERB [ARGUMENT ...]

The standard library only, and little of it: hundreds of these are started. What each verb must come
to stands in `harness.MISBEHAVIOURS`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from resource import RLIMIT_CORE, setrlimit

_CHUNK = b"x" * 65536


def write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def say(type: str, **fields: object) -> None:
    write(1, json.dumps({"type": type, **fields}).encode() + b"\n")


def hear() -> dict[str, object]:
    """Return the next line of stdin, which is read byte by byte: nothing is taken too early."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return {"type": "end of input"}
        line += byte
    heard: dict[str, object] = json.loads(line)
    return heard


def stay() -> None:
    while True:
        signal.pause()


def ignore_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def chatty(count: str, size: str) -> None:
    """Stream *count* deltas of *size* characters."""
    text = "y" * int(size)
    block = (json.dumps({"type": "text-delta", "text": text}).encode() + b"\n") * 10
    for _ in range(int(count) // 10):
        write(1, block)
    say("turn-end", result="said it all")


def endless_line() -> None:
    while True:
        write(1, _CHUNK)


def oversize_line(length: str) -> None:
    """Write one line of *length* bytes between two good ones."""
    say("text-delta", text="before")
    for _ in range(int(length) // len(_CHUNK)):
        write(1, _CHUNK)
    write(1, b"\n")
    say("turn-end", result="after")


def bad_bytes() -> None:
    say("text-delta", text="before")
    write(1, b"\0\0\0\n\n\xff\xfe\xc3(\n")
    write(1, b'{"type":"text-delta","text":"\xff\xc3("}\n')
    write(1, b'{"type":"text-delta","text":"a\0b"}\n')
    write(1, b'{"type":"text-delta","text":"cut \\ud83d"}\n')
    write(1, b'{"type":"no-such-event"}\n[]\n"text"\n{"type":"text-delta"}\n{"type"')
    write(1, b"\n")
    say("turn-end", result="after")


def terminal_escapes(text: str) -> None:
    say("text-delta", text=json.loads(text))
    say("tool-call", id="1", name=json.loads(text))
    say("tool-result", id="1", content=json.loads(text))
    say("turn-end", result=json.loads(text))


def slow_drip() -> None:
    lines = [{"type": "text-delta", "text": word} for word in ("slow ", "drip ", "é€😀")]
    for line in [*lines, {"type": "turn-end", "result": "dripped"}]:
        for byte in json.dumps(line, ensure_ascii=False).encode() + b"\n":
            os.write(1, bytes([byte]))
            os.sched_yield()


def silent() -> None:
    stay()


def stops_itself() -> None:
    say("text-delta", text="going to sleep")
    os.kill(os.getpid(), signal.SIGSTOP)
    stay()


def exits_without_a_word() -> None:
    say("text-delta", text="and then")


def exits_3() -> None:
    write(2, b"first line\nno model for me\n")
    sys.exit(3)


def dies_by(number: str) -> None:
    setrlimit(RLIMIT_CORE, (0, 0))
    if int(number) not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(int(number), signal.SIG_DFL)
    os.kill(os.getpid(), int(number))
    stay()


def talks_on() -> None:
    say("turn-end", result="done")
    say("text-delta", text="one more thing")
    say("turn-end", result="no, this")
    say("turn-failed", kind="other", message="or this")
    say("permission", id="1", tool="late")
    write(1, b"not even json\n")


def never_reads() -> None:
    say("turn-end", result="I know what you want")


def asks_and_never_reads(count: str) -> None:
    """Ask for *count* permissions and read none of the answers."""
    block = b'{"type":"permission","id":"1","tool":"rm"}\n' * 100
    for _ in range(int(count) // 100):
        write(1, block)
    say("turn-end", result="asked enough")


def closes_stdout() -> None:
    say("text-delta", text="farewell")
    os.close(1)
    stay()


def closes_stdin() -> None:
    os.close(0)
    say("suspend", id="1", reason="to see what happens", input_schema={})
    say("turn-end", result="no need for it")


def leaves_a_child_on_stdout() -> None:
    if os.fork() == 0:
        stay()
    say("turn-end", result="my child has your pipe")


def leaves_a_child_on_stderr() -> None:
    if os.fork() == 0:
        os.close(1)
        stay()
    say("turn-end", result="my child has the other pipe")


def deaf() -> None:
    """Ignore every signal and every line."""
    ignore_signals()
    say("text-delta", text="cannot hear you")
    while hear()["type"] != "end of input":
        pass
    stay()


def fork_bomb(count: str) -> None:
    """Become *count* processes, a power of two, that ignore signals, and leave all but one."""
    ignore_signals()
    root, room = os.getpid(), int(count)
    reader, writer = os.pipe()
    while room > 1:
        room //= 2
        os.fork()
    os.write(writer, b"x")
    if os.getpid() != root:
        stay()
    left = int(count)
    while left:
        left -= len(os.read(reader, left))
    say("turn-end", result="boom")


def hogs_memory(mebibytes: str) -> None:
    """Take so much memory, and touch all of it."""
    taken = [b"x" * (1 << 20) for _ in range(int(mebibytes))]
    if len(taken) > 64:
        stay_busy()
    say("turn-end", result="fed")


def stay_busy() -> None:
    """Stay until somebody looks and sees what was taken."""
    say("text-delta", text="full")
    stay()


def feeds_a_hog(mebibytes: str) -> None:
    """Start a child that takes so much memory, and go on whatever becomes of it."""
    if os.fork() == 0:
        hogs_memory(mebibytes)
    os.wait()
    stay()


def bombs() -> None:
    """Start as many processes as can be, and go on trying."""
    ignore_signals()
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            select.select([], [], [], 0.01)


def fork_bomb_that_stays(count: str) -> None:
    """Become *count* processes that stay."""
    for _ in range(int(count) - 1):
        if os.fork() == 0:
            stay()
    stay()


def starts_threads(count: str) -> None:
    """Start so many threads, or as many as can be."""
    from _thread import error, start_new_thread

    try:
        for _ in range(int(count)):
            start_new_thread(stay, ())
    except error:
        pass
    stay()


def fills_disk(mebibytes: str) -> None:
    """Write files of 1 MiB into the work directory, HOME, TMPDIR and out, and stay."""
    places = (".", *(os.environ[name] for name in ("HOME", "TMPDIR", "CAPSULE_OUT")))
    for number in range(int(mebibytes)):
        with open(f"{places[number % 4]}/{number}", "wb") as file:
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
    stay()


def writes_one_file(mebibytes: str) -> None:
    """Write one file of that size, and die of it if it may not be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with open("big", "wb") as file:
        for _ in range(int(mebibytes)):
            file.write(bytes(1 << 20))
            file.flush()


def runs_away(count: str) -> None:
    """Leave *count* processes each of which forks and dies, for ever."""
    for _ in range(int(count)):
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork() != 0:
                    os._exit(0)
    say("turn-end", result="catch me")


def leaves_a_daemon() -> None:
    """Leave a process that forked twice, has its own session, and ignores signals."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_signals()
            os.write(writer, b"x")
            for fd in (0, 1, 2, reader, writer):
                os.close(fd)
            stay()
        os._exit(0)
    os.read(reader, 1)
    say("turn-end", result="it lives on")


def forgets_its_name() -> None:
    """Go on as another program without an environment, and tell which process that is."""
    say("text-delta", text=f"nameless {os.getpid()}")
    os.execve("/bin/sleep", ["sleep", "1000"], {})


def fills_stderr(count: str) -> None:
    """Write *count* chunks of 64 KiB and a last line to stderr."""
    for _ in range(int(count)):
        write(2, _CHUNK)
    write(2, b"\nthe last line\n")
    say("turn-end", result="complained enough")


def floods() -> None:
    block = b'{"type":"text-delta","text":"more and more"}\n' * 1000
    while True:
        write(1, block)


def asks() -> None:
    """Ask for all there is, and answer with what came back."""
    say("permission", id="a", tool="rm", input={"path": "/"})
    say("suspend", id="b", reason="who are you?", input_schema={"type": "string"})
    say("sleep", id="c", wake_at="2030-01-01T00:00:00Z")
    say("dispatch", id="d", kind="helper", input=[1])
    say("handoff", id="e", to="another")
    assert hear()["type"] == "task"
    answers = [hear() for _ in "abcde"]
    say("turn-end", result=json.dumps([[it["type"], it["id"], it["code"]] for it in answers]))


def reports_task() -> None:
    """Behave: open a session and answer with the task line and what else was handed in."""
    task = hear()
    home = os.environ["HOME"]
    left = sorted(os.listdir(home))
    with open(f"{home}/left-by-{task['run']}", "x"):
        pass
    say("session", id=f"session of {task['run']}")
    given = {"task": task, "home": left, "memory": os.environ.get("MEMORY")}
    say("turn-end", result=json.dumps(given))


def polite(pause: str) -> None:
    """Behave: when interrupted, need *pause* seconds, then end the turn."""
    assert hear()["type"] == "task"
    say("text-delta", text="ask me to stop")
    assert hear()["type"] == "interrupt"
    select.select([], [], [], float(pause))
    say("turn-end", result="stopped where I was")


def lingers(kind: str) -> None:
    """Say the last word and do not leave."""
    ignore_signals()
    say("session", id="to be kept")
    say("text-delta", text="almost ")
    if kind == "end":
        say("turn-end", result="done, but still here")
    else:
        say("turn-failed", kind=kind, message="no more")
    stay()


def clings() -> None:
    """Do all there is to survive: daemons, children on the pipes, ignored signals."""
    ignore_signals()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
        stay()
    os.fork()
    say("text-delta", text="you will not get rid of me")
    stay()


def streams() -> None:
    """Stream all kinds of events, quickly, for ever."""
    ignore_signals()
    number = 0
    while True:
        number += 1
        say("text-delta", text=f"{number} ")
        say("thinking-delta", text="hm ")
        say("text", text=f"{number} ", answer=str(number))
        say("tool-call", id=str(number), name="count", input=number)
        say("usage", model="m", input_tokens=number)
        if number % 3:
            say("text-delta", text="while it works ")
        say("tool-result", id=str(number), content="x" * number)


def idles_in(phase: str) -> None:
    """Fall silent in *phase*; in `after_tool` after a tool call that took its time."""
    if phase in ("tool", "after_tool"):
        say("tool-call", id="1", name="make")
    if phase == "after_tool":
        select.select([], [], [], 1.0)
        say("tool-result", id="1", content="made")
        say("text-delta", text="and")
    if phase == "rate_limited":
        say("retrying", attempt=1, reason="slow down")
    stay()


def trickles(count: str, pause: str) -> None:
    """Behave: say *count* words, one each *pause* seconds."""
    for number in range(int(count)):
        select.select([], [], [], float(pause))
        say("text-delta", text=f"{number} ")
    say("turn-end", result="counted")


def plays(path: str, code: str) -> None:
    """Write the file *path* to stdout and exit with *code*."""
    with open(path, "rb") as stream:
        write(1, stream.read())
    sys.exit(int(code))


def result_is_a_link(target: str) -> None:
    os.symlink(target, os.environ["CAPSULE_OUT"] + "/result.txt")
    say("turn-end", result="through a link")


def result_is_a_fifo() -> None:
    os.mkfifo(os.environ["CAPSULE_OUT"] + "/result.txt")
    say("turn-end", result="into a pipe")


def result_is_a_folder() -> None:
    os.makedirs(os.environ["CAPSULE_OUT"] + "/result.txt/full")
    say("turn-end", result="into a folder")


def out_is_a_link(target: str) -> None:
    os.rmdir(os.environ["CAPSULE_OUT"])
    os.symlink(target, os.environ["CAPSULE_OUT"])
    say("turn-end", result="elsewhere")


def half_a_line() -> None:
    """End in the middle of nowhere: the last line has no newline."""
    say("text-delta", text="and ")
    write(1, json.dumps({"type": "turn-end", "result": "no newline"}).encode())


def leaves_at_once(size: str) -> None:
    """Write *size* bytes as one who never waits: what does not fit into the pipe is lost."""
    os.set_blocking(1, False)
    last = json.dumps({"type": "turn-end", "result": "fast"}).encode() + b"\n"
    os.write(1, b'{"type":"activity","text":"%s"}\n%s' % (b"x" * int(size), last))


def waits(fifo: str) -> None:
    """Behave: say one word, and end well once somebody writes to *fifo*."""
    say("text-delta", text="here")
    with open(fifo, "rb") as gate:
        gate.read(1)
    say("turn-end", result="undisturbed")


VERBS: dict[str, Callable[..., None]] = {
    verb.__name__: verb
    for verb in (
        asks,
        asks_and_never_reads,
        bad_bytes,
        chatty,
        closes_stdin,
        closes_stdout,
        clings,
        deaf,
        dies_by,
        endless_line,
        exits_3,
        exits_without_a_word,
        fills_stderr,
        floods,
        fork_bomb,
        half_a_line,
        idles_in,
        leaves_a_child_on_stderr,
        leaves_a_child_on_stdout,
        leaves_a_daemon,
        leaves_at_once,
        lingers,
        never_reads,
        out_is_a_link,
        oversize_line,
        hogs_memory,
        feeds_a_hog,
        bombs,
        forgets_its_name,
        fork_bomb_that_stays,
        starts_threads,
        fills_disk,
        writes_one_file,
        plays,
        polite,
        reports_task,
        result_is_a_fifo,
        result_is_a_folder,
        result_is_a_link,
        runs_away,
        silent,
        slow_drip,
        stops_itself,
        streams,
        talks_on,
        terminal_escapes,
        trickles,
        waits,
    )
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
