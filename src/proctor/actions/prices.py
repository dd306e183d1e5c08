"""The prices that hold here: those of the workspace file of the working folder, or those of a file that was named."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from proctor.actions.own_checks import find_workspace_file
from proctor.errors import InputError
from proctor.formats.workspace import read_workspace
from proctor.formats.workspace_prices import read_price_file
from proctor.model.case import Suite
from proctor.model.cost import PriceList
from proctor.sources.texts import check_path, read_suite_text

_NAMES_PRICES = re.compile(r"""^\s*["']?prices["']?\s*:""", re.MULTILINE)


def find_prices(start: Path | None = None) -> PriceList | None:
    """Return the prices of the nearest workspace file; None where there are none. Raises `InputError`."""
    file = find_workspace_file(start)
    text = read_suite_text(file) if file is not None else ""
    # Reading all of the file costs more than a small check, and most have no prices.
    return read_workspace(text, file=str(file)).prices if _NAMES_PRICES.search(text) is not None else None


def with_prices(suite: Suite, file: str | None) -> Suite:
    """Return the suite with the prices of a file, where one is named; else with those it has."""
    if file is None:
        return suite
    check_path(Path(file))
    if not Path(file).is_file():
        raise InputError(f"--prices: no such file: {file}")
    return msgspec.structs.replace(suite, prices=read_price_file(read_suite_text(Path(file)), file=file))


def require_prices(suite: Suite, models: list[str]) -> None:
    """Raise `InputError` where a bound on the cost could not be kept: without prices, or for models that have none."""
    if suite.prices is None:
        raise InputError("--max-cost needs prices: `prices:` in proctor.yaml, or --prices FILE, says what models cost")
    unpriced = [model for model in dict.fromkeys(models) if suite.prices.find(model) is None]
    if unpriced:
        known = ", ".join(suite.prices.prices)
        raise InputError(f"--max-cost: no price for the model {', '.join(map(repr, unpriced))}; prices are known for {known}")
