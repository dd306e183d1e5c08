"""What a refused call is answered: a result with `isError` that a model can act on.

    {"error": {"code": "VALIDATION_ERROR", "message": "...", "path": "assertion.assert", "nearest": ["fhir-resource-state"],
               "details": {"assertion.assert": ["..."]}, "nextStep": "..."}}

The same codes as REST. `path` is the first place that is wrong, `details` all of them, `nearest` the right words most like the wrong one,
and `nextStep` says what to call or change next.
"""

from __future__ import annotations

import logging
import re

from sqlalchemy.exc import IntegrityError

from proctor.errors import EvidenceError, InputError, ProctorError, StoreError
from proctor.formats.verial.assertions import KINDS
from proctor.mcp_server.casing import camel_path
from proctor.model.evidence import Json
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import shown_problems
from proctor.service.verification import nouns

_LOG = logging.getLogger("proctor.mcp")
_NEAREST = re.compile(r"nearest: ([^;()]+)")
_MOST_DETAILS = 50

_LISTED_BY = {
    noun.called: noun.tool.name
    for noun in reversed(nouns.NOUNS)  # the first of two nouns with one name counts
    if noun.tool is not None and any("list" in operation.actions for operation in noun.operations)
}
"""By what is missing: the tool that lists it. A task that a criterion names is not among the criteria."""

ASSERTIONS = ", ".join(KINDS)


def write_refusal(error: Exception, tool: str, given: dict[str, Json]) -> dict[str, Json]:
    """The answer to a call that failed, whatever it failed with."""
    refusal = _as_refusal(error, tool)
    details = {_path(path, tool): list(texts) for path, texts in list(refusal.fields.items())[:_MOST_DETAILS]}
    found: dict[str, Json] = {"code": refusal.code, "message": refusal.message}
    if details:
        found["path"] = next(iter(details))
    elif refusal.problems and refusal.problems[0].get("path"):
        found["path"] = refusal.problems[0]["path"]
    near = _nearest(refusal)
    if near:
        found["nearest"] = near
    found |= {"details": details, "nextStep": _next_step(refusal, tool, given)}
    if refusal.retry_after_s is not None:
        found["retryAfterS"] = refusal.retry_after_s
    if refusal.problems:
        found["problems"] = [dict(problem) for problem in refusal.problems]
    return {"error": found}


def _path(path: str, tool: str) -> str:
    # Evals are criteria inside, where their text is called `assertion`.
    return f"assert{path.removeprefix('assertion')}" if tool == "evals" and path.startswith("assertion") else camel_path(path)


def _as_refusal(error: Exception, tool: str) -> Refusal:
    match error:
        case Refusal():
            return error
        case StoreError():
            return Refusal("UNAVAILABLE", str(error), retry_after_s=2.0)
        case IntegrityError():
            # A unique key that two callers reached at once; the driver's own words would show tables and values.
            return Refusal("CONFLICT", "somebody else made the same thing just now")
        case InputError():
            problems = shown_problems(error.problems)
            first = error.problems[0].message if error.problems else str(error)
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            return Refusal("VALIDATION_ERROR", f"{first}{more}", problems=problems)
        case EvidenceError():
            return Refusal("VALIDATION_ERROR", f"the evidence cannot be read: {error.message}", fields={"evidence": [error.message]})
        case ProctorError():
            return Refusal("BAD_REQUEST", str(error))
        case _:
            # Nothing of it is told: it may show what belongs to others.
            _LOG.error("a tool failed", extra={"tool": tool}, exc_info=error)
            return Refusal("INTERNAL_ERROR", "the tool failed, and the fault is not yours; the log of the server has more")


def _nearest(refusal: Refusal) -> list[str]:
    for problem in refusal.problems:
        named = problem.get("nearest")
        if isinstance(named, list) and named:
            return [str(name) for name in named]
    for texts in (*refusal.fields.values(), [refusal.message]):
        for text in texts:
            found = _NEAREST.search(text)
            if found is not None:
                return [name.strip() for name in found[1].split(",")]
    return []


def _next_step(refusal: Refusal, tool: str, given: dict[str, Json]) -> str:
    if refusal.hint is not None:
        return refusal.hint
    match refusal.code:
        case "VALIDATION_ERROR" if tool == "criteria" and any(path.startswith("assertion.") for path in refusal.fields):
            return (
                f"correct `assertion` and call {tool} again; `assert` is one of {ASSERTIONS}, "
                "and the resource proctor://docs/reference/verial.md shows their fields"
            )
        case "VALIDATION_ERROR" | "BAD_REQUEST":
            where = "`details`" if refusal.fields else "`problems`" if refusal.problems else "the message"
            return f"correct what {where} names and call {tool} again"
        case "NOT_FOUND" if "action" in given:
            return f"find the right id with {_LISTED_BY.get(refusal.missing or '', tool)} {{action: list}}"
        case "NOT_FOUND":
            return "list what there is; take an id from there"
        case "CONFLICT":
            return "its state does not allow this now; look at it" + (f" with {tool} {{action: get}}" if "action" in given else "")
        case "FORBIDDEN" | "UNAUTHORIZED":
            return "use an organization key (`proctor keys create --kind organization`); this one does not allow it"
        case "RATE_LIMITED" | "UNAVAILABLE":
            return "wait, then call again with the same arguments"
        case _:
            return "try something else, or tell whoever runs the server"
