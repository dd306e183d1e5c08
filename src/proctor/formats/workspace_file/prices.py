"""Prices of models, from the workspace file or a file of their own; not from a suite: it could make itself cheap."""

from __future__ import annotations

import re

from proctor.errors import InputError
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Located, Reading
from proctor.model.cost import Price, PriceList
from proctor.model.json_values import is_finite

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def read_prices(node: Located | None, reading: Reading) -> PriceList | None:
    """Return the prices under `prices:`, by name or pattern of models; None where there are none."""
    if node is None or reading.require_object(node, "prices") is None:
        return None
    prices: dict[str, Price] = {}
    for name, member in node.members():
        price = build_struct(Price, member, reading, f"the price of {name!r}")
        if price is UNUSABLE:
            continue
        _check_price(name, price, member, reading)
        prices[name] = price
        first = next(iter(prices.values()))
        if price.currency != first.currency:
            reading.error(
                member,
                f"prices: {name!r} is in {price.currency}, others are in {first.currency}",
                hint="costs of one run are summed, so all prices are in one currency",
            )
    return PriceList(prices) if prices else None


def _check_price(name: str, price: Price, node: Located, reading: Reading) -> None:
    for field in ("input", "output", "cached_input", "cache_write"):
        value = getattr(price, field)
        if value is not None and (not is_finite(value) or value < 0):
            reading.error(node.get(field) or node, f"prices: {field} of {name!r} must be a number of at least 0")
    if price.per < 1:
        reading.error(node.get("per") or node, f"prices: per of {name!r} must be a whole number of at least 1")
    if price.as_of is not None and _DAY.fullmatch(price.as_of) is None:
        reading.error(node.get("as_of") or node, f"prices: as_of of {name!r} must be a day such as 2026-11-01")


def read_price_file(text: str, *, file: str) -> PriceList:
    """Return the prices of a file: the entries themselves, or under `prices:` as in the workspace file. Raises `InputError`."""
    reading = Reading(file=file, text=text)
    document = read_text(text, file=file, reading=reading)
    inner = document.get("prices") if document is not None and document.is_object else None
    prices = read_prices(inner if inner is not None else document, reading)
    reading.finish()
    if prices is None:
        raise InputError(f"{file}: no prices in this file")
    return prices
