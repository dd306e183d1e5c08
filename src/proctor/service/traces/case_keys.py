"""The ids of the cases inside a document, read once for each version of it."""

from __future__ import annotations

from collections import OrderedDict

from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite
from proctor.store.sql.pages import Row

MOST_KEYS = 500
"""Ids of one document that are looked for in runs; a database compares no more at once."""
_MOST_KEPT = 500
_LARGEST_KEPT = 20_000
"""Characters of a document that is remembered: what is remembered must not take much room."""
_known: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()
"""By name, dialect and document: what was read depends on nothing else."""


async def list_case_keys(case: Row) -> list[str]:
    """Return the ids of the cases in the document of a case; none where it cannot be read any more."""
    place = (case["name"], case["dialect"], case["document"])
    found = _known.get(place)
    if found is None:
        try:
            suite, _ = await read_sent_suite(case["document"], dialect=case["dialect"], name=case["name"])
            found = [each.id for each in suite.cases[:MOST_KEYS]]
        except Refusal:
            # It was read when it was written; the rules have changed since, and the case itself says so where it is decided.
            found = []
        if len(case["document"]) <= _LARGEST_KEPT:
            _known[place] = found
        while len(_known) > _MOST_KEPT:
            _known.popitem(last=False)
    elif place in _known:
        _known.move_to_end(place)
    return found
