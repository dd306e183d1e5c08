"""Gates: decide whether a run is good enough to be let through, as MCPJam does.

A gate that cannot be decided (nothing was counted, rows that do not belong to their definitions) is never passed: the report is
`incomplete`. A policy that cannot be used (a threshold outside 0 to 1, a scorer that is not there or has a made-up id, an unknown gate) is
a `usage_error`. In a report the worst counts: usage error, then failed, then incomplete, then passed. Rates are fractions from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from proctor.evals.grading.results import EvalRunResult, EvalSuiteResult, IterationResult
from proctor.evals.grading.score_rows import (
    EvaluationConfig,
    Integrity,
    ScoreDefinition,
    ScoreResult,
    definition_hash,
    evaluation_config_hash,
    is_fraction,
    score_integrity,
    suite_config_hash,
)
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import nearest, show

GateStatus = Literal["passed", "failed", "non_gateable", "usage_error"]
GateOutcome = Literal["passed", "failed", "incomplete", "usage_error"]


class CaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """One test in one run."""

    results: tuple[bool, ...] = ()
    """Which iterations passed, in order."""
    scenario_hash: str = ""
    config: EvaluationConfig | None = None
    scores: tuple[ScoreResult, ...] = ()


class GateInput(msgspec.Struct, frozen=True, kw_only=True):
    """What gates look at. Made by `gate_input` out of the result of a test or of a suite."""

    total: int = 0
    """Iterations."""
    passed: int = 0
    tokens: int | None = None
    """Nothing where a model did not say."""
    p95_ms: float | None = None
    definitions: tuple[ScoreDefinition, ...] = ()
    config_hash: str = ""
    scores: tuple[ScoreResult, ...] = ()
    score_integrity: Integrity | None = None
    cases: dict[str, CaseRun] = {}
    """By the id of the test."""


Gateable = GateInput | EvalRunResult | EvalSuiteResult


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one gate."""

    gate: str
    """Its name, with the scorer after a colon: `minimum_mean_score:tone`."""
    status: GateStatus
    message: str
    observed: float | None = None
    threshold: float | None = None


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of all gates."""

    outcome: GateOutcome
    verdicts: tuple[GateVerdict, ...]
    score_integrity: Literal["valid", "invalid", "unknown"]

    @property
    def passed(self) -> bool:
        """Whether the run is let through."""
        return self.outcome == "passed"

    def __str__(self) -> str:
        """One line per gate."""
        return "\n".join([f"gates: {self.outcome}", *(f"  {each.status}  {each.gate}: {each.message}" for each in self.verdicts)])


class GateError(AssertionError):
    """A run that was rejected; `report` names the gate."""

    def __init__(self, report: GateReport) -> None:
        self.report = report
        super().__init__(str(report))


def pass_rate_fraction_from_percent(percent: float) -> float:
    """Return a pass rate of a command line or an older setting, where 80 means 0.8. Raises `ValueError` outside 0 to 100."""
    if isinstance(percent, bool) or not (is_finite(percent) and 0 <= percent <= 100):
        raise ValueError(f"expected a percentage from 0 to 100, found {show(percent)}")
    return percent / 100


# --- what is looked at --------------------------------------------------------------------------------------------------------


def gate_input(result: Gateable) -> GateInput:
    """Return what gates look at in a result."""
    if isinstance(result, GateInput):
        return result
    if isinstance(result, EvalSuiteResult):
        return _make_input(list(result.tests.items()), result.aggregate.latency.e2e.p95, suite=True)
    return _make_input([("", result)], result.latency.e2e.p95, suite=False)


def _make_input(runs: list[tuple[str, EvalRunResult]], p95_ms: float, *, suite: bool) -> GateInput:
    iterations = [each for _, run in runs for each in run.iteration_details]
    definitions: dict[str, ScoreDefinition] = {}
    for _, run in runs:
        for each in run.evaluation_config.definitions if run.evaluation_config is not None else ():
            # By hash and not by id: every test has a `tool-match`, and each grades by other calls.
            definitions.setdefault(definition_hash(each), each)
    hashes = [run.evaluation_config.hash for _, run in runs if run.evaluation_config is not None]
    scores = tuple(row for each in iterations for row in each.scores)
    return GateInput(
        total=sum(run.iterations for _, run in runs),
        passed=sum(run.successes for _, run in runs),
        tokens=_sum_tokens(iterations),
        # Without a single prompt all times are 0, and every limit would hold although nothing was measured.
        p95_ms=p95_ms if any(each.prompts for each in iterations) else None,
        definitions=tuple(definitions.values()),
        config_hash=suite_config_hash(hashes) if suite else hashes[0] if hashes else evaluation_config_hash(()),
        scores=scores,
        score_integrity=score_integrity(scores, definitions.values()),
        cases={run.case_id or name: _make_case(run) for name, run in runs},
    )


def _make_case(run: EvalRunResult) -> CaseRun:
    return CaseRun(
        results=run.results,
        scenario_hash=run.scenario_hash,
        config=run.evaluation_config,
        scores=tuple(row for each in run.iteration_details for row in each.scores),
    )


def _sum_tokens(iterations: list[IterationResult]) -> int | None:
    """Return all tokens; None where one prompt does not say, because a sum that lacks a part is no sum."""
    if not iterations or any(prompt.evidence.usage is None for each in iterations for prompt in each.prompts):
        return None
    return sum(each.tokens.total for each in iterations)


# --- policies -----------------------------------------------------------------------------------------------------------------

COMPARATIVE: Final = ("no_deterministic_regressions", "maximum_p95_latency_increase_ms", "pass_rate_regression")
SINGLE: Final = (
    "minimum_pass_rate",
    "maximum_total_tokens",
    "maximum_p95_latency_ms",
    "no_gating_score_errors",
    "minimum_scorer_pass_rate",
    "minimum_mean_score",
)
_SWITCHES: Final = ("no_gating_score_errors", "no_deterministic_regressions", "pass_rate_regression")
GATES: Final = (*SINGLE, *COMPARATIVE)
_CAMEL: Final = {
    "minimumPassRate": "minimum_pass_rate",
    "maximumTotalTokens": "maximum_total_tokens",
    "maximumP95LatencyMs": "maximum_p95_latency_ms",
    "noGatingScoreErrors": "no_gating_score_errors",
    "minimumScorerPassRate": "minimum_scorer_pass_rate",
    "minimumMeanScore": "minimum_mean_score",
    "noDeterministicRegressions": "no_deterministic_regressions",
    "maximumP95LatencyIncreaseMs": "maximum_p95_latency_increase_ms",
    "passRateRegression": "pass_rate_regression",
}


def read_policy(policy: Mapping[str, object] | None, more: Mapping[str, object]) -> tuple[dict[str, object], list[GateVerdict]]:
    """Return the gates of a policy by their Python names, and what is wrong with it. A null gate and a switch that is off are left out."""
    given: dict[str, object] = {}
    wrong: list[GateVerdict] = []
    for spelling, value in {**(policy or {}), **more}.items():
        gate = _CAMEL.get(spelling, spelling)
        if gate not in GATES:
            close = nearest(gate, GATES)
            wrong.append(make_usage_error(gate, "there is no such gate" + (f"; nearest: {close[0]!r}" if close else "")))
        elif value is not None and not (value is False and gate in _SWITCHES):
            given[gate] = value
    return given, wrong


def make_usage_error(gate: str, message: str) -> GateVerdict:
    """Return the verdict of a gate that is not used rightly."""
    return GateVerdict(gate=gate, status="usage_error", message=message)


def make_undecided(gate: str, message: str, *, threshold: float | None = None, observed: float | None = None) -> GateVerdict:
    """Return the verdict of a gate that cannot be decided."""
    return GateVerdict(gate=gate, status="non_gateable", message=message, threshold=threshold, observed=observed)


def make_decided(gate: str, holds: bool, message: str, *, observed: float, threshold: float | None = None) -> GateVerdict:
    """Return the verdict of a gate that could be decided."""
    return GateVerdict(gate=gate, status="passed" if holds else "failed", message=message, observed=observed, threshold=threshold)


def make_report(verdicts: Iterable[GateVerdict], integrity: Literal["valid", "invalid", "unknown"]) -> GateReport:
    """Return the report of all verdicts: the worst counts."""
    listed = tuple(verdicts)
    found = {each.status for each in listed}
    outcome: GateOutcome = "incomplete" if "non_gateable" in found else "passed"
    if "usage_error" in found:
        outcome = "usage_error"
    elif "failed" in found:
        outcome = "failed"
    return GateReport(outcome=outcome, verdicts=listed, score_integrity=integrity)


def is_bound(value: object) -> bool:
    """Return whether a value is a limit: a number of at least 0."""
    return is_number(value) and value >= 0 and value != math.inf


# --- one run ------------------------------------------------------------------------------------------------------------------


def evaluate_gates(result: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Hold a result against a policy: a mapping, in either spelling, or keywords. An empty policy is passed.

    `minimum_pass_rate`, `maximum_total_tokens`, `maximum_p95_latency_ms`, `no_gating_score_errors`, and by the id of a scorer
    `minimum_scorer_pass_rate` and `minimum_mean_score`.
    """
    given = gate_input(result)
    wanted, verdicts = read_policy(policy, more)
    for gate, value in wanted.items():
        if gate in COMPARATIVE:
            verdicts.append(make_usage_error(gate, "this gate compares two runs: use evaluate_compare_gates"))
        else:
            verdicts += _SINGLE[gate](gate, given, value)
    return make_report(verdicts, given.score_integrity or "unknown")


def assert_gate(result: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Return the report of `evaluate_gates`. Raises `GateError` unless it is passed."""
    report = evaluate_gates(result, policy, **more)
    if not report.passed:
        raise GateError(report)
    return report


def _decide_pass_rate(gate: str, given: GateInput, value: Any) -> list[GateVerdict]:
    if not is_fraction(value):
        return [make_usage_error(gate, f"expected a fraction from 0 to 1, found {show(value)}")]
    if given.total <= 0:
        return [make_undecided(gate, "there were no iterations", threshold=value)]
    rate = given.passed / given.total
    reason = f"{given.passed} of {given.total} iterations passed ({rate:.4g}), at least {value:g} must"
    return [make_decided(gate, rate >= value, reason, observed=rate, threshold=value)]


def _decide_total_tokens(gate: str, given: GateInput, value: Any) -> list[GateVerdict]:
    return [_decide_at_most(gate, given.tokens, value, "tokens were spent", "a prompt has no token counts")]


def _decide_p95(gate: str, given: GateInput, value: Any) -> list[GateVerdict]:
    return [_decide_at_most(gate, given.p95_ms, value, "ms is the 95th percentile of the prompts", "no prompt was timed")]


def _decide_at_most(gate: str, found: float | None, limit: Any, what: str, unknown: str) -> GateVerdict:
    if not is_bound(limit):
        return make_usage_error(gate, f"expected a number of at least 0, found {show(limit)}")
    if found is None:
        return make_undecided(gate, unknown, threshold=limit)
    return make_decided(gate, found <= limit, f"{found:g} {what}, at most {limit:g} are allowed", observed=found, threshold=limit)


def _decide_no_score_errors(gate: str, given: GateInput, value: Any) -> list[GateVerdict]:
    if value is not True:
        return [make_usage_error(gate, f"expected true or false, found {show(value)}")]
    why = _explain_undecided(given)
    if why is not None:
        return [make_undecided(gate, why)]
    if not given.scores:
        return [make_undecided(gate, "no row was scored")]
    gating = {definition_hash(each) for each in given.definitions if each.role == "gating"}
    errors = [row for row in given.scores if row.status == "error" and row.definition_hash in gating]
    named = ", ".join(dict.fromkeys(row.scorer_id for row in errors))
    reason = f"{len(errors)} rows of gating scorers are errors: {named}" if errors else "no gating scorer ended in an error"
    return [make_decided(gate, not errors, reason, observed=len(errors))]


def _compute_pass_rate(rows: list[ScoreResult]) -> tuple[float, str] | None:
    applicable = [row for row in rows if row.status != "not_applicable"]
    if not applicable:
        return None
    passed = sum(row.passed is True for row in applicable)
    return passed / len(applicable), f"{passed} of {len(applicable)} rows passed"


def _compute_mean_score(rows: list[ScoreResult]) -> tuple[float, str] | None:
    values = [row.value for row in rows if row.status == "scored" and row.value is not None]
    return (math.fsum(values) / len(values), f"the mean of {len(values)} scores") if values else None


def _decide_per_scorer(
    figure: Callable[[list[ScoreResult]], tuple[float, str] | None],
) -> Callable[[str, GateInput, Any], list[GateVerdict]]:
    def decide(gate: str, given: GateInput, value: Any) -> list[GateVerdict]:
        if not isinstance(value, Mapping):
            return [make_usage_error(gate, f"expected a fraction for each id of a scorer, found {show(value)}")]
        named = cast("Mapping[str, Any]", value)
        return [_decide_scorer(f"{gate}:{id}", given, id, least, figure) for id, least in named.items()]

    return decide


def _decide_scorer(
    gate: str, given: GateInput, id: str, least: Any, figure: Callable[[list[ScoreResult]], tuple[float, str] | None]
) -> GateVerdict:
    if not is_fraction(least):
        return make_usage_error(gate, f"expected a fraction from 0 to 1, found {show(least)}")
    why = _explain_undecided(given)
    if why is not None:
        return make_undecided(gate, why, threshold=least)
    own = [each for each in given.definitions if each.scorer_id == id]
    if not own:
        known = list(dict.fromkeys(each.scorer_id for each in given.definitions if each.id_source == "explicit"))
        return make_usage_error(gate, f"no scorer has the id {id!r}, there are {', '.join(known)}")
    if any(each.id_source == "generated" for each in own):
        return make_usage_error(gate, f"the id {id!r} was made up from its place in the list: give the scorer an id of its own")
    found = figure([row for row in given.scores if row.scorer_id == id])
    if found is None:
        return make_undecided(gate, "no iteration was scored by it", threshold=least)
    observed, reason = found
    return make_decided(
        gate, observed >= least, f"{reason} ({observed:.4g}), at least {least:g} is demanded", observed=observed, threshold=least
    )


def _explain_undecided(given: GateInput) -> str | None:
    """Return why the rows decide nothing, or None."""
    if not given.definitions:
        return "the run has no grading definitions"
    if given.score_integrity == "invalid":
        return "the rows of the run do not belong to its definitions"
    return None if given.score_integrity == "valid" else "the rows of the run were not checked against its definitions"


_SINGLE: Final[dict[str, Callable[[str, GateInput, Any], list[GateVerdict]]]] = {
    "minimum_pass_rate": _decide_pass_rate,
    "maximum_total_tokens": _decide_total_tokens,
    "maximum_p95_latency_ms": _decide_p95,
    "no_gating_score_errors": _decide_no_score_errors,
    "minimum_scorer_pass_rate": _decide_per_scorer(_compute_pass_rate),
    "minimum_mean_score": _decide_per_scorer(_compute_mean_score),
}
