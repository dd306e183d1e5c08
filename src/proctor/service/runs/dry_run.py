"""Dry runs: everything that starting a run looks at, without starting it; what is wrong comes back as a list.

The suite is read, secrets in it are looked for, cases are selected, and the target, the models and the judge are built as the worker would
build them. No agent is called. What is wrong with the fields of the request and with the suite is told together; what depends on the suite
(the selection, the target) only once the suite can be read.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.requests import RunSpec, check_spec, find_startable_project, prepare_run, read_run_suite
from proctor.service.suites.documents import shown_problems

MOST_CASES_SHOWN = 1_000
"""Cases that are listed; all of them are counted."""
_TELLING = ("VALIDATION_ERROR", "CONFLICT", "NOT_FOUND")
"""Refusals that are about what was asked for. Others (no permission, no database) are no findings."""


async def plan_run(hub: Hub, caller: Caller, spec: RunSpec) -> dict[str, Json]:
    """Return what a run would be, and every problem that keeps it from being started."""
    require_writer(caller, "runs are planned")
    found: dict[str, Json] = {"suite_name": None, "dialect": None, "target": None, "attempts": None, "cases": [], "case_count": 0}
    refusals: list[Refusal] = []
    try:
        project = await find_startable_project(hub, caller, spec.project_id)
    except Refusal as refusal:
        if refusal.code != "CONFLICT":
            raise
        return {"startable": False, "problems": _list_findings(refusal), "warnings": [], **found}
    try:
        check_spec(spec)
    except Refusal as refusal:
        refusals.append(refusal)
    warnings: list[dict[str, Json]] = []
    if spec.suite is not None or spec.cases:
        try:
            sent = await read_run_suite(hub, caller, project, spec)
            found |= {"suite_name": sent.suite.name, "dialect": sent.suite.dialect}
            warnings = shown_problems(sent.suite.warnings)
            if not refusals:
                prepared = await prepare_run(hub, caller, project, spec, sent)
                chosen = [case.id for case in prepared.chosen.cases]
                found |= {"target": prepared.target, "attempts": prepared.asked.attempts}
                found |= {"cases": chosen[:MOST_CASES_SHOWN], "case_count": len(chosen)}
        except Refusal as refusal:
            if refusal.code not in _TELLING:
                raise
            refusals.append(refusal)
    problems = [problem for refusal in refusals for problem in _list_findings(refusal)]
    return {"startable": not refusals, "problems": problems, "warnings": warnings, **found}


def _list_findings(refusal: Refusal) -> list[dict[str, Json]]:
    """Return what a refusal tells as findings: the field of the request each is about, and where in the document it stands."""
    nothing: dict[str, Json] = {"line": None, "column": None, "path": None, "nearest": [], "hint": refusal.hint}
    if refusal.problems:
        field = next(iter(refusal.fields), "suite")
        kept = ("message", "line", "column", "path", "nearest", "hint")
        return [{**nothing, "field": field, **{name: problem.get(name) for name in kept}} for problem in refusal.problems]  # type: ignore[misc]
    told = [(field, text) for field, texts in refusal.fields.items() for text in texts]
    return [{**nothing, "field": field, "message": text} for field, text in told or [("", refusal.message)]]
