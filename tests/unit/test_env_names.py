"""Variables that nobody may hand to a harness."""

from __future__ import annotations

import pytest

from capsule_runtime import UsageError
from capsule_runtime.core.env_names import check_names

LOAD_CODE = (
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "BASH_ENV",
    "ENV",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "GIT_SSH_COMMAND",
    "GIT_DIR",
    "CAPSULE_RUN",
)
FOR_THE_CALLER_ALONE = ("PATH", "HOME", "TMPDIR", "HTTPS_PROXY", "no_proxy", "http_proxy")
FINE = ("MODE", "GIVEN", "OPENAI_API_KEY", "LDAP", "GIT_AUTHOR_NAME", "ENVIRONMENT", "PYLINT")


@pytest.mark.parametrize("by_caller", [True, False])
@pytest.mark.parametrize("name", LOAD_CODE)
def test_what_loads_code_is_refused_whoever_says_it(name: str, by_caller: bool) -> None:
    with pytest.raises(UsageError, match=f"variable {name} may not") as refused:
        check_names([name], by_caller=by_caller)

    assert refused.value.code == "E-USE-050"


@pytest.mark.parametrize("name", FOR_THE_CALLER_ALONE)
def test_what_leads_elsewhere_is_for_the_caller_to_give(name: str) -> None:
    check_names([name], by_caller=True)

    with pytest.raises(UsageError):
        check_names([name], by_caller=False)


def test_all_else_is_fine() -> None:
    check_names(FINE, by_caller=False)
