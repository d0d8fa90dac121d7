"""The root of a sealed run, as bubblewrap is told of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from capsule_runtime.core.grants import Grants, is_beneath
from capsule_runtime.core.namespaces import Namespaces, Variant
from capsule_runtime.core.seal import Seal, Shift, Sources, seal
from capsule_runtime.core.seen_places import SeenPlaces, seen_places

SEEN = SeenPlaces("/work", "/home/agent", "/out")
SOURCES = Sources(
    writable=(("/state/home", "/home/agent"), ("/state/out", "/out")),
    workdir="/repo",
    workdir_is_writable=True,
    readable=("/opt/tool", "/caps/one", "/caps/one/deep", "/bin/sh", "/tools/bin/x"),
    links=(("/tools/bin/x", "../lib/x"),),
    real_paths=(("/caps/one", "/real/one"),),
    system=("/usr", "/opt"),
    system_links=(("/bin", "usr/bin"),),
    tmp_bytes=1024,
    filters=b"",
)


def sealed(
    sources: Sources = SOURCES,
    grants: Grants = Grants(),  # noqa: B008
    variant: Variant = "userns",
    user: int | None = None,
) -> Seal:
    found = Namespaces(variant, "/usr/bin/bwrap", idler="/usr/bin/cat")
    return seal(sources, SEEN, grants, found, user)


def words(made: Seal) -> list[str]:
    number = int(made.argv[made.argv.index("--args") + 1])
    return dict(made.data)[number].decode().rstrip("\0").split("\0")


def after(made: Seal, word: str) -> list[list[str]]:
    told = words(made)
    return [told[at + 1 : at + 3] for at, one in enumerate(told) if one == word]


def bound(made: Seal, word: str) -> dict[str, str]:
    """Return what is bound by descriptor: its name inside, and where it lies."""
    return {target: dict(made.places)[int(number)] for number, target in after(made, word)}


def test_what_is_started_inside_only_waits() -> None:
    assert sealed().argv[3:] == ("--", "/usr/bin/cat")


def test_the_harness_and_what_waits_beside_it_are_filtered_alike() -> None:
    made = sealed(replace(SOURCES, filters=b"program"))

    number = int(words(made)[words(made).index("--add-seccomp-fd") + 1])
    assert dict(made.data)[number] == made.filters == b"program"


def test_what_may_be_read_lies_where_it_lies_and_once() -> None:
    assert after(sealed(), "--ro-bind") == [
        ["/usr", "/usr"],
        ["/opt", "/opt"],
        ["/proc/sys", "/proc/sys"],
    ]
    assert bound(sealed(), "--ro-bind-fd") == {"/caps/one": "/real/one"}


def test_a_link_stays_a_link() -> None:
    assert after(sealed(), "--symlink") == [["usr/bin", "/bin"], ["../lib/x", "/tools/bin/x"]]


def test_folders_are_bound_by_descriptor() -> None:
    assert bound(sealed(), "--bind-fd") == {
        "/home/agent": "/state/home",
        "/out": "/state/out",
        "/work": "/repo",
    }


def test_a_work_directory_to_read_is_bound_to_be_read() -> None:
    made = sealed(replace(SOURCES, workdir_is_writable=False))

    assert bound(made, "--ro-bind-fd")["/work"] == "/repo"
    assert bound(made, "--bind-fd").keys() == {"/home/agent", "/out"}
    assert dict(made.rules)["/work"] == "read"


def test_no_two_things_have_one_descriptor() -> None:
    made = sealed(replace(SOURCES, filters=b"x"), Grants(write=("/data",)))
    numbers = [number for number, _ in (*made.places, *made.data)]

    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 4


def test_what_may_be_written_is_bound_once() -> None:
    made = sealed(grants=Grants(write=("/data/deep", "/data")))

    assert [path for path in bound(made, "--bind-fd") if path.startswith("/data")] == ["/data"]


def test_nothing_is_mounted_beneath_what_a_harness_could_have_written() -> None:
    made = sealed(grants=Grants(write=("/data",)))
    written = ("/work", "/home/agent", "/out", "/data")
    mounted = [
        target
        for word in ("--ro-bind", "--bind-fd", "--ro-bind-fd", "--ro-bind-data")
        for _, target in after(made, word)
    ]

    assert not [
        path for path in mounted for place in written if path != place and is_beneath(path, place)
    ]


def test_the_root_and_its_devices_are_closed_last() -> None:
    assert words(sealed())[-4:] == ["--remount-ro", "/dev", "--remount-ro", "/"]


@pytest.mark.parametrize(("variant", "has_users"), [("userns", True), ("rootns", False)])
def test_root_composes_without_a_namespace_of_users(variant: Variant, has_users: bool) -> None:
    made = sealed(variant=variant, user=None if has_users else 2_000_000_001)

    assert ("--unshare-user" in words(made)) == has_users
    assert after(made, "--cap-add") == []
    assert [one[0] for one in after(made, "--cap-drop")] == ["ALL"]


def test_a_run_of_root_becomes_a_user_who_owns_its_folders() -> None:
    made = sealed(grants=Grants(write=("/data",)), variant="rootns", user=2_000_000_001)

    assert made.shift == Shift(
        2_000_000_001,
        ("/state/home", "/state/out", "/data", "/repo"),
        ("/real/one",),
    )
    assert b"agent:x:2000000001:2000000001::/home/agent:/bin/sh\n" in dict(made.data).values()


def test_the_calls_are_filtered_before_anything_runs() -> None:
    made = sealed(replace(SOURCES, filters=b"program"))
    (number,) = [int(one[0]) for one in after(made, "--add-seccomp-fd")]

    assert dict(made.data)[number] == b"program"


def test_names_that_this_machine_has_are_not_taken() -> None:
    assert seen_places({"/work", "/home/agent", "/out"}) == SeenPlaces(
        "/workspace", "/home/agent-of-capsule", "/capsule-out"
    )
