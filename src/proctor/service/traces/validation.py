"""Validates a document without keeping it: the same reading as when it is kept, with findings instead of a refusal."""

from __future__ import annotations

import asyncio

from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.plain_secrets import refuse_secrets_in_suite
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import read_sent_suite, shown_problems

MOST_CASES_SHOWN = 1_000
"""Cases of a document that are listed; all of them are counted."""


async def validate_document(
    caller: Caller, document: str | dict[str, Json] | list[Json], *, dialect: str | None = None, name: str | None = None
) -> dict[str, Json]:
    """Return whether a document can be kept as a case, with every problem in it. Raises `Refusal` for one that is not looked at."""
    require_writer(caller, "documents are validated")
    try:
        suite, _ = await read_sent_suite(document, dialect=dialect, name=name)
        await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
    except Refusal as refusal:
        problems = list_refused_problems(refusal, "document")
        # Too large, or of a dialect that nobody knows: nothing in it was looked at.
        if not problems:
            raise
        return describe_validation(None, problems)
    return describe_validation(suite, shown_problems(suite.warnings))


def list_refused_problems(refusal: Refusal, field: str) -> list[dict[str, Json]]:
    """Return the problems that a refusal tells, those with a place first; what it says of parts of `field` has a path and no line."""
    found: list[dict[str, Json]] = [dict(problem) for problem in refusal.problems]  # type: ignore[misc]  # as `shown_problems` made them
    if found:
        return found
    inside = {name: texts for name, texts in refusal.fields.items() if name.startswith((f"{field}.", f"{field}["))}
    return [_make_problem(f"{refusal.message}: {text}", f"${name.removeprefix(field)}") for name, texts in inside.items() for text in texts]


def _make_problem(message: str, path: str) -> dict[str, Json]:
    return {
        "message": message,
        "line": None,
        "column": None,
        "path": path,
        "level": "error",
        "code": None,
        "expected": None,
        "nearest": [],
        "hint": None,
    }


def describe_validation(suite: Suite | None, problems: list[dict[str, Json]]) -> dict[str, Json]:
    """Return what came of reading a document; None: it cannot be used."""
    found: dict[str, Json] = {"valid": suite is not None, "problems": problems, "name": None, "dialect": None, "cases": [], "case_count": 0}
    if suite is not None:
        cases = [{"id": case.id, "name": case.name, "assertions": len(case.assertions)} for case in suite.cases[:MOST_CASES_SHOWN]]
        found |= {"name": suite.name, "dialect": suite.dialect, "cases": cases, "case_count": len(suite.cases)}
    return found
