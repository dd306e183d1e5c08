"""The cost of tokens: prices per model, and the cost of a case, separately for the agent, the judge and a simulated user.

An unknown cost is None with a reason, never 0: a model without a price, a recording without a model name, or without token counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from proctor.model.evidence import Cost, Usage


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the tokens of a model cost."""

    input: float
    """For the tokens of a request."""
    output: float
    """For the tokens of an answer."""
    cached_input: float | None = None
    """For input tokens from the provider's cache; left out: like other input."""
    cache_write: float | None = None
    """For input tokens written to the provider's cache; left out: like other input."""
    per: int = 1_000_000
    """The number of tokens that the prices are for."""
    currency: str = "USD"
    as_of: str | None = None
    """The day on which the price was looked up."""


class PriceList(msgspec.Struct, frozen=True):
    """Prices by model name or pattern."""

    prices: dict[str, Price] = {}

    @property
    def currency(self) -> str:
        """The currency, which is the same for all prices."""
        return next((price.currency for price in self.prices.values()), "USD")

    def find(self, model: str) -> Price | None:
        """Return the price of a model: by its name, else by its name without the provider, else by the first matching pattern."""
        for name in (model, model.rpartition("/")[2]):
            if name in self.prices:
                return self.prices[name]
            for pattern, price in self.prices.items():
                if fnmatchcase(name, pattern):
                    return price
        return None


def price_usage(usage: Usage | None, model: str | None, prices: PriceList) -> float | str:
    """Return the cost of a model's tokens, or why it is unknown."""
    if usage is None:
        return "token usage is not recorded"
    if usage.input_tokens is None or usage.output_tokens is None:
        return "tokens are not recorded by input and output"
    models = usage.models or ((model,) if model is not None else ())
    if not models:
        return "the name of the model is not recorded"
    priced = [(name, prices.find(name)) for name in models]
    unpriced = [name for name, price in priced if price is None]
    if unpriced:
        return f"no price for the model {', '.join(unpriced[:5])}"
    price = priced[0][1]
    assert price is not None
    if any(other != price for _, other in priced):
        return f"the tokens of several models ({', '.join(models[:5])}) are recorded in one sum"
    cached = min(usage.cached_input_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    parts = (
        price.input * (usage.input_tokens - cached - written),
        (price.input if price.cached_input is None else price.cached_input) * cached,
        (price.input if price.cache_write is None else price.cache_write) * written,
        price.output * usage.output_tokens,
    )
    return math.fsum(parts) / price.per


def note_stand_ins(usage: Usage, model: str | None, prices: PriceList) -> str:
    """Return which tokens were priced like other input because they have no price; empty if none were."""
    unpriced: list[str] = []
    for name in usage.models or ((model,) if model is not None else ()):
        price = prices.find(name)
        if price is not None and usage.cached_input_tokens and price.cached_input is None:
            unpriced.append(f"no cached_input price for {name}: its cached tokens cost as much as others")
        if price is not None and usage.cache_write_tokens and price.cache_write is None:
            unpriced.append(f"no cache_write price for {name}: tokens written into its cache cost as much as others")
    return "; ".join(unpriced)


def sum_known(costs: Iterable[float | str]) -> tuple[float | None, str]:
    """Return the sum of costs, or None and the first reason if one of them is unknown."""
    known: list[float] = []
    for cost in costs:
        if isinstance(cost, str):
            return None, cost
        known.append(cost)
    return round(math.fsum(known), 12), ""


def add_costs(first: Cost, second: Cost) -> Cost:
    """Return the cost of two tries of one attempt; unknown if either is."""
    sums: dict[str, float | None] = {}
    for payer in _PAYERS:
        amounts = (getattr(first, payer), getattr(second, payer))
        sums[payer] = None if None in amounts else round(math.fsum(amounts), 12)
    return msgspec.structs.replace(second, **sums, why=first.why or second.why, note=first.note or second.note)


class TotalCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of all cases of a run."""

    agent: float | None
    """None if the cost of any case is unknown."""
    judge: float | None
    user: float | None = 0.0
    """Of the models that played users."""
    currency: str
    known: float
    """The known part of the cost, which is a lower bound."""
    cases_not_known: int = 0
    """The number of results with an unknown cost."""
    why: str = ""
    """The reason for the first of them."""
    note: str = ""
    """Which price replaced another one, from the first result that has it."""


_PAYERS = ("agent", "judge", "user")


class CostTally:
    """Sums the costs of results."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(_PAYERS, 0.0)
        self._not_known: set[str] = set()
        self._unknown = 0
        self._currency = self._why = self._note = ""

    def add(self, cost: Cost) -> None:
        """Count the cost of one result."""
        self._currency = self._currency or cost.currency
        self._note = self._note or cost.note
        for payer in _PAYERS:
            amount: float | None = getattr(cost, payer)
            if amount is None:
                self._not_known.add(payer)
            else:
                self._sums[payer] += amount
        if cost.total() is None:
            self._unknown += 1
            self._why = self._why or cost.why

    def finish(self) -> TotalCost | None:
        """Return the sums; None if no result had a cost."""
        if not self._currency:
            return None
        sums = {payer: round(amount, 12) for payer, amount in self._sums.items()}
        amounts = {payer: None if payer in self._not_known else amount for payer, amount in sums.items()}
        return TotalCost(
            **amounts,
            currency=self._currency,
            known=round(sum(sums.values()), 12),
            cases_not_known=self._unknown,
            why=self._why,
            note=self._note,
        )
