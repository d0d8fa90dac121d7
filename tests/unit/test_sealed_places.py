"""Which folders a sealed run is never given, and which cannot be shown together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from capsule_runtime import ContainmentError
from capsule_runtime.core.grants import Grants
from capsule_runtime.core.sandbox_plan import Ground, Program
from capsule_runtime.core.sealed_places import check_nesting, check_workdir
from capsule_runtime.core.seen_places import SeenPlaces

SEEN = SeenPlaces("/work", "/home/agent", "/out")
GROUND = Ground(
    capsule="/repo/caps/one",
    workdir="/repo",
    workdir_mode="rw",
    writable=(),
    agent="/lib/agent",
    program=Program(),
    search_path=(),
    system=("/usr",),
    devices=(),
    shared=(),
    git=(),
    caller_home="/people/me",
    state="/people/me/state",
    credentials=("/people/me/.ssh",),
)


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/x", "/usr/src/x", "/proc/1", "/home", "/run", "/var"],
)
def test_what_is_no_work_directory_of_a_sealed_run(path: str) -> None:
    with pytest.raises(ContainmentError) as refused:
        check_workdir(replace(GROUND, workdir=path))

    assert refused.value.code == "E-CAP-006"
    assert path in refused.value.message


@pytest.mark.parametrize(
    "path", ["/people/me", "/tmp", "/people/you", "/root", "/opt/x", "/var/tmp/x", "/run/user/1/x"]
)
def test_what_is_one(path: str) -> None:
    check_workdir(replace(GROUND, workdir=path))


@pytest.mark.parametrize("grants", [Grants(read=("/home",)), Grants(write=("/home",))])
def test_no_grant_holds_what_a_run_has_of_its_own(grants: Grants) -> None:
    with pytest.raises(ContainmentError, match="own /home/agent lies in it") as refused:
        check_nesting(GROUND, grants, SEEN)

    assert refused.value.code == "E-CAP-003"


def test_nothing_is_mounted_in_what_is_shown_of_a_written_folder() -> None:
    with pytest.raises(ContainmentError, match="may have written"):
        check_nesting(GROUND, Grants(write=("/repo/caps/one/data",)), SEEN)

    check_nesting(GROUND, Grants(write=("/data", "/lib/agent/cache"), read=("/repo/x",)), SEEN)
