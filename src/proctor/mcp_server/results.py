"""Results as a model can take them in: the same names as everywhere (`proctor.result/1`), with what passed cut short."""

from __future__ import annotations

from typing import cast

from proctor.mcp_server.arguments import Schema
from proctor.mcp_server.tool import shape
from proctor.model.evidence import Json

_SHORT = ("id", "name", "attempt", "outcome", "score", "verdict", "axes")
_MOST_CASES = 500

RESULT: Schema = shape(
    {
        "schema": {"type": "string"},
        "outcome": {"type": "string", "enum": ["pass", "fail", "error", "skip"]},
        "score": {"type": ["number", "null"]},
        "counts": {"type": "object"},
        "cases": {"type": "array", "items": {"type": "object"}},
    },
    run_id={"type": ["string", "null"]},
    suite={"type": "object"},
    warnings={"type": "array", "items": {"type": "object"}},
    unmatched_evidence={"type": "array"},
    unmet={"type": "object"},
    incomplete={"type": ["object", "null"]},
    cases_left_out={"type": "integer"},
)


def shorten_result(result: dict[str, Json], detail: str | None) -> dict[str, Json]:
    """A result with passing cases in one line each, unless everything is wanted. Where some are left out, passing ones go first."""
    if detail == "full":
        return result
    cases = [_short(case) for case in cast(list[dict[str, Json]], result["cases"])]
    left_out = len(cases) - _MOST_CASES
    if left_out > 0:
        # Sorting is stable: what did not pass comes first, and keeps the order of the suite.
        cases = sorted(cases, key=lambda case: case["outcome"] == "pass")[:_MOST_CASES]
    more: dict[str, Json] = {"cases_left_out": left_out} if left_out > 0 else {}
    return {**result, "cases": cases, **more}


def _short(case: dict[str, Json]) -> dict[str, Json]:
    if case["outcome"] == "pass":
        return {name: case[name] for name in _SHORT if name in case}
    failed = [entry for entry in cast(list[dict[str, Json]], case.get("assertions") or []) if entry["outcome"] != "pass"]
    return {**case, "assertions": failed}
