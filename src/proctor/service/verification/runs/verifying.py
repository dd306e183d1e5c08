"""Verifies a task: from its snapshot and end state to criterion runs, score, axes and verdict.

The snapshot is read as a Verial document and decided like files. Verial has no error outcome: a criterion that could not be decided is not
passed, with score 0, its weight, and details that start with `error:`; our `outcome` is `error`. Such a task is never a `pass`.
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
from proctor.service.decisions.pool import Requester, run_while_client_waits
from proctor.service.decisions.suite_verdicts import SuiteDecisions
from proctor.service.hub import Hub
from proctor.service.verification.shared.hidden_values import HiddenValues
from proctor.store.sql.compressed_json import to_json

_ORDER = ("error", "fail", "pass", "skip")


class VerifiedTask(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying one task."""

    outcome: str
    """`pass`, `fail`, `error` or `skip`."""
    score: float | None
    verdict: str | None
    undecided: int
    """Criteria that could not be decided; each counts 0."""
    axes: dict[str, Json]
    criteria: list[dict[str, Json]]
    """One per criterion of the snapshot, in order: `criterion_id`, `passed`, `score`, `details`, `evidence`, `outcome`, `code`."""


async def verify(
    hub: Hub, snapshot: Mapping[str, Json], evidence: Evidence, *, who: Requester, hidden: HiddenValues | None = None
) -> VerifiedTask:
    """Verify the task of `snapshot` on `evidence` for `who`; results do not show `hidden` values."""
    hidden = hidden or HiddenValues()
    criteria: list[dict[str, Json]] = list(snapshot.get("criteria") or ())
    assertions, verdicts = await _decide(hub, who, snapshot, evidence, hidden)
    # Omitting an undecided criterion would raise the score of the others.
    counted = [(Verdict("fail", 0.0, verdict.reason) if verdict.outcome == "error" else verdict) for verdict in verdicts]
    case_score = score_case(assertions, counted, make_scoring(snapshot.get("threshold")))
    undecided = sum(verdict.outcome == "error" and not a.advisory for a, verdict in zip(assertions, verdicts, strict=True))
    return VerifiedTask(
        outcome="error" if undecided else case_score.outcome,
        score=case_score.score,
        verdict=_never_pass(case_score.verdict, snapshot.get("threshold")) if undecided else case_score.verdict,
        undecided=undecided,
        axes=msgspec.to_builtins(case_score.axes or {}),
        criteria=[hidden.hide_result(_show_criterion(entry, verdict)) for entry, verdict in zip(criteria, verdicts, strict=True)],
    )


def score_run(tasks: Sequence[Mapping[str, Json]], threshold: float | None = None) -> dict[str, Json]:
    """Return mean score, verdict and outcome of a benchmark run from its finished task runs."""
    scores = [task["score"] for task in tasks if task.get("score") is not None]
    score = find_weighted_mean((score, 1.0) for score in scores)
    verdict = None if score is None else decide_case_verdict(score, make_scoring(threshold))
    outcomes = {task.get("outcome") for task in tasks}
    outcome = next((each for each in _ORDER if each in outcomes), None)
    return {"score": score, "verdict": _never_pass(verdict, threshold) if outcome == "error" else verdict, "outcome": outcome}


def _never_pass(verdict: str | None, threshold: float | None) -> str | None:
    # With a threshold there is no partial verdict.
    return ("partial" if threshold is None else "fail") if verdict == "pass" else verdict


async def _decide(
    hub: Hub, who: Requester, snapshot: Mapping[str, Json], evidence: Evidence, hidden: HiddenValues
) -> tuple[Sequence[Assertion], Sequence[Verdict]]:
    criteria: list[Json] = list(snapshot.get("criteria") or ())
    task = {name: snapshot[name] for name in ("id", "name", "entities") if snapshot.get(name) is not None}
    item: Json = snapshot.get("task_item")
    if isinstance(item, dict) and isinstance(item.get("instruction"), str):
        # The input of the agent, for a judge.
        task["instruction"] = item["instruction"]
    text = to_json({"task": task, "criteria": snapshot.get("criteria") or []}).decode()
    source = SuiteSource(text=text, dialect="verial", name=str(snapshot.get("name") or "task"))
    try:
        suite = await asyncio.to_thread(source.read)
        case = suite.cases[0]
    except (InputError, IndexError) as error:
        # Only for snapshots not written through the service, which checks them.
        verdict = errored("unusable_spec", f"the snapshot cannot be read: {str(error).splitlines()[0]}")
        return [Assertion(check="unsupported", spec=Unsupported(reason=verdict.reason))] * len(criteria), [verdict] * len(criteria)
    registry = default_registry()
    opened = _open_judge(hub, suite) if any(registry.get(a.check).judged for a in case.assertions) else None
    decisions = SuiteDecisions(hub.decisions, who, source, suite.cases)
    # If the client disconnects, deciding ends.
    if opened is None:
        result = await run_while_client_waits(decisions.decide_one(case, evidence, clock=hub.now()))
    else:
        judge = opened.judge

        async def ask(questions: tuple[Question, ...]) -> Sequence[Opinion]:
            # The model is external: it gets only redacted material.
            shown = [_hide_in_question(question, hidden) for question in questions] if hidden else questions
            return await judge.judge(shown, case=case.id, attempt=0, tape=LIVE)

        try:
            result = await run_while_client_waits(decisions.decide_one(case, evidence, clock=hub.now(), ask=ask))
        finally:
            await judge.close()
    return case.assertions, result.verdicts


def _hide_in_question(question: Question, hidden: HiddenValues) -> Question:
    material = question.material
    subject, context = (hidden.hide(msgspec.to_builtins(part)) for part in (material.subject, material.context))
    return msgspec.structs.replace(question, material=msgspec.structs.replace(material, subject=subject, context=context))


def _open_judge(hub: Hub, suite: Suite) -> OpenedJudge | None:
    try:
        return open_suite_judge(suite, hub.settings.home, os.environ)
    except InputError:
        # Without a usable judge, its assertions are errors.
        return None


def _show_criterion(criterion: Mapping[str, Json], verdict: Verdict) -> dict[str, Json]:
    # A traceback shows our code and values, and belongs in the log.
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
