"""Whether a call fits into what is left, and with which changes: room is taken in the same step.

    bound the call        what it can cost at most, or why nobody can tell
    reserve               in every account of the chain, or in none
    no room?              the provider's own counter (once, where it is free), then a lower cap of
                          the output, down to `floor_of`, and then it is refused

Where nothing is bounded in dollars or tokens, every call passes; what it can cost is held all the
same, as far as somebody can tell: should it be cut off, that is what is known of it.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from msgspec import Struct
from msgspec.structs import replace

from capsule_runtime.core.ceilings import Ceiling
from capsule_runtime.core.gateway.apis import ChatCap
from capsule_runtime.core.gateway.asked import Asked
from capsule_runtime.core.gateway.bounds import (
    Model,
    Unbounded,
    Uncapped,
    Uncounted,
    Unpriced,
    Worst,
    first_unbounded,
    fitting_cap,
    floor_of,
    most_input,
    most_output,
    worst_case,
)
from capsule_runtime.core.gateway.edits import CapOutput, capped
from capsule_runtime.core.gateway.refusals import Cause
from capsule_runtime.core.gateway.reservations import Account, Amount, NoRoom, Reservation
from capsule_runtime.core.money import show_usd

USUAL_CAP = 16_384
"""Of an output, in tokens, where something is bounded and the request says nothing."""


class Rules(Struct, frozen=True):
    """What holds for calls of one model. *cap* is the caller's own, for every call of it."""

    model: Model
    cap: int | None = None
    allowed: frozenset[str] = frozenset()
    """Features without a proven bound that the caller answers for."""
    chat_key: ChatCap = "max_completion_tokens"
    is_lenient: bool = False
    """Whether what has no bound passes all the same, because the caller allowed it."""


class Admission(NamedTuple):
    """The call may go on, with a *cap* put in, if one was; so much is held for it."""

    reservation: Reservation
    worst: Worst
    cap: CapOutput | None = None


class Declined(Struct, frozen=True):
    """The call may not go on. *ceiling* is the one that it would pass: then the run is over."""

    cause: Cause
    message: str
    ceiling: Ceiling | None = None


class Uncertain(Struct, frozen=True):
    """Ask the provider's own counter, and then again."""


Verdict = Admission | Declined | Uncertain


def admit(
    account: Account, asked: Asked, rules: Rules, counted: int | None = None, *, may_count: bool
) -> Verdict:
    """Return whether *asked* may go on; then what it can cost is held in *account*.

    *counted* is what the provider's counter says of its input; *may_count*: it can be asked yet.
    """
    in_usd, in_tokens = account.room_microusd is not None, account.room_tokens is not None
    cap = _first_cap(asked, rules, is_bounded=in_usd or in_tokens)
    asked = capped(asked, cap) if cap is not None else asked
    bound = _bound(asked, rules, counted, in_usd=in_usd, in_tokens=in_tokens)
    match bound:
        case Worst():
            pass
        case Uncounted() if may_count:
            return Uncertain()
        case _ if rules.is_lenient:
            bound = Worst(0, 0, 0)
        case _:
            return _no_bound(bound, in_usd=in_usd)
    held = account.reserve(Amount(bound.microusd, bound.tokens))
    if isinstance(held, Reservation):
        return Admission(held, bound, cap)
    if may_count:
        return Uncertain()
    return _lowered(account, asked, rules, counted, bound) or _no_room(held, asked)


def demand(account: Account, asked: Asked, rules: Rules, counted: int | None) -> Amount | None:
    """Return what *asked* would take at most, where *account* is bounded; None: nobody can tell."""
    in_usd, in_tokens = account.room_microusd is not None, account.room_tokens is not None
    cap = _first_cap(asked, rules, is_bounded=in_usd or in_tokens)
    asked = capped(asked, cap) if cap is not None else asked
    bound = _bound(asked, rules, counted, in_usd=in_usd, in_tokens=in_tokens)
    return Amount(bound.microusd, bound.tokens) if isinstance(bound, Worst) else None


def _first_cap(asked: Asked, rules: Rules, *, is_bounded: bool) -> CapOutput | None:
    """Return the cap to put in before anything else: the caller's, or one where there is none."""
    if rules.cap is None and (asked.output_cap is not None or not is_bounded):
        return None
    tokens = USUAL_CAP if rules.cap is None else rules.cap
    if asked.thinking_budget is not None:
        tokens = max(tokens, floor_of(asked))
    if asked.output_cap is not None and asked.output_cap <= tokens:
        return None
    return CapOutput(tokens, rules.chat_key)


def _bound(
    asked: Asked, rules: Rules, counted: int | None, *, in_usd: bool, in_tokens: bool
) -> Worst | Unbounded | Uncounted | Unpriced | Uncapped:
    if rules.is_lenient:  # the rest of the call is held all the same
        asked = replace(asked, features=())
    if in_usd:
        return worst_case(asked, rules.model, counted=counted, allowed=rules.allowed)
    if not in_tokens:
        worst = worst_case(asked, rules.model, counted=counted, allowed=rules.allowed)
        return worst if isinstance(worst, Worst) else Worst(0, 0, 0)
    if (unbounded := first_unbounded(asked, rules.allowed)) is not None:
        return unbounded
    tokens, cap = most_input(asked, counted), asked.output_cap
    if isinstance(tokens, Uncounted):
        return tokens
    if cap is None:
        return Uncapped()
    return Worst(tokens, most_output(asked, cap, rules.model.beside_cap), 0)


def _no_bound(bound: Unbounded | Uncounted | Unpriced | Uncapped, *, in_usd: bool) -> Declined:
    of_what = "a ceiling in dollars" if in_usd else "a ceiling of tokens"
    match bound:
        case Unbounded(feature):
            return Declined(
                "unbounded",
                f"under {of_what} {feature.shown} is not served: nobody can tell what it costs at"
                " most",
            )
        case Uncounted(name):
            return Declined(
                "unbounded", f"under {of_what} {name} is not served: its provider does not count it"
            )
        case Unpriced(part):
            why = f"nobody knows the price of {part}"
            return Declined("unpriced", f"{of_what} cannot be held: {why}", Ceiling.USD)
        case Uncapped():
            return Declined("unbounded", f"under {of_what} a call needs an output cap")
        case _:
            assert_never(bound)


def _lowered(
    account: Account, asked: Asked, rules: Rules, counted: int | None, bound: Worst
) -> Admission | None:
    """Return the call with the highest cap of its output that there is room for, if there is one."""
    caps = list[int]()
    if (room := account.room_microusd) is not None:
        found = fitting_cap(asked, rules.model, bound.input_tokens, room)
        if found is None:
            return None
        caps.append(found)
    if (room := account.room_tokens) is not None:
        caps.append((room - bound.input_tokens) // asked.choices - rules.model.beside_cap)
    cap = CapOutput(min(caps), rules.chat_key)
    if cap.tokens < min(floor_of(asked), asked.output_cap or cap.tokens):
        return None
    in_usd, in_tokens = account.room_microusd is not None, account.room_tokens is not None
    worst = _bound(capped(asked, cap), rules, counted, in_usd=in_usd, in_tokens=in_tokens)
    if not isinstance(worst, Worst):
        return None
    held = account.reserve(Amount(worst.microusd, worst.tokens))
    return Admission(held, worst, cap) if isinstance(held, Reservation) else None


def _no_room(lack: NoRoom, asked: Asked) -> Declined:
    ceiling = Ceiling.USD if lack.unit == "usd" else Ceiling.TOKENS
    wanted, room, limit = (
        show_usd(amount) if lack.unit == "usd" else f"{amount} tokens"
        for amount in (lack.wanted, lack.room, lack.limit)
    )
    return Declined(
        "ceiling",
        f"{lack.name} has no room for this call: it may take {wanted} of {asked.model}, and {room}"
        f" of {limit} is left",
        ceiling,
    )
