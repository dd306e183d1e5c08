"""Warns of claims about tools that the agent does not have: `tool_not_called: cancel_orders` always holds where it is `cancel_order`.

Only if the tools of the agent are known, and never more than a warning: the verdict does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from proctor.checks.registry import Registry
from proctor.checks.shared.missing_evidence import find_reads
from proctor.model.case import Case, Suite
from proctor.model.show import nearest

MOST_WARNINGS = 10
MOST_CASES = 10_000
"""Cases that are looked through: of more, the names repeat."""


def list_unknown_tools(suite: Suite, known: frozenset[str], registry: Registry) -> list[str]:
    """Return a warning for each name of a tool that a claim has and the agent has not."""
    places: dict[str, str] = {}
    for case in islice(suite.cases, MOST_CASES):
        for name, place in _iterate_names(case, registry):
            if name not in known:
                places.setdefault(name, place)
    warnings: list[str] = []
    for name, place in islice(places.items(), MOST_WARNINGS):
        close = nearest(name, known)
        near = f"; nearest: {close[0]}" if close else f"; it has {', '.join(sorted(known)[:8])}"
        warnings.append(f"{place}: warning: the agent has no tool {name!r}{near}")
    return warnings


def _iterate_names(case: Case, registry: Registry) -> Iterator[tuple[str, str]]:
    for assertion in case.assertions:
        reads = find_reads(registry.get_for(assertion.check, assertion.spec).reads, assertion.spec)
        origin = assertion.origin
        for name in reads.tools:
            yield name, str(origin) if origin.file is not None or origin.line is not None else f"case {case.id!r}"
