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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from proctor.evals.agents.camel_case import to_camel
from proctor.evals.grading.results import EvalRunResult, EvalSuiteResult
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
from proctor.model.show import show, suggest_one
from proctor.scoring.intervals import Counts, newcombe

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
    score_integrity: Integrity = "valid"
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
    score_integrity: Integrity

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


def gate_input(result: Gateable) -> GateInput:
    """Return the input of gates from a result."""
    if isinstance(result, GateInput):
        return result
    if isinstance(result, EvalSuiteResult):
        return _make_input(list(result.tests.items()), result.aggregate.latency.e2e.p95, suite=True)
    return _make_input([("", result)], result.latency.e2e.p95, suite=False)


def _make_input(runs: list[tuple[str, EvalRunResult]], p95_ms: float, *, suite: bool) -> GateInput:
    iterations = [iteration for _, run in runs for iteration in run.iteration_details]
    evidence = [prompt.evidence for iteration in iterations for prompt in iteration.prompts]
    definitions: dict[str, ScoreDefinition] = {}
    for _, run in runs:
        for definition in run.evaluation_config.definitions if run.evaluation_config is not None else ():
            # By hash and not by id: every test has a `tool-match`, each with different calls.
            definitions.setdefault(definition_hash(definition), definition)
    hashes = [run.evaluation_config.hash for _, run in runs if run.evaluation_config is not None]
    scores = tuple(row for iteration in iterations for row in iteration.scores)
    knows_tokens = bool(iterations) and all(each.usage is not None for each in evidence)
    return GateInput(
        total=sum(run.iterations for _, run in runs),
        passed=sum(run.successes for _, run in runs),
        # Unknown if those of one prompt are, because the sum would be incomplete.
        tokens=sum(iteration.tokens.total for iteration in iterations) if knows_tokens else None,
        # Without any prompt all times are 0, and every limit would hold although nothing was measured.
        p95_ms=p95_ms if any(iteration.prompts for iteration in iterations) else None,
        definitions=tuple(definitions.values()),
        config_hash=suite_config_hash(hashes) if suite else hashes[0] if hashes else evaluation_config_hash(()),
        scores=scores,
        score_integrity=score_integrity(scores, definitions.values()),
        cases={
            run.case_id or name: CaseRun(
                results=run.results,
                scenario_hash=run.scenario_hash,
                config=run.evaluation_config,
                scores=tuple(row for iteration in run.iteration_details for row in iteration.scores),
            )
            for name, run in runs
        },
    )


class _Misused(Exception):
    """A gate with an invalid value."""


class _Undecided(Exception):
    """A gate that cannot be decided."""

    def __init__(self, message: str, observed: float | None = None) -> None:
        super().__init__(message)
        self.observed = observed


class _Finding(NamedTuple):
    holds: bool
    message: str
    observed: float


def _apply_gate(gate: str, value: object, decide: Callable[[Any], _Finding]) -> GateVerdict:
    """Return the verdict of a gate; `decide` raises if its value is invalid or the run is not enough to decide it."""
    threshold = value if is_number(value) else None
    try:
        holds, message, observed = decide(value)
    except _Misused as error:
        return GateVerdict(gate=gate, status="usage_error", message=str(error))
    except _Undecided as error:
        return GateVerdict(gate=gate, status="non_gateable", message=str(error), observed=error.observed, threshold=threshold)
    return GateVerdict(gate=gate, status="passed" if holds else "failed", message=message, observed=observed, threshold=threshold)


def _evaluate(policy: Mapping[str, object], runs: Sequence[GateInput], others: str, integrity: Integrity) -> GateReport:
    """Return the report about one run or two; `others` is why a gate of the other kind cannot be decided. The worst verdict counts."""
    verdicts: list[GateVerdict] = []
    for spelling, value in policy.items():
        name = next((known for known in _GATES if spelling == to_camel(known)), spelling)
        gate = _GATES.get(name)
        wrong: str | None = None
        if gate is None:
            wrong = f"there is no such gate{suggest_one(name, _GATES)}"
        elif value is None or (value is False and gate.is_switch):
            continue
        elif gate.runs != len(runs):
            wrong = others
        elif gate.is_by_scorer and not isinstance(value, Mapping):
            wrong = f"expected a fraction for each id of a scorer, found {show(value)}"
        elif gate.is_by_scorer:
            by_scorer = cast("Mapping[str, Any]", value)
            verdicts += [_apply_gate(f"{name}:{id}", least, partial(gate.decide, *runs, id)) for id, least in by_scorer.items()]
        else:
            verdicts.append(_apply_gate(name, value, partial(gate.decide, *runs)))
        if wrong is not None:
            verdicts.append(GateVerdict(gate=name, status="usage_error", message=wrong))
    statuses = {verdict.status for verdict in verdicts}
    outcome: GateOutcome = "incomplete" if "non_gateable" in statuses else "passed"
    if "usage_error" in statuses:
        outcome = "usage_error"
    elif "failed" in statuses:
        outcome = "failed"
    return GateReport(outcome=outcome, verdicts=tuple(verdicts), score_integrity=integrity)


def _require_fraction(value: object) -> None:
    if not (is_number(value) and is_fraction(value)):
        raise _Misused(f"expected a fraction from 0 to 1, found {show(value)}")


def _require_limit(value: object) -> None:
    if not (is_number(value) and 0 <= value < math.inf):
        raise _Misused(f"expected a number of at least 0, found {show(value)}")


def _require_true(value: object) -> None:
    if value is not True:
        raise _Misused(f"expected true or false, found {show(value)}")


def evaluate_gates(result: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Check a result against a policy: a mapping, in either spelling, or keywords. An empty policy passes.

    `minimum_pass_rate`, `maximum_total_tokens`, `maximum_p95_latency_ms`, `no_gating_score_errors`, and by the id of a scorer
    `minimum_scorer_pass_rate` and `minimum_mean_score`.
    """
    inputs = gate_input(result)
    others = "this gate compares two runs: use evaluate_compare_gates"
    return _evaluate({**(policy or {}), **more}, [inputs], others, inputs.score_integrity)


def assert_gate(result: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Return the report of `evaluate_gates`. Raises `GateError` unless it passes."""
    report = evaluate_gates(result, policy, **more)
    if not report.passed:
        raise GateError(report)
    return report


def _decide_pass_rate(inputs: GateInput, least: Any) -> _Finding:
    _require_fraction(least)
    if inputs.total <= 0:
        raise _Undecided("there were no iterations")
    rate = inputs.passed / inputs.total
    return _Finding(rate >= least, f"{inputs.passed} of {inputs.total} iterations passed ({rate:.4g}), at least {least:g} must", rate)


def _decide_at_most(figure: float | None, limit: Any, what: str, unknown: str) -> _Finding:
    _require_limit(limit)
    if figure is None:
        raise _Undecided(unknown)
    return _Finding(figure <= limit, f"{figure:g} {what}, at most {limit:g} are allowed", figure)


def _decide_no_score_errors(inputs: GateInput, value: Any) -> _Finding:
    _require_true(value)
    _require_rows(inputs)
    if not inputs.scores:
        raise _Undecided("no row was scored")
    gating = {definition_hash(definition) for definition in inputs.definitions if definition.role == "gating"}
    errors = [row for row in inputs.scores if row.status == "error" and row.definition_hash in gating]
    scorer_ids = ", ".join(dict.fromkeys(row.scorer_id for row in errors))
    reason = f"{len(errors)} rows of gating scorers are errors: {scorer_ids}" if errors else "no gating scorer ended in an error"
    return _Finding(not errors, reason, len(errors))


def _compute_pass_rate(rows: list[ScoreResult]) -> tuple[float, str] | None:
    applicable = [row for row in rows if row.status != "not_applicable"]
    if not applicable:
        return None
    passed = sum(row.passed is True for row in applicable)
    return passed / len(applicable), f"{passed} of {len(applicable)} rows passed"


def _compute_mean_score(rows: list[ScoreResult]) -> tuple[float, str] | None:
    values = [row.value for row in rows if row.status == "scored" and row.value is not None]
    return (math.fsum(values) / len(values), f"the mean of {len(values)} scores") if values else None


def _decide_scorer(figure: Callable[[list[ScoreResult]], tuple[float, str] | None], inputs: GateInput, id: str, least: Any) -> _Finding:
    _require_fraction(least)
    _require_rows(inputs)
    definitions = [definition for definition in inputs.definitions if definition.scorer_id == id]
    if not definitions:
        known = list(dict.fromkeys(definition.scorer_id for definition in inputs.definitions if definition.id_source == "explicit"))
        raise _Misused(f"no scorer has the id {id!r}, there are {', '.join(known)}")
    if any(definition.id_source == "generated" for definition in definitions):
        raise _Misused(f"the id {id!r} was made up from its place in the list: give the scorer an id of its own")
    result = figure([row for row in inputs.scores if row.scorer_id == id])
    if result is None:
        raise _Undecided("no iteration was scored by it")
    observed, reason = result
    return _Finding(observed >= least, f"{reason} ({observed:.4g}), at least {least:g} is demanded", observed)


def _require_rows(inputs: GateInput) -> None:
    """Raise `_Undecided` unless the rows belong to their definitions."""
    if not inputs.definitions:
        raise _Undecided("the run has no grading definitions")
    if inputs.score_integrity == "invalid":
        raise _Undecided("the rows of the run do not belong to its definitions")


MIN_SAMPLE_SIZE: Final = 5
MIN_EFFECT_SIZE: Final = 0.01


class FlakyCase(msgspec.Struct, frozen=True, kw_only=True):
    """A test that passed and failed within one run."""

    case: str
    passed: int
    total: int


def detect_flaky_cases(result: Gateable) -> tuple[FlakyCase, ...]:
    """Return the tests with both outcomes, sorted by UTF-16 units. For information only: no gate uses it."""
    cases = gate_input(result).cases
    mixed = [(name, case.results) for name, case in cases.items() if len(set(case.results)) == 2]
    mixed.sort(key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
    return tuple(FlakyCase(case=name, passed=sum(results), total=len(results)) for name, results in mixed)


def evaluate_compare_gates(base: Gateable, compare: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Compare the result `compare` with the earlier `base`.

    `no_deterministic_regressions`, `maximum_p95_latency_increase_ms`, and `pass_rate_regression`: true, or a mapping with
    `min_sample_size` (5) and `min_effect_size` (0.01).
    """
    before, after = gate_input(base), gate_input(compare)
    others = "this gate looks at one run: use evaluate_gates"
    integrity = before.score_integrity if after.score_integrity == "valid" else "invalid"
    return _evaluate({**(policy or {}), **more}, [before, after], others, integrity)


def _decide_pass_rate_change(before: GateInput, after: GateInput, value: object) -> _Finding:
    options: dict[str, Any] = {"min_sample_size": MIN_SAMPLE_SIZE, "min_effect_size": MIN_EFFECT_SIZE}
    if value is not True and not isinstance(value, Mapping):
        raise _Misused(f"expected true, or min_sample_size and min_effect_size, found {show(value)}")
    spellings = {**{to_camel(name): name for name in options}, **{name: name for name in options}}
    for key, given in cast("Mapping[str, object]", value).items() if value is not True else ():
        if key not in spellings:
            raise _Misused(f"there is no option {key!r}" + suggest_one(str(key), spellings))
        if given is not None:
            options[spellings[key]] = given
    if not is_integer(options["min_sample_size"]):
        raise _Misused(f"min_sample_size: expected a whole number, found {show(options['min_sample_size'])}")
    if not is_fraction(options["min_effect_size"]):
        raise _Misused(f"min_effect_size: expected a fraction from 0 to 1, found {show(options['min_effect_size'])}")
    _require_comparable(before, after)
    base, compare = Counts(before.total, before.passed), Counts(after.total, after.passed)
    change, interval = compare.rate - base.rate, newcombe(base, compare)
    least = max(1, options["min_sample_size"])
    if min(base.runs, compare.runs) < least:
        raise _Undecided(f"too few iterations: base {base.runs}, compare {compare.runs}, at least {least} are needed", change)
    has_dropped = interval.high < 0 and change <= -options["min_effect_size"]
    reason = f"the pass rate changed by {change:+.4f} (95 % interval {interval.low:+.4f} to {interval.high:+.4f})"
    return _Finding(not has_dropped, reason, change)


def _decide_latency(before: GateInput, after: GateInput, limit: Any) -> _Finding:
    _require_limit(limit)
    _require_comparable(before, after)
    if before.p95_ms is None or after.p95_ms is None:
        raise _Undecided(f"no prompt of the {'base' if before.p95_ms is None else 'compare'} run was timed")
    rise = after.p95_ms - before.p95_ms
    reason = f"the 95th percentile went from {before.p95_ms:g} to {after.p95_ms:g} ms ({rise:+g}), {limit:g} more are allowed"
    return _Finding(rise <= limit, reason, rise)


def _decide_regressions(before: GateInput, after: GateInput, value: object) -> _Finding:
    _require_true(value)
    if "invalid" in (before.score_integrity, after.score_integrity):
        raise _Undecided("rows that belong to their definitions are needed on both sides")
    shared = [name for name in before.cases if name in after.cases]
    if not any(_was_graded(before.cases[name]) and _was_graded(after.cases[name]) for name in shared):
        raise _Undecided("no test was graded in both runs")
    fallen = [f"{name}/{id}" for name in shared for id in _list_fallen(before.cases[name], after.cases[name])]
    reason = f"scorers that held before and do not now: {', '.join(fallen)}" if fallen else "every deterministic gating scorer still holds"
    return _Finding(not fallen, reason, len(fallen))


class _Gate(NamedTuple):
    decide: Callable[..., _Finding]
    """Called with the runs and the value of the gate."""
    runs: int = 1
    is_switch: bool = False
    is_by_scorer: bool = False


_GATES: Final = {
    "minimum_pass_rate": _Gate(_decide_pass_rate),
    "maximum_total_tokens": _Gate(
        lambda given, limit: _decide_at_most(given.tokens, limit, "tokens were spent", "a prompt has no token counts")
    ),
    "maximum_p95_latency_ms": _Gate(
        lambda given, limit: _decide_at_most(given.p95_ms, limit, "ms is the 95th percentile of the prompts", "no prompt was timed")
    ),
    "no_gating_score_errors": _Gate(_decide_no_score_errors, is_switch=True),
    "minimum_scorer_pass_rate": _Gate(partial(_decide_scorer, _compute_pass_rate), is_by_scorer=True),
    "minimum_mean_score": _Gate(partial(_decide_scorer, _compute_mean_score), is_by_scorer=True),
    "no_deterministic_regressions": _Gate(_decide_regressions, runs=2, is_switch=True),
    "maximum_p95_latency_increase_ms": _Gate(_decide_latency, runs=2),
    "pass_rate_regression": _Gate(_decide_pass_rate_change, runs=2, is_switch=True),
}


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


def _require_comparable(before: GateInput, after: GateInput) -> None:
    """Raise `_Undecided` with the reasons why the two runs are not comparable."""
    if not before.cases or not after.cases:
        raise _Undecided("it is unknown which tests the runs are made of")
    shared = [(name, before.cases[name], after.cases[name]) for name in before.cases if name in after.cases]
    reasons = {
        "tests of one run only": sorted(set(before.cases) ^ set(after.cases)),
        "tests that ask for something else": [name for name, then, now in shared if then.scenario_hash != now.scenario_hash],
        "the runs are graded differently": [""] if before.config_hash != after.config_hash else [],
        "tests that are not repeated equally often": [
            f"{name} ({len(then.results)} and {len(now.results)})" for name, then, now in shared if len(then.results) != len(now.results)
        ],
    }
    problems = [f"{what}: {', '.join(names)}".removesuffix(": ") for what, names in reasons.items() if names]
    if problems:
        raise _Undecided(f"the runs do not measure the same: {'; '.join(problems)}")
