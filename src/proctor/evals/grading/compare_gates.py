"""Gates that compare a run with an earlier one.

Rates and times are compared only if both runs measured the same: the same tests, prompted and graded alike, each repeated equally
often. Otherwise the report is `incomplete` and lists the differences. A deterministic scorer that passed before and fails now is reported
for each test, whatever else changed; there both runs need rows that belong to their definitions.

The pass rate has dropped when Newcombe's interval of the difference (method 10, 95 %) lies below zero and the drop is not tiny.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from proctor.evals.grading.gates import (
    SINGLE,
    CaseRun,
    Gateable,
    GateInput,
    GateReport,
    GateVerdict,
    gate_input,
    is_bound,
    make_decided,
    make_report,
    make_undecided,
    make_usage_error,
    read_policy,
)
from proctor.evals.grading.score_rows import definition_hash, is_fraction, row_holds
from proctor.model.show import nearest, show
from proctor.scoring.intervals import Counts, Interval, newcombe

MIN_SAMPLE_SIZE: Final = 5
MIN_EFFECT_SIZE: Final = 0.01
_REGRESSION_KEYS: Final = {
    "min_sample_size": "min_sample_size",
    "minSampleSize": "min_sample_size",
    "min_effect_size": "min_effect_size",
    "minEffectSize": "min_effect_size",
}


class PassRateChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the pass rate changed, and whether that is a drop one may rely on."""

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
    """Return the tests with both outcomes, sorted by UTF-16 units. For information: no gate looks at it."""
    cases = gate_input(result).cases
    mixed = [(name, case.results) for name, case in cases.items() if len(set(case.results)) == 2]
    mixed.sort(key=lambda each: each[0].encode("utf-16-be", "surrogatepass"))
    return tuple(FlakyCase(case=name, passed=sum(results), total=len(results)) for name, results in mixed)


def evaluate_compare_gates(base: Gateable, compare: Gateable, policy: Mapping[str, object] | None = None, **more: object) -> GateReport:
    """Hold the result `compare` against the earlier `base`.

    `no_deterministic_regressions`, `maximum_p95_latency_increase_ms`, and `pass_rate_regression`: true, or a mapping with
    `min_sample_size` (5) and `min_effect_size` (0.01).
    """
    before, after = gate_input(base), gate_input(compare)
    wanted, verdicts = read_policy(policy, more)
    for gate, value in wanted.items():
        if gate in SINGLE:
            verdicts.append(make_usage_error(gate, "this gate looks at one run: use evaluate_gates"))
        elif gate == "pass_rate_regression":
            verdicts.append(_decide_pass_rate(gate, before, after, value))
        elif gate == "maximum_p95_latency_increase_ms":
            verdicts.append(_decide_latency(gate, before, after, value))
        else:
            verdicts.append(_decide_regressions(gate, before, after, value))
    return make_report(verdicts, _join_integrity(before, after))


def _decide_pass_rate(gate: str, before: GateInput, after: GateInput, value: object) -> GateVerdict:
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
    if isinstance(size, bool) or not isinstance(size, int):
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
    # Definitions without a row: nothing ran, and nothing that fell could show.
    return case.config is not None and (bool(case.scores) or not case.config.definitions)


def _list_fallen(before: CaseRun, after: CaseRun) -> Iterable[str]:
    """Yield deterministic gating scorers, graded alike in both runs, that held in every iteration before and fail in one now."""
    for definition in before.config.definitions if before.config is not None else ():
        if not definition.deterministic or definition.role == "advisory":
            continue
        hash = definition_hash(definition)
        then, now = ([row for row in case.scores if row.definition_hash == hash] for case in (before, after))
        # A scorer that had nothing to say before did not hold.
        held = any(row.status == "scored" for row in then) and all(row_holds(definition, row) for row in then)
        if held and not all(row_holds(definition, row) for row in now):
            yield definition.scorer_id


def _join_integrity(before: GateInput, after: GateInput) -> Literal["valid", "invalid", "unknown"]:
    sides = (before.score_integrity, after.score_integrity)
    if "invalid" in sides:
        return "invalid"
    return "unknown" if None in sides else "valid"


def _explain_differences(before: GateInput, after: GateInput) -> str:
    """Return why the two runs did not measure the same, in words; empty where they did."""
    found: list[str] = []
    if not before.cases or not after.cases:
        return "it is unknown which tests the runs are made of"
    only = sorted(set(before.cases) ^ set(after.cases))
    if only:
        found.append(f"tests of one run only: {', '.join(only)}")
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
