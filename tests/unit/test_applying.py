"""What is applied, and what may not be."""

from __future__ import annotations

import pytest

from capsule_runtime.core.applying import emptied, in_the_way, is_sound, leads_out


@pytest.mark.parametrize("path", [b"a", b"a/b", b"..a/b..", b"a\nb/\xff", b".git/x"])
def test_a_path_beneath_is_sound(path: bytes) -> None:
    assert is_sound(path)


@pytest.mark.parametrize("path", [b"", b"/a", b"a//b", b"..", b"a/../b", b"./a", b"a/", b"a\0b"])
def test_a_path_that_may_lead_out_is_not(path: bytes) -> None:
    assert not is_sound(path)


@pytest.mark.parametrize(
    ("path", "target"),
    [(b"a", b"b"), (b"a", b"b/c"), (b"d/a", b"../b"), (b"d/e/a", b"./../../b"), (b"a", b".")],
)
def test_a_link_within_leads_nowhere_else(path: bytes, target: bytes) -> None:
    assert not leads_out(path, target)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"a", b"/etc/passwd"),
        (b"a", b".."),
        (b"a", b"../b"),
        (b"d/a", b"../../b"),
        (b"a", b""),
        (b"a", b"b\0c"),
        # `b` may be a link itself, and the step up then begins behind it.
        (b"a", b"b/.."),
        (b"d/a", b"../b/../../c"),
    ],
)
def test_a_link_that_may_lead_out_is_known(path: bytes, target: bytes) -> None:
    assert leads_out(path, target)


def test_the_deepest_folders_are_emptied_first() -> None:
    assert emptied([b"a/b/c", b"a/d", b"e"]) == [b"a/b", b"a"]


def test_folders_where_a_file_was_are_known_with_all_in_them() -> None:
    assert in_the_way({b"a", b"x"}, [b"a/b/c", b"d/e"]) == [b"a/b", b"a"]
