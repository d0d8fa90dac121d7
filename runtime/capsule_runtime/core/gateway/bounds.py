"""What a request costs at most, proven before it is sent.

**Features.** Under a ceiling in dollars only what is known here passes: a feature without a bound
is refused by its name, and so is a key that nobody here knows. A caller who prices a feature by
other means may allow it by that name.

**Input.** No tokenizer in use makes more tokens of a text than it has bytes: those of byte pairs
begin with one token a byte and only merge, those of word pieces fall back to one token a byte. The
text that a tokenizer sees is at most the body's, unescaped, after NFKC (`reading`), and:
- around each message, part and tool a provider writes marks of its own; published are 3 to 8 tokens
  (OpenAI's cookbook on counting), 32 are taken;
- it may write JSON (tools, schemas, arguments) anew, with blanks or line ends around its marks:
  one more token for each; and it tells the model how to use tools: published are up to 804 tokens,
  and 700 for a tool that it describes itself (platform.claude.com, "Pricing", tool use): 2 048 a
  request, and 1 024 for each such tool, are taken;
- thoughts that it encrypted stand for text of any kind: they are taken to hold two tokens a byte;
- media are counted by `media`; for documents only the provider's own counter can tell.
A count of the provider is used where it is less. It is exact with one of them, with another an
estimate that "may differ by a small amount": 2 % and 64 tokens are added.

**Output.** Every API here has a cap, and each of the choices may reach it. It holds thoughts too:
Messages' `max_tokens` (but for a budget for thoughts that is larger: then both count), Chat's
`max_completion_tokens`, Responses' `max_output_tokens`, and `maxOutputTokens`, of which the manual
says otherwise, and which has been measured to be the ceiling of both together
(googleapis/python-genai#2062). Other providers of Chat let thoughts stand beside its cap: for them a
`Model` says how many. What is less than 64 was seen to be exceeded by half as much: so 64
count at least.

**Price.** The dearest rate that a token can have: fresh, or written to the cache for as long as
the request can ask for, at every tier that so long a prompt may reach.
"""

from __future__ import annotations

from msgspec import Struct

from capsule_runtime.core.gateway.apis import Api
from capsule_runtime.core.gateway.asked import MOST_CAP, Asked, Feature
from capsule_runtime.core.gateway.media import most_tokens
from capsule_runtime.core.money import bounded
from capsule_runtime.core.prices import Price, Rate

_MILLION = 1_000_000
_AROUND_A_PIECE = 32
_DESCRIPTION = 1_024
_AROUND_A_REQUEST = 2_048
_LEAST_OUTPUT = 64
FLOOR = 4_096
"""The output cap below which a call is refused rather than cut short."""
_ABOVE_THOUGHTS = 1_024


class Model(Struct, frozen=True):
    """What is known of a model: its price, and its own output *cap*.

    *beside_cap* is the most that it thinks beside the cap of a request, where its provider lets it.
    """

    price: Price | None = None
    cap: int | None = None
    beside_cap: int = 0


class Unbounded(Struct, frozen=True):
    """A feature has no bound."""

    feature: Feature


class Uncounted(Struct, frozen=True):
    """Only the provider's own counter can tell how long the input is, because of *name*."""

    name: str


class Unpriced(Struct, frozen=True):
    """A *part* of the call has no price."""

    part: str


class Uncapped(Struct, frozen=True):
    """The request has no output cap, and nobody told the model's own."""


class Worst(Struct, frozen=True, gc=False):
    """What a call takes at most: tokens, and micro-dollars."""

    input_tokens: int
    output_tokens: int
    microusd: int

    @property
    def tokens(self) -> int:
        """Return all tokens."""
        return self.input_tokens + self.output_tokens


Verdict = Worst | Unbounded | Uncounted | Unpriced | Uncapped


def first_unbounded(asked: Asked, allowed: frozenset[str] = frozenset()) -> Unbounded | None:
    """Return the first feature that has no bound and is not *allowed* by its name."""
    found = (feature for feature in asked.features if feature.name not in allowed)
    return next((Unbounded(feature) for feature in found), None)


def most_input(asked: Asked, counted: int | None = None) -> int | Uncounted:
    """Return the most tokens of the input. *counted* is what the provider's counter says."""
    own = _own_bound(asked)
    if counted is None:
        return own
    told = counted + counted // 50 + 64
    return told if isinstance(own, Uncounted) else min(own, told)


def most_output(asked: Asked, cap: int, beside_cap: int = 0) -> int:
    """Return the most tokens of the output, thoughts and all choices, under *cap*."""
    each = max(_LEAST_OUTPUT, cap) + beside_cap
    budget = asked.thinking_budget or 0
    if asked.api is Api.MESSAGES and budget >= cap:
        each += budget
    return each * asked.choices


def worst_case(
    asked: Asked,
    model: Model,
    *,
    counted: int | None = None,
    allowed: frozenset[str] = frozenset(),
) -> Verdict:
    """Return what the call takes at most, or what keeps anybody from telling.

    *counted* is what the provider's counter says of the input. The model's own cap counts where
    the request has none, or a higher one. Features that are *allowed*, by name, are the caller's
    to answer for.
    """
    if (unbounded := first_unbounded(asked, allowed)) is not None:
        return unbounded
    if model.price is None:
        return Unpriced(f"model {asked.model}")
    tokens = most_input(asked, counted)
    if isinstance(tokens, Uncounted):
        return tokens
    caps = [cap for cap in (asked.output_cap, model.cap) if cap is not None]
    if not caps:
        return Uncapped()
    output = most_output(asked, min(caps), model.beside_cap)
    microusd = cost_at_most(model.price, asked, tokens, output)
    return microusd if isinstance(microusd, Unpriced) else Worst(tokens, output, microusd)


def cost_at_most(
    price: Price, asked: Asked, input_tokens: int, output_tokens: int
) -> int | Unpriced:
    """Return the most that so many tokens cost, in micro-dollars, rounded up."""
    if (missing := _missing(price, asked)) is not None:
        return Unpriced(missing)
    # Whoever caches unasked does so for the usual few minutes.
    for_hour = price.cache_write_1h if asked.caches_for == "hour" else None
    ways_in = (price.input, price.cache_read, price.cache_write, for_hour)
    dearest_in = max(_dearest(rate, input_tokens) for rate in ways_in if rate is not None)
    dearest_out = _dearest(price.output, input_tokens) if price.output else 0
    product = input_tokens * dearest_in + output_tokens * dearest_out
    return bounded(-(-product // _MILLION))


def floor_of(asked: Asked) -> int:
    """Return the least output cap that a request may be given: its thoughts have to fit in."""
    budget = asked.thinking_budget
    return FLOOR if budget is None else max(FLOOR, budget + _ABOVE_THOUGHTS)


def fitting_cap(asked: Asked, model: Model, input_tokens: int, room_microusd: int) -> int | None:
    """Return the highest output cap with which the call costs no more than *room_microusd*.

    It is never above the request's own, or the model's, and never below `floor_of` but where the request's own is.
    None if there is no such cap.
    """
    caps = [cap for cap in (asked.output_cap, model.cap) if cap is not None]
    high = min(caps, default=MOST_CAP)
    low = min(floor_of(asked), high)
    if not _fits(asked, model, input_tokens, low, room_microusd):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(asked, model, input_tokens, middle, room_microusd):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(asked: Asked, model: Model, input_tokens: int, cap: int, room: int) -> bool:
    if model.price is None:
        return False
    output = most_output(asked, cap, model.beside_cap)
    cost = cost_at_most(model.price, asked, input_tokens, output)
    return not isinstance(cost, Unpriced) and cost <= room


def _own_bound(asked: Asked) -> int | Uncounted:
    media = [most_tokens(one, asked.api, asked.model) for one in asked.media]
    known = [tokens for tokens in media if tokens is not None]
    if len(known) < len(media):
        return Uncounted("a document of pages")
    around = asked.pieces * _AROUND_A_PIECE + _AROUND_A_REQUEST + asked.marks
    around += asked.described_tools * _DESCRIPTION
    return asked.text_bytes + asked.opaque_bytes + around + sum(known)


def _missing(price: Price, asked: Asked) -> str | None:
    """Return the part of what *asked* can cost that *price* says nothing of, if there is one."""
    if price.input is None:
        return "input"
    if price.output is None:
        return "output"
    if asked.caches_for != "none":
        if price.cache_write is None:
            return "writing to the cache"
        if asked.caches_for == "hour" and price.cache_write_1h is None:
            return "writing to the cache for an hour"
    return None


def _dearest(rate: Rate, prompt: int) -> int:
    """Return the dearest rate within reach of so long a prompt, or a shorter one."""
    return max([rate.base, *(tier.rate for tier in rate.tiers if prompt > tier.above)])
