"""What a harness is told when it asks for permission: by policy, and on record with the asking."""

from __future__ import annotations

import pytest

from capsule_runtime import Answer, ContainmentError, Outcome, Permission, Reason, Refused, TurnEnd
from capsule_runtime.core.actions import Interrupt, Reply
from capsule_runtime.core.facts import PermissionDecided, Said
from capsule_runtime.core.grants import TIERS, Policy, Wish
from capsule_runtime.core.log import Record
from capsule_runtime.core.permissions import policy_of, usual_policy
from support.script import Script

ASKED = Permission("p1", "Bash", {"command": "rm -r build"})


def record(script: Script) -> Record:
    found = Record()
    for entry in script.entries:
        found.apply_entry(entry)
    return found


@pytest.mark.parametrize("policy", ["allow", "deny", "fail"])
def test_the_log_holds_the_question_and_then_what_was_decided(policy: Policy) -> None:
    script = Script(on_permission=policy)
    script.say(ASKED)

    said, decided = [it for it in script.facts if isinstance(it, (Said, PermissionDecided))]
    assert isinstance(said, Said) and said.event == ASKED
    assert isinstance(decided, PermissionDecided)
    assert (decided.id, decided.tool, decided.policy) == ("p1", "Bash", policy)
    assert decided.allowed is (policy == "allow")


def test_a_harness_is_allowed_by_an_answer() -> None:
    script = Script(on_permission="allow")
    script.say(ASKED)

    assert script.asked == [Reply("p1", Answer("allow"))]
    assert (record(script).allowed, record(script).denied) == (1, 0)


def test_a_refusal_does_not_end_the_run() -> None:
    script = Script(on_permission="deny")
    script.say(ASKED, TurnEnd("without it"))
    script.end()

    assert record(script).outcome is Outcome.COMPLETED
    assert (record(script).allowed, record(script).denied) == (0, 1)


def test_the_run_ends_where_asking_is_a_failure() -> None:
    script = Script(on_permission="fail")
    script.say(ASKED)
    script.say(TurnEnd("without it"))
    script.end()

    reply, stop, *_ = script.asked
    assert isinstance(reply, Reply) and isinstance(reply.decision, Refused)
    assert stop == Interrupt()
    assert (script.run.outcome, script.run.reason) == (Outcome.FAILED, Reason.PERMISSION)
    assert script.run.message == "the harness asked whether it may use Bash"


def test_an_endless_name_of_a_tool_is_cut_where_it_is_repeated() -> None:
    script = Script(on_permission="fail")
    script.say(Permission("p1", "x" * 100_000))

    assert len(script.run.message) < 300


@pytest.mark.parametrize(
    ("wishes", "policy"),
    [
        ((), None),
        ((None, None), None),
        (("allow",), "allow"),
        (("allow", "deny"), "deny"),
        (("deny", None, "allow"), "deny"),
        (("allow", "fail"), "fail"),
        (("fail", "deny"), "fail"),
    ],
)
def test_the_strictest_wish_holds(wishes: tuple[Wish | None, ...], policy: Policy | None) -> None:
    assert policy_of(wishes) == policy


def test_where_nobody_said_anything_the_walls_decide() -> None:
    assert [usual_policy(tier) for tier in TIERS] == ["allow", "allow", "deny"]


def test_nobody_can_be_asked() -> None:
    with pytest.raises(ContainmentError) as caught:
        policy_of(("allow", "ask"))

    assert caught.value.code == "E-CAP-005"
