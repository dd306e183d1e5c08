"""Gates: decide whether a run is good enough to pass, as MCPJam does.

A gate that cannot be decided (nothing was counted, rows do not match their definitions) never passes: the report is `incomplete`. An
invalid policy (a threshold outside 0 to 1, a scorer that is missing or has a generated id, an unknown gate) is a `usage_error`. The worst
result counts: usage error, then failed, then incomplete, then passed. Rates are fractions from 0 to 1.

Gates may compare a run with an earlier one. Rates and times are compared only if both runs measured the same: the same tests, prompted and
graded alike, each repeated equally often. Otherwise the report is `incomplete` and lists the differences. A deterministic scorer that
passed before and fails now is reported for each test, whatever else changed, if the rows of both runs match their definitions.

The pass rate has dropped if Newcombe's interval of the difference (method 10, 95 %) is below zero and the drop is not tiny.
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
    row_holds,
    score_integrity,
    suite_config_hash,
)
from proctor.model.json_values import is_finite, is_integer, is_number
from proctor.model.show import nearest, show
from proctor.scoring.intervals import Counts, Interval, newcombe

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
    """The input of gates. Made by `gate_input` from the result of a test or of a suite."""

    total: int = 0
    """Iterations."""
    passed: int = 0
    tokens: int | None = None
    """None if a model did not report them."""
    p95_ms: float | None = None
    definitions: tuple[ScoreDefinition, ...] = ()
    config_hash: str = ""
    scores: tuple[ScoreResult, ...] = ()
    score_integrity: Integrity | None = None
    cases: dict[str, CaseRun] = {}
    """By the id of the test."""


Gateable = GateInput | EvalRunResult | EvalSuiteResult


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one gate."""

    gate: str
    """Its name, with the scorer after a colon: `minimum_mean_score:tone`."""
    status: GateStatus
    message: str
    observed: float | None = None
    threshold: float | None = None


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all gates."""

    outcome: GateOutcome
    verdicts: tuple[GateVerdict, ...]
    score_integrity: Literal["valid", "invalid", "unknown"]

    @property
    def passed(self) -> bool:
        """Whether the run passes."""
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
    """Return the fraction of a pass rate in percent, as on a command line or in an older setting. Raises `ValueError` outside 0 to 100."""
    if isinstance(percent, bool) or not (is_finite(percent) and 0 <= percent <= 100):
        raise ValueError(f"expected a percentage from 0 to 100, found {show(percent)}")
    return percent / 100


# --- input of gates -----------------------------------------------------------------------------------------------------------


def gate_input(result: Gateable) -> GateInput:
    """Return the input of gates from a result."""
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
            # By hash and not by id: every test has a `tool-match`, each with different calls.
            definitions.setdefault(definition_hash(each), each)
    hashes = [run.evaluation_config.hash for _, run in runs if run.evaluation_config is not None]
    scores = tuple(row for each in iterations for row in each.scores)
    return GateInput(
        total=sum(run.iterations for _, run in runs),
        passed=sum(run.successes for _, run in runs),
        tokens=_sum_tokens(iterations),
        # Without any prompt all times are 0, and every limit would hold although nothing was measured.
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
    """Return all tokens; None if those of one prompt are unknown, because the sum would be incomplete."""
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
    """Return the gates of a policy by their Python names, and its errors. Gates that are null or false are left out."""
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
    """Return the verdict of a gate that is used incorrectly."""
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
    """Check a result against a policy: a mapping, in either spelling, or keywords. An empty policy passes.

    `minimum_pass_rate`, `maximum_total_tokens`, `maximum_p95_latency_ms`, `no_gating_score_errors`, and by the id of a scorer
    `minimum_scorer_pass_rate` and `minimum_mean_score`.
    """
    given = gate_input(result)
    gates, verdicts = read_policy(policy, more)
    for gate, value in gates.items():
        if gate in COMPARATIVE:
            verdicts.append(make_usage_error(gate, "this gate compares two runs: use evaluate_compare_gates"))
        else:
            verdicts += _SINGLE[gate](gate, given, value)
    return make_report(verdicts, given.score_integrity or "unknown")


def assert_gate(result: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Return the report of `evaluate_gates`. Raises `GateError` unless it passes."""
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
    undecided = _explain_undecided(given)
    if undecided is not None:
        return [make_undecided(gate, undecided)]
    if not given.scores:
        return [make_undecided(gate, "no row was scored")]
    gating = {definition_hash(each) for each in given.definitions if each.role == "gating"}
    errors = [row for row in given.scores if row.status == "error" and row.definition_hash in gating]
    scorer_ids = ", ".join(dict.fromkeys(row.scorer_id for row in errors))
    reason = f"{len(errors)} rows of gating scorers are errors: {scorer_ids}" if errors else "no gating scorer ended in an error"
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
        by_scorer = cast("Mapping[str, Any]", value)
        return [_decide_scorer(f"{gate}:{id}", given, id, least, figure) for id, least in by_scorer.items()]

    return decide


def _decide_scorer(
    gate: str, given: GateInput, id: str, least: Any, figure: Callable[[list[ScoreResult]], tuple[float, str] | None]
) -> GateVerdict:
    if not is_fraction(least):
        return make_usage_error(gate, f"expected a fraction from 0 to 1, found {show(least)}")
    undecided = _explain_undecided(given)
    if undecided is not None:
        return make_undecided(gate, undecided, threshold=least)
    definitions = [each for each in given.definitions if each.scorer_id == id]
    if not definitions:
        known = list(dict.fromkeys(each.scorer_id for each in given.definitions if each.id_source == "explicit"))
        return make_usage_error(gate, f"no scorer has the id {id!r}, there are {', '.join(known)}")
    if any(each.id_source == "generated" for each in definitions):
        return make_usage_error(gate, f"the id {id!r} was made up from its place in the list: give the scorer an id of its own")
    found = figure([row for row in given.scores if row.scorer_id == id])
    if found is None:
        return make_undecided(gate, "no iteration was scored by it", threshold=least)
    observed, reason = found
    return make_decided(
        gate, observed >= least, f"{reason} ({observed:.4g}), at least {least:g} is demanded", observed=observed, threshold=least
    )


def _explain_undecided(given: GateInput) -> str | None:
    """Return why the rows are not sufficient, or None."""
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


MIN_SAMPLE_SIZE: Final = 5
MIN_EFFECT_SIZE: Final = 0.01
_REGRESSION_KEYS: Final = {
    "min_sample_size": "min_sample_size",
    "minSampleSize": "min_sample_size",
    "min_effect_size": "min_effect_size",
    "minEffectSize": "min_effect_size",
}


class PassRateChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the pass rate changed, and whether it is a significant drop."""

    verdict: Literal["regression", "no_regression", "insufficient_data"]
    delta: float
    interval: Interval


class FlakyCase(msgspec.Struct, frozen=True, kw_only=True):
    """A test that passed and failed within one run."""

    case: str
    passed: int
    total: int


def assess_pass_rate_regression(
    base: Counts, compare: Counts, *, min_sample_size: int = MIN_SAMPLE_SIZE, min_effect_size: float = MIN_EFFECT_SIZE
) -> PassRateChange:
    """Return whether the pass rate dropped from `base` to `compare`."""
    delta, interval = compare.rate - base.rate, newcombe(base, compare)
    if min(base.runs, compare.runs) < max(1, min_sample_size):
        return PassRateChange(verdict="insufficient_data", delta=delta, interval=interval)
    dropped = interval.high < 0 and delta <= -min_effect_size
    return PassRateChange(verdict="regression" if dropped else "no_regression", delta=delta, interval=interval)


def detect_flaky_cases(result: Gateable) -> tuple[FlakyCase, ...]:
    """Return the tests with both outcomes, sorted by UTF-16 units. For information only: no gate uses it."""
    cases = gate_input(result).cases
    mixed = [(name, case.results) for name, case in cases.items() if len(set(case.results)) == 2]
    mixed.sort(key=lambda each: each[0].encode("utf-16-be", "surrogatepass"))
    return tuple(FlakyCase(case=name, passed=sum(results), total=len(results)) for name, results in mixed)


def evaluate_compare_gates(base: Gateable, compare: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Compare the result `compare` with the earlier `base`.

    `no_deterministic_regressions`, `maximum_p95_latency_increase_ms`, and `pass_rate_regression`: true, or a mapping with
    `min_sample_size` (5) and `min_effect_size` (0.01).
    """
    before, after = gate_input(base), gate_input(compare)
    gates, verdicts = read_policy(policy, more)
    for gate, value in gates.items():
        if gate in SINGLE:
            verdicts.append(make_usage_error(gate, "this gate looks at one run: use evaluate_gates"))
        elif gate == "pass_rate_regression":
            verdicts.append(_decide_pass_rate_change(gate, before, after, value))
        elif gate == "maximum_p95_latency_increase_ms":
            verdicts.append(_decide_latency(gate, before, after, value))
        else:
            verdicts.append(_decide_regressions(gate, before, after, value))
    return make_report(verdicts, _join_integrity(before, after))


def _decide_pass_rate_change(gate: str, before: GateInput, after: GateInput, value: object) -> GateVerdict:
    options, wrong = _read_options(value)
    if wrong is not None:
        return make_usage_error(gate, wrong)
    different = _explain_differences(before, after)
    if different:
        return make_undecided(gate, different)
    sides = Counts(before.total, before.passed), Counts(after.total, after.passed)
    found = assess_pass_rate_regression(*sides, **options)
    if found.verdict == "insufficient_data":
        reason = f"too few iterations: base {before.total}, compare {after.total}, at least {max(1, options['min_sample_size'])} are needed"
        return make_undecided(gate, reason, observed=found.delta)
    reason = f"the pass rate changed by {found.delta:+.4f} (95 % interval {found.interval.low:+.4f} to {found.interval.high:+.4f})"
    return make_decided(gate, found.verdict == "no_regression", reason, observed=found.delta)


def _read_options(value: object) -> tuple[dict[str, Any], str | None]:
    options: dict[str, Any] = {"min_sample_size": MIN_SAMPLE_SIZE, "min_effect_size": MIN_EFFECT_SIZE}
    if value is True:
        return options, None
    if not isinstance(value, Mapping):
        return options, f"expected true, or min_sample_size and min_effect_size, found {show(value)}"
    for key, given in cast("Mapping[str, object]", value).items():
        if key not in _REGRESSION_KEYS:
            close = nearest(str(key), _REGRESSION_KEYS)
            return options, f"there is no option {key!r}" + (f"; nearest: {close[0]!r}" if close else "")
        if given is not None:
            options[_REGRESSION_KEYS[key]] = given
    size = options["min_sample_size"]
    if not is_integer(size):
        return options, f"min_sample_size: expected a whole number, found {show(size)}"
    if not is_fraction(options["min_effect_size"]):
        return options, f"min_effect_size: expected a fraction from 0 to 1, found {show(options['min_effect_size'])}"
    return options, None


def _decide_latency(gate: str, before: GateInput, after: GateInput, limit: Any) -> GateVerdict:
    if not is_bound(limit):
        return make_usage_error(gate, f"expected a number of at least 0, found {show(limit)}")
    different = _explain_differences(before, after)
    if different:
        return make_undecided(gate, different, threshold=limit)
    if before.p95_ms is None or after.p95_ms is None:
        return make_undecided(gate, f"no prompt of the {'base' if before.p95_ms is None else 'compare'} run was timed", threshold=limit)
    rise = after.p95_ms - before.p95_ms
    reason = f"the 95th percentile went from {before.p95_ms:g} to {after.p95_ms:g} ms ({rise:+g}), {limit:g} more are allowed"
    return make_decided(gate, rise <= limit, reason, observed=rise, threshold=limit)


def _decide_regressions(gate: str, before: GateInput, after: GateInput, value: object) -> GateVerdict:
    if value is not True:
        return make_usage_error(gate, f"expected true or false, found {show(value)}")
    if _join_integrity(before, after) != "valid":
        return make_undecided(gate, "rows that belong to their definitions are needed on both sides")
    shared = [name for name in before.cases if name in after.cases]
    if not any(_was_graded(before.cases[name]) and _was_graded(after.cases[name]) for name in shared):
        return make_undecided(gate, "no test was graded in both runs")
    fallen = [f"{name}/{id}" for name in shared for id in _list_fallen(before.cases[name], after.cases[name])]
    reason = f"scorers that held before and do not now: {', '.join(fallen)}" if fallen else "every deterministic gating scorer still holds"
    return make_decided(gate, not fallen, reason, observed=len(fallen))


def _was_graded(case: CaseRun) -> bool:
    # Definitions without rows: nothing ran, so no regression could show.
    return case.config is not None and (bool(case.scores) or not case.config.definitions)


def _list_fallen(before: CaseRun, after: CaseRun) -> Iterable[str]:
    """Yield deterministic gating scorers, defined alike in both runs, that passed in every iteration before and fail in one now."""
    for definition in before.config.definitions if before.config is not None else ():
        if not definition.deterministic or definition.role == "advisory":
            continue
        hash = definition_hash(definition)
        then, now = ([row for row in case.scores if row.definition_hash == hash] for case in (before, after))
        # A scorer without a score before did not pass.
        had_passed = any(row.status == "scored" for row in then) and all(row_holds(definition, row) for row in then)
        if had_passed and not all(row_holds(definition, row) for row in now):
            yield definition.scorer_id


def _join_integrity(before: GateInput, after: GateInput) -> Literal["valid", "invalid", "unknown"]:
    sides = (before.score_integrity, after.score_integrity)
    if "invalid" in sides:
        return "invalid"
    return "unknown" if None in sides else "valid"


def _explain_differences(before: GateInput, after: GateInput) -> str:
    """Return the reasons why the two runs are not comparable; empty if they are."""
    found: list[str] = []
    if not before.cases or not after.cases:
        return "it is unknown which tests the runs are made of"
    unshared = sorted(set(before.cases) ^ set(after.cases))
    if unshared:
        found.append(f"tests of one run only: {', '.join(unshared)}")
    shared = [(name, before.cases[name], after.cases[name]) for name in before.cases if name in after.cases]
    changed = [name for name, then, now in shared if then.scenario_hash != now.scenario_hash]
    if changed:
        found.append(f"tests that ask for something else: {', '.join(changed)}")
    if before.config_hash != after.config_hash:
        found.append("the runs are graded differently")
    repeated = [
        f"{name} ({len(then.results)} and {len(now.results)})" for name, then, now in shared if len(then.results) != len(now.results)
    ]
    if repeated:
        found.append(f"tests that are not repeated equally often: {', '.join(repeated)}")
    return f"the runs do not measure the same: {'; '.join(found)}" if found else ""
