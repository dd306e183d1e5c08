"""A run as SARIF 2.1.0, which code scanning of GitHub and GitLab reads: one result for each attempt that did not pass, or has advice.

A case is a rule. Results are placed at the case in its file, or at `place`, since code scanning shows nothing without a file. Failures that
a gate lets through are suppressed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from proctor.model.case import Case
from proctor.model.evidence import Json
from proctor.model.problem import NOWHERE
from proctor.model.result import CaseResult, RunResult
from proctor.model.show import shorten
from proctor.report.words.neutral import to_lines

ADVICE: Final = "advice"
"""The code of a passed assertion with a recommendation."""
_LEVELS: Final = {"fail": "error", "error": "warning"}
_LONGEST: Final = 1_000
_MOST: Final = 5_000
"""Results of one upload, by the limit of GitHub."""
_NO_FILE: Final = "proctor.yaml"


def render_sarif(run: RunResult, place: str | None = None) -> str:
    """Return the run as one document; `place` is the file of results without one."""
    results: list[dict[str, Json]] = []
    rules: dict[str, dict[str, Json]] = {}
    for result in run.cases:
        level = _find_level(result)
        if level is None or len(results) == _MOST:
            continue
        rules.setdefault(result.case.id, _make_rule(result.case))
        reasons: list[str] = [result.reason] if result.reason else []
        for entry in result.assertions:
            if entry.outcome == result.outcome and (entry.outcome != "pass" or entry.verdict.code == ADVICE):
                reasons.append(entry.verdict.with_words().reason)
        row: dict[str, Json] = {
            "ruleId": result.case.id,
            "level": level,
            "message": {"text": "\n".join(to_lines("; ".join(reasons) or result.outcome, limit=_LONGEST))},
            "locations": [_locate(result.case, run.suite_path or place or _NO_FILE)],
            "partialFingerprints": {"case/v1": f"{run.suite_name}/{result.case.id}/{result.attempt}"},
        }
        results.append(row | ({"suppressions": [{"kind": "external", "justification": run.let_through}]} if run.let_through else {}))
    driver = {"name": "proctor", "informationUri": "https://pypi.org/project/proctor-evals/", "rules": list(rules.values())}
    complete = run.incomplete is None and run.outcome != "error"
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": [{"executionSuccessful": complete}], "results": results}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _find_level(result: CaseResult) -> str | None:
    if result.outcome in _LEVELS:
        return _LEVELS[result.outcome]
    if any(verdict.code == ADVICE for verdict in result.verdicts):
        return "note" if result.case.tags.get("level") == "MAY" else "warning"
    return None


def _make_rule(case: Case) -> dict[str, Json]:
    rule: dict[str, Any] = {"id": case.id, "shortDescription": {"text": shorten(case.name or case.id, _LONGEST)}}
    return rule | ({"helpUri": case.description} if case.description.startswith(("https://", "http://")) else {})


def _locate(case: Case, file: str) -> dict[str, Json]:
    origin = next((each.origin for each in (case, *case.assertions) if each.origin.file is not None), NOWHERE)
    uri = str(origin.file or file).replace("\\", "/")
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, origin.line or 1)}}}
