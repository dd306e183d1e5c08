"""Prices on the service: `prices` in the settings of a project, written as in `proctor.yaml`; a suite that was sent cannot bring any."""

from __future__ import annotations

from proctor.errors import InputError
from proctor.formats.located import Reading
from proctor.formats.workspace import Section
from proctor.formats.workspace_prices import read_prices
from proctor.model.cost import PriceList
from proctor.service.suites.documents import refusal_of
from proctor.store.pages import Row

PRICES_KEY = "prices"


def read_project_prices(project: Row) -> PriceList | None:
    """Return the prices that the settings of a project tell, if any; refused where they cannot be read."""
    settings = project["settings"] or {}
    if PRICES_KEY not in settings:
        return None
    reading = Reading(file=None, text="")
    try:
        found = read_prices(Section.of({PRICES_KEY: settings[PRICES_KEY]}).node.get(PRICES_KEY), reading)
        reading.finish()
    except InputError as error:
        raise refusal_of(error, "project", what="the prices of the project") from None
    return found
