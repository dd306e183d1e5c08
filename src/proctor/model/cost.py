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
    """For those tokens of a request that the provider had in its cache; left out: as any other."""
    cache_write: float | None = None
    """For those tokens of a request that the provider wrote into its cache; left out: as any other."""
    per: int = 1_000_000
    """For how many tokens the prices are."""
    currency: str = "USD"
    as_of: str | None = None
    """The day on which the price was looked up."""


class PriceList(msgspec.Struct, frozen=True):
    """Prices by the name of a model, or by a pattern of names."""

    prices: dict[str, Price] = {}

    @property
    def currency(self) -> str:
        """The one currency of all prices."""
        return next((price.currency for price in self.prices.values()), "USD")

    def find(self, model: str) -> Price | None:
        """Return the price of a model: that of its name, else of its name without the provider's, else of the first pattern that fits."""
        for name in (model, model.rpartition("/")[2]):
            if name in self.prices:
                return self.prices[name]
            for pattern, price in self.prices.items():
                if fnmatchcase(name, pattern):
                    return price
        return None


def price_usage(usage: Usage | None, model: str | None, prices: PriceList) -> float | str:
    """Return what tokens of a model cost, or why that is unknown."""
    if usage is None:
        return "token usage is not recorded"
    if usage.input_tokens is None or usage.output_tokens is None:
        return "tokens are not recorded by input and output"
    models = usage.models or ((model,) if model is not None else ())
    if not models:
        return "the name of the model is not recorded"
    found = [(name, prices.find(name)) for name in models]
    unpriced = [name for name, price in found if price is None]
    if unpriced:
        return f"no price for the model {', '.join(unpriced[:5])}"
    price = found[0][1]
    assert price is not None
    if any(other != price for _, other in found):
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
    """Return which tokens were priced as any other input for want of a price of their own; empty where none were."""
    lacking: list[str] = []
    for name in usage.models or ((model,) if model is not None else ()):
        price = prices.find(name)
        if price is not None and usage.cached_input_tokens and price.cached_input is None:
            lacking.append(f"no cached_input price for {name}: its cached tokens cost as much as others")
        if price is not None and usage.cache_write_tokens and price.cache_write is None:
            lacking.append(f"no cache_write price for {name}: tokens written into its cache cost as much as others")
    return "; ".join(lacking)


def sum_known(costs: Iterable[float | str]) -> tuple[float | None, str]:
    """Return the sum of costs, or None and the first reason where one of them is unknown."""
    known: list[float] = []
    for cost in costs:
        if isinstance(cost, str):
            return None, cost
        known.append(cost)
    return round(math.fsum(known), 12), ""


class TotalCost(msgspec.Struct, frozen=True, kw_only=True):
    """What all cases of a run cost together."""

    agent: float | None
    """None where that of any case is unknown."""
    judge: float | None
    user: float | None = 0.0
    """Of the models that played users."""
    currency: str
    known: float
    """What is known of it: at least so much was spent."""
    cases_not_known: int = 0
    """Results of which not all is known."""
    why: str = ""
    """Why not, of the first of them."""
    note: str = ""
    """Which price replaced another one, from the first result that has it."""


_PAYERS = ("agent", "judge", "user")


class CostTally:
    """Costs of results, summed as they come."""

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
        """Return the sums; None where no result had a cost."""
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
