"""A refusal is in an API's own words, and is not tried again."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.refusals import Cause, refused

CAUSES: tuple[Cause, ...] = get_args(Cause)
RETRIED = {408, 409, 425, 429}


def document(api: Api, cause: Cause, message: str = "no") -> Any:
    return json.loads(refused(api, cause, message).body)


@pytest.mark.parametrize("api", list(Api))
@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_is_tried_again_but_what_passes(api: Api, cause: Cause) -> None:
    answer = refused(api, cause, "no", 7)
    headers = dict(answer.headers)

    if cause == "rate-limited":
        assert (answer.status, headers["retry-after"]) == (429, "7")
        assert "x-should-retry" not in headers
    else:
        assert 400 <= answer.status < 500
        assert answer.status not in RETRIED
        assert headers["x-should-retry"] == "false"


@pytest.mark.parametrize("cause", CAUSES)
def test_each_api_has_its_own_shape(cause: Cause) -> None:
    messages = document(Api.MESSAGES, cause)
    chat, responses = document(Api.CHAT, cause), document(Api.RESPONSES, cause)
    generate = document(Api.GENERATE, cause)

    assert messages["type"] == "error"
    assert set(messages["error"]) == {"type", "message"}
    assert chat == responses
    assert set(chat["error"]) == {"message", "type", "param", "code"}
    assert set(generate["error"]) == {"code", "message", "status"}
    assert generate["error"]["code"] == refused(Api.GENERATE, cause, "no").status


def test_a_ceiling_is_told_as_a_bill() -> None:
    assert document(Api.MESSAGES, "ceiling")["error"]["type"] == "billing_error"
    assert document(Api.CHAT, "ceiling")["error"]["code"] == "billing_hard_limit_reached"
    assert document(Api.GENERATE, "ceiling")["error"]["status"] == "FAILED_PRECONDITION"


def test_one_harness_never_meets_what_it_would_try_with_other_betas() -> None:
    """It does so with every 400 of Messages that is not about a bill."""
    about_money: list[Cause] = ["ceiling", "unbounded", "unpriced"]

    for cause in about_money:
        assert document(Api.MESSAGES, cause)["error"]["type"] == "billing_error"
    assert refused(Api.MESSAGES, "model-not-allowed", "no").status == 403


@given(st.sampled_from(Api), st.sampled_from(CAUSES), st.text(max_size=2_000))
def test_any_message_can_be_told(api: Api, cause: Cause, message: str) -> None:
    told = document(api, cause, message)["error"]["message"]

    assert told == message.encode("utf-8", "replace").decode()[:1_000]
