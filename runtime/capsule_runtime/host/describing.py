"""Ask a driver before the launch. It may be anybody's code: what it raises is its own fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from capsule_runtime.driver import Configurable, Description, Driver, LaunchPlan, LaunchRequest
from capsule_runtime.errors import CapsuleError, HarnessError


def described_by(driver: Driver, config: Struct, name: str) -> Description:
    """Configure *driver*, called *name*, and return what it says then.

    Raises:
        HarnessError: E-HAR-005, it broke; or what it refuses itself.
    """
    try:
        if isinstance(driver, Configurable):
            driver.configure(config)
        return driver.describe()
    except CapsuleError:
        raise
    except Exception as exc:  # a driver may be anybody's code
        raise _broken(name, "describe its harness", exc) from exc


def check_keys(described: Description, env: Mapping[str, str], name: str) -> None:
    """Check that one of the keys that a harness may have is given in *env*.

    Raises:
        HarnessError: E-HAR-006, there is none.
    """
    keys = described.keys
    if keys and not any(env.get(key) for key in keys):
        raise HarnessError(
            "E-HAR-006",
            f"the harness of the driver {name!r} has no key: {' or '.join(keys)} is not given",
            _way_to_a_key(keys),
        )


def _way_to_a_key(keys: tuple[str, ...]) -> str:
    """Return what helps a harness that has none of *keys*."""
    from capsule_runtime.core.providers import BUILT_IN  # only who is refused has a need

    itself = f"give the key itself to the run: --env {keys[0]}"
    name = next((it.name for it in BUILT_IN.values() if it.variables.key in keys), None)
    if name is None:
        return f"Set it and {itself}"
    return f"Have it call through the gateway, where the key stays: --grant provider={name}; or {itself}"


def planned_by(
    driver: Driver, request: LaunchRequest, name: str, clean: Callable[[str], str]
) -> LaunchPlan:
    """Return how *driver*, called *name*, wants its harness started.

    It knows the values of the run's variables; what it says of them goes through *clean*.

    Raises:
        HarnessError: E-HAR-005, it broke; or what it refuses itself.
    """
    try:
        return driver.launch(request)
    except CapsuleError as exc:
        if (told := _told(exc, clean)) is exc:
            raise
        raise told from None  # its cause would show in a traceback what was cleaned
    except Exception as exc:  # a driver may be anybody's code
        broken = _broken(name, "plan the launch", exc)
        told = _told(broken, clean)
        raise told from (exc if told is broken else None)


def _told(error: CapsuleError, clean: Callable[[str], str]) -> CapsuleError:
    """Return *error* with clean words; the same one if they are."""
    message, hint = clean(error.message), clean(error.hint)
    if (message, hint) == (error.message, error.hint):
        return error
    return type(error)(error.code, message, hint)


def _broken(name: str, what: str, exc: Exception) -> HarnessError:
    return HarnessError(
        "E-HAR-005",
        f"the driver {name!r} cannot {what}: {type(exc).__name__}: {exc}",
        "This is an error of the driver. Report it to its authors.",
    )
