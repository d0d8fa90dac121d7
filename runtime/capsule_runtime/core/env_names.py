"""Which variables nobody may hand to a harness: they make programs load code, or undo a wall."""

from __future__ import annotations

import re
from collections.abc import Iterable

from capsule_runtime.errors import UsageError

_LOADS_CODE = (
    r"LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|GLIBC_TUNABLES|MALLOC_.*"
    r"|BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|IFS|ZDOTDIR"
    r"|NODE_OPTIONS|NODE_PATH|NODE_EXTRA_CA_CERTS|NPM_CONFIG_.*|BUN_.*|DENO_.*"
    r"|PYTHON.*|VIRTUAL_ENV|PERL5?(LIB|OPT|DB)|RUBY(OPT|LIB)|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS"
    r"|(GIT|SSH)_.*"
)
_IS_OURS = r"CAPSULE_.*"
_LEADS_ELSEWHERE = (
    r"HOME|TMPDIR|PATH|PWD|TERM|GPG_AGENT_INFO|DBUS_SESSION_BUS_ADDRESS|(?i:.*_PROXY)"
)
"""Fine when the caller says so: networks have proxies, and programs lie in many places."""
_SIGNS_COMMITS = r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)"


def check_names(names: Iterable[str], *, by_caller: bool) -> None:
    """Check the names of variables that a caller gives, or that a manifest was granted.

    Raises:
        UsageError: E-USE-050, one of them may not be given.
    """
    for name in names:
        if is_refused(name, by_caller=by_caller):
            raise UsageError(
                "E-USE-050",
                f"the variable {name} may not be given to a harness",
                "Let the program read it from a file of its own, or set it in a script of the capsule.",
            )


def is_refused(name: str, *, by_caller: bool) -> bool:
    """Tell whether the variable *name* may not be given: by the caller, or by a grant."""
    if re.fullmatch(_SIGNS_COMMITS, name):
        return False
    if re.fullmatch(_LEADS_ELSEWHERE, name):
        return not by_caller
    return bool(re.fullmatch(_LOADS_CODE, name) or re.fullmatch(_IS_OURS, name))
