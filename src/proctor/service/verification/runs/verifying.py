"""From the snapshot of a task and the state after it to criterion runs, a score, axes and a verdict.

The snapshot is read as a Verial document and decided by the same engine as files are. Verial's wire knows no error: a criterion that
could not be decided is written as not passed, score 0, its details beginning with `error:`, and counts with its weight; `outcome` beside
it says `error`. A task in which that happened is never a `pass`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

import msgspec

from proctor.actions.judging.judges import OpenedJudge, open_suite_judge
from proctor.cassettes.ports import LIVE
from proctor.checks.registry import default_registry
from proctor.checks.run.unsupported import Unsupported
from proctor.errors import InputError
from proctor.formats.verial.suite import make_scoring
from proctor.model.case import Assertion, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Opinion, Question
from proctor.model.verdict import Verdict, errored
from proctor.scoring.score import decide_case_verdict, find_weighted_mean, score_case
from proctor.service.decisions.messages import SuiteSource
from proctor.service.decisions.pool import Who
from proctor.service.decisions.suite_verdicts import SuiteDecisions
from proctor.service.decisions.waiting_client import run_while_client_waits
from proctor.service.hub import Hub
from proctor.service.verification.shared.hidden_values import HiddenValues
from proctor.store.sql.compressed_json import to_json

_ORDER = ("error", "fail", "pass", "skip")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What came of verifying one task."""

    outcome: str
    """`pass`, `fail`, `error` or `skip`, as our own results have it."""
    score: float | None
    verdict: str | None
    undecided: int
    """Criteria that could not be decided; each counts 0."""
    axes: dict[str, Json]
    criteria: list[dict[str, Json]]
    """One per criterion of the snapshot, in its order: `criterion_id`, `passed`, `score`, `details`, `evidence`, `outcome`, `code`."""


async def verify(hub: Hub, snapshot: Mapping[str, Json], evidence: Evidence, *, who: Who, hidden: HiddenValues | None = None) -> Verified:
    """Verify the task of `snapshot` on `evidence`, on behalf of `who`; what is told of it does not show what is `hidden`."""
    hidden = hidden or HiddenValues()
    criteria: list[dict[str, Json]] = list(snapshot.get("criteria") or ())
    assertions, verdicts = await _decide(hub, who, snapshot, evidence, hidden)
    # Verial's wire has no word for an error, and leaving such a criterion out would raise the score of those that are left.
    wire = [_count_error_as_fail(verdict) for verdict in verdicts]
    found = score_case(assertions, wire, make_scoring(snapshot.get("threshold")))
    broken = sum(verdict.outcome == "error" and not a.advisory for a, verdict in zip(assertions, verdicts, strict=True))
    return Verified(
        outcome="error" if broken else found.outcome,
        score=found.score,
        verdict=_never_pass(found.verdict, snapshot.get("threshold")) if broken else found.verdict,
        undecided=broken,
        axes=msgspec.to_builtins(found.axes or {}),
        criteria=[hidden.hide_told(_show_criterion(entry, verdict)) for entry, verdict in zip(criteria, verdicts, strict=True)],
    )


def score_run(tasks: Sequence[Mapping[str, Json]], threshold: float | None = None) -> dict[str, Json]:
    """Return score (the plain mean), verdict and outcome of a benchmark run from its finished task runs."""
    scores = [task["score"] for task in tasks if task.get("score") is not None]
    score = find_weighted_mean((score, 1.0) for score in scores)
    verdict = None if score is None else decide_case_verdict(score, make_scoring(threshold))
    outcomes = {task.get("outcome") for task in tasks}
    outcome = next((word for word in _ORDER if word in outcomes), None)
    return {"score": score, "verdict": _never_pass(verdict, threshold) if outcome == "error" else verdict, "outcome": outcome}


def _never_pass(verdict: str | None, threshold: float | None) -> str | None:
    # Where there is a threshold there is nothing between pass and fail.
    return ("partial" if threshold is None else "fail") if verdict == "pass" else verdict


async def _decide(
    hub: Hub, who: Who, snapshot: Mapping[str, Json], evidence: Evidence, hidden: HiddenValues
) -> tuple[Sequence[Assertion], Sequence[Verdict]]:
    criteria: list[Json] = list(snapshot.get("criteria") or ())
    source = _make_source(snapshot)
    try:
        suite = await asyncio.to_thread(source.read)
        case = suite.cases[0]
    except (InputError, IndexError) as error:
        # Only a snapshot that was written by somebody else comes here: what is kept through the service has been read before.
        verdict = errored("unusable_spec", f"the snapshot cannot be read: {str(error).splitlines()[0]}")
        return [Assertion(check="unsupported", spec=Unsupported(reason=verdict.reason))] * len(criteria), [verdict] * len(criteria)
    registry = default_registry()
    opened = _open_judge(hub, suite) if any(registry.get(a.check).judged for a in case.assertions) else None
    decisions = SuiteDecisions(hub.decisions, who, source, suite.cases)
    # Whoever completes a task waits for the answer; if the client leaves, deciding ends with it.
    if opened is None:
        result = await run_while_client_waits(decisions.decide_one(case, evidence, clock=hub.now()))
    else:
        judge = opened.judge

        async def ask(questions: tuple[Question, ...]) -> Sequence[Opinion]:
            # A model belongs to somebody else: it is shown no more than what is kept.
            shown = tuple(_hide_in_question(question, hidden) for question in questions)
            return await judge.judge(shown, case=case.id, attempt=0, tape=LIVE)

        try:
            result = await run_while_client_waits(decisions.decide_one(case, evidence, clock=hub.now(), ask=ask))
        finally:
            await judge.close()
    return case.assertions, result.verdicts


def _hide_in_question(question: Question, hidden: HiddenValues) -> Question:
    if not hidden:
        return question
    material = question.material
    subject, context = (hidden.hide(msgspec.to_builtins(part)) for part in (material.subject, material.context))
    return msgspec.structs.replace(question, material=msgspec.structs.replace(material, subject=subject, context=context))


def _make_source(snapshot: Mapping[str, Json]) -> SuiteSource:
    task = {name: snapshot[name] for name in ("id", "name", "entities") if snapshot.get(name) is not None}
    item: Json = snapshot.get("task_item")
    if isinstance(item, dict) and isinstance(item.get("instruction"), str):
        # What the agent was asked; a judge wants to know.
        task["instruction"] = item["instruction"]
    text = to_json({"task": task, "criteria": snapshot.get("criteria") or []}).decode()
    return SuiteSource(text=text, dialect="verial", name=str(snapshot.get("name") or "task"))


def _open_judge(hub: Hub, suite: Suite) -> OpenedJudge | None:
    try:
        return open_suite_judge(suite, hub.settings.home, os.environ)
    except InputError:
        # A judge that cannot work is none: what needs one is an error that says so.
        return None


def _count_error_as_fail(verdict: Verdict) -> Verdict:
    return Verdict("fail", 0.0, verdict.reason) if verdict.outcome == "error" else verdict


def _show_criterion(criterion: Mapping[str, Json], verdict: Verdict) -> dict[str, Json]:
    # A traceback shows our code and its values; it belongs into the log of the server, not to whoever wrote the criterion.
    evidence = {name: value for name, value in verdict.details.items() if name != "traceback"}
    if verdict.pointers:
        evidence["pointers"] = list(verdict.pointers)
    return {
        "criterion_id": criterion["id"],
        "passed": verdict.outcome == "pass",
        "score": verdict.score if verdict.outcome in ("pass", "fail") else 0.0,
        "details": f"error: {verdict.reason}" if verdict.outcome == "error" else verdict.reason,
        "evidence": evidence or None,
        "outcome": verdict.outcome,
        "code": verdict.code,
    }
