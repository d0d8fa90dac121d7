"""Which variables hold secrets, and in which forms a value is known again."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_runtime.core.secrets import forms_of, is_secret_name, secrets_of


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_API_KEY", "OPENAI_APIKEY", "GITHUB_TOKEN", "TOKEN", "CLIENT_SECRET"),
        *("DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "AWS_SECRET_ACCESS_KEY"),
        *("CREDENTIALS", "BASIC_AUTH", "NPM_AUTH_TOKEN", "SENTRY_DSN", "session_cookie"),
    ],
)
def test_a_name_that_says_so_is_that_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("LANG", "TZ", "PATH", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "KEYBOARD", "TOKENIZER"),
        *("COMPASS", "PATTERN", "AUTHOR", "MODEL", "ANTHROPIC_BASE_URL", "PASSENGER"),
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_what_was_declared_is_a_secret_whatever_its_name() -> None:
    env = {"FAVOURITE": "aquamarine", "LANG": "en_US.UTF-8", "API_KEY": "k" * 20}

    assert secrets_of(env, {"FAVOURITE"}) == {"FAVOURITE": "aquamarine", "API_KEY": "k" * 20}


@pytest.mark.parametrize("value", ["", "1234567", "  short \n"])
def test_a_value_as_short_as_a_word_is_none(value: str) -> None:
    assert secrets_of({"TOKEN": value}, {"TOKEN"}) == {}


_values = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40).filter(
    lambda value: len(value.strip()) >= 8
)


@given(_values)
def test_what_others_write_is_among_the_forms(value: str) -> None:
    value = value.strip()
    raw, forms = value.encode(), forms_of(f" {value}\n")

    ways = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value).replace("/", "\\/")[1:-1],
        json.dumps(json.dumps(value))[3:-3],
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        raw.hex(),
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
    }

    assert ways - {*forms} == set()


@given(_values, st.binary(max_size=5), st.binary(max_size=5))
def test_it_is_known_within_a_longer_text_in_base_64(
    value: str, before: bytes, after: bytes
) -> None:
    value = (value + "12345678").strip()
    encoded = base64.b64encode(before + value.encode() + after).decode()

    assert any(form in encoded for form in forms_of(value))


def test_a_line_of_a_key_is_known_and_its_frame_is_not() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"

    forms = forms_of(key)

    assert line in forms
    assert "-----BEGIN PRIVATE KEY-----" not in forms


def test_no_form_is_as_short_as_a_word() -> None:
    assert all(len(form) >= 8 for form in forms_of("12345678"))


def test_a_value_that_is_no_text_is_known_as_it_reads() -> None:
    assert forms_of("secret-\udcff-secret")[-1]
    assert "secret-\ufffd-secret" in forms_of("secret-\udcff-secret")
