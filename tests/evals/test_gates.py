"""Gates: one run against a policy, two runs against each other, tests that are flaky."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.evals.agents.test_agent import MockAgent
from proctor.evals.eval_suite import EvalSuite
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.gates import (
    CaseRun,
    GateError,
    GateInput,
    GateReport,
    assert_gate,
    detect_flaky_cases,
    evaluate_compare_gates,
    evaluate_gates,
    gate_input,
    pass_rate_fraction_from_percent,
)
from proctor.evals.grading.results import EvalRunResult, EvalSuiteResult
from proctor.evals.grading.score_rows import EvaluationConfig, ScoreDefinition, ScoreOutcome, make_row, scored
from proctor.evals.grading.scorers import scorer
from proctor.scoring.intervals import Counts, newcombe, wilson
from tests.evals.agents import result, saying
from tests.tables import rows
from tests.targets.mcp_twins import run


def given_run(given: dict[str, Any]) -> GateInput:
    kind = {key: given[key] for key in ("role", "id_source") if key in given}
    definition = ScoreDefinition(scorer_id="tone", implementation_hash="0" * 64, pass_threshold=0.5, **kind)
    found = [
        make_row(definition, ScoreOutcome(kind=each, rationale="why") if isinstance(each, str) else scored(each))
        for each in given.get("tone", [])
    ]
    return GateInput(
        total=given.get("total", 0),
        passed=given.get("passed", 0),
        tokens=given.get("tokens"),
        p95_ms=given.get("p95_ms"),
        definitions=() if given.get("definitions") is False else (definition,),
        scores=tuple(found),
        score_integrity=given.get("integrity", "valid"),
    )


@rows("conformance/mcpjam/gates.yaml")
def test_a_run_is_checked_against_a_policy(row: dict[str, Any]) -> None:
    report = evaluate_gates(given_run(row["given"]["run"]), row["given"]["policy"])
    assert report.outcome == row["expect"], str(report)
    assert len(report.verdicts) == sum(len(each) if isinstance(each, dict) and each else 1 for each in row["given"]["policy"].values())


# --- results as they come from evals ------------------------------------------------------------------------------------------


def agent(*, e2e_ms: float = 50, usage: Any = (8, 2)) -> MockAgent:
    list_messages = {"input_tokens": usage[0], "output_tokens": usage[1]} if usage else None
    return saying(result("a", usage=list_messages, latency={"e2e_ms": e2e_ms, "llm_ms": 0, "mcp_ms": 0}))


def evaluated(*outcomes: bool, name: str = "t", e2e_ms: float = 50, usage: Any = (8, 2), **options: Any) -> EvalRunResult:
    return run(eval_of(*outcomes, name=name, **options).run(agent(e2e_ms=e2e_ms, usage=usage), iterations=len(outcomes), concurrency=1))


def eval_of(*outcomes: bool, name: str = "t", **options: Any) -> EvalTest:
    results = iter(outcomes)

    async def asks(agent: MockAgent) -> bool:
        await agent.prompt("go")
        return next(results)

    return EvalTest(name, asks, **options)


def suite_of(**tests: tuple[bool, ...]) -> EvalSuiteResult:
    made = [eval_of(*outcomes, name=name) for name, outcomes in tests.items()]
    return run(EvalSuite("s", tests=made).run(agent(), iterations=len(next(iter(tests.values()))), concurrency=1))


def test_gates_use_the_result_of_a_test() -> None:
    tone = scorer("tone", lambda context: 0.5, threshold=0.5)
    done = evaluated(True, True, False, True, scorers=[tone])
    found = gate_input(done)
    assert (found.total, found.passed, found.tokens, found.p95_ms, found.score_integrity) == (4, 3, 40, 50, "valid")
    policy = {"minimum_pass_rate": 0.75, "maximum_total_tokens": 40, "maximum_p95_latency_ms": 50, "no_gating_score_errors": True}
    report = assert_gate(done, policy, minimum_scorer_pass_rate={"tone": 1, "legacy:test": 0.75}, minimum_mean_score={"tone": 0.5})
    assert report.passed and len(report.verdicts) == 7 and report.score_integrity == "valid"
    assert [each.observed for each in report.verdicts] == [0.75, 40, 50, 0, 1, 0.75, 0.5]


def test_gates_use_the_result_of_a_suite() -> None:
    done = suite_of(one=(True, True), two=(True, False))
    assert evaluate_gates(done, minimum_pass_rate=0.75).passed
    assert evaluate_gates(done, minimum_pass_rate=0.76).outcome == "failed"
    assert evaluate_gates(done, minimum_scorer_pass_rate={"legacy:test": 0.75}).passed
    assert gate_input(done).config_hash == done.evaluation_config_hash and list(gate_input(done).cases) == ["one", "two"]


def test_tokens_missing_in_one_prompt_are_unknown() -> None:
    assert evaluate_gates(evaluated(True, usage=None), maximum_total_tokens=5).outcome == "incomplete"


def test_a_run_without_prompts_was_not_timed() -> None:
    silent = run(EvalTest("t", lambda agent: True).run(agent(), iterations=2))
    assert evaluate_gates(silent, maximum_p95_latency_ms=5).outcome == "incomplete"
    assert evaluate_gates(run(EvalTest("t", lambda agent: True).run(agent(), iterations=0)), minimum_pass_rate=0).outcome == "incomplete"


def test_rows_that_were_changed_decide_nothing() -> None:
    done = evaluated(False)
    iteration = done.iteration_details[0]
    forged = msgspec.structs.replace(iteration.scores[0], passed=True, value=1.0, definition_hash="elsewhere")
    changed = msgspec.structs.replace(done, iteration_details=(msgspec.structs.replace(iteration, scores=(forged,)),))
    report = evaluate_gates(changed, minimum_scorer_pass_rate={"legacy:test": 1})
    assert (report.outcome, report.score_integrity) == ("incomplete", "invalid")


def test_a_gate_that_is_not_passed_raises_with_its_report() -> None:
    with pytest.raises(GateError, match="failed  minimum_pass_rate: 1 of 2 iterations passed") as raised:
        assert_gate(evaluated(True, False), minimum_pass_rate=1)
    assert isinstance(raised.value, AssertionError) and raised.value.report.outcome == "failed"
    with pytest.raises(GateError, match="incomplete"):
        assert_gate(evaluated(True, usage=None), maximum_total_tokens=1)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"minimum_pass_rat": 1}, "nearest: 'minimum_pass_rate'"),
        ({"minimum_pass_rate": True}, "fraction"),
        ({"minimum_pass_rate": False}, "fraction"),
        ({"maximum_total_tokens": -1}, "at least 0"),
        ({"maximum_p95_latency_ms": float("nan")}, "at least 0"),
        ({"no_gating_score_errors": "yes"}, "true or false"),
        ({"minimum_mean_score": 0.5}, "for each id"),
        ({"minimum_mean_score": {"nobody": 0.5}}, "there are legacy:test, tool-match"),
        ({"pass_rate_regression": True}, "evaluate_compare_gates"),
    ],
)
def test_an_unusable_policy_is_reported(policy: dict[str, Any], message: str) -> None:
    report = evaluate_gates(evaluated(True), policy)
    assert report.outcome == "usage_error" and message in report.verdicts[0].message


def test_a_null_or_disabled_gate_is_ignored() -> None:
    assert evaluate_gates(evaluated(False), minimum_pass_rate=None, no_gating_score_errors=False, pass_rate_regression=False).verdicts == ()


@pytest.mark.parametrize(("percent", "fraction"), [(0, 0), (80, 0.8), (100, 1), (12.5, 0.125)])
def test_a_percentage_is_a_fraction(percent: float, fraction: float) -> None:
    assert pass_rate_fraction_from_percent(percent) == fraction


@pytest.mark.parametrize("percent", [-1, 101, float("nan"), True])
def test_an_invalid_percentage_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentage"):
        pass_rate_fraction_from_percent(percent)


# --- two runs -----------------------------------------------------------------------------------------------------------------


def side(passed: int, total: int, **more: Any) -> GateInput:
    results = (True,) * passed + (False,) * (total - passed)
    return GateInput(**{"total": total, "passed": passed, "score_integrity": "valid", "cases": {"c": CaseRun(results=results)}, **more})


def test_the_known_drop_is_a_regression() -> None:
    # mcpjam: comparison, known values
    interval = newcombe(Counts(10, 9), Counts(10, 4))
    assert (interval.low, interval.high) == (pytest.approx(-0.74594, abs=1e-5), pytest.approx(-0.08159, abs=1e-5))
    report = evaluate_compare_gates(side(9, 10), side(4, 10), pass_rate_regression=True)
    assert report.outcome == "failed" and report.verdicts[0].observed == -0.5


@pytest.mark.parametrize(("counts", "low", "high"), [(Counts(10, 8), 0.49016, 0.94332), (Counts(5, 0), 0, 0.43448)])
def test_the_known_intervals_are_those_of_wilson(counts: Counts, low: float, high: float) -> None:
    # mcpjam: comparison, known values
    assert (wilson(counts).low, wilson(counts).high) == (pytest.approx(low, abs=1e-5), pytest.approx(high, abs=1e-5))


@pytest.mark.parametrize(
    ("base", "compare", "options", "outcome"),
    [
        ((8, 10), (7, 10), {}, "passed"),
        ((4, 10), (9, 10), {}, "passed"),
        ((4, 4), (0, 4), {}, "incomplete"),
        ((4, 4), (0, 4), {"min_sample_size": 4}, "failed"),
        ((5, 5), (0, 5), {}, "failed"),
        ((5, 5), (0, 5), {"minSampleSize": 6}, "incomplete"),
        ((0, 0), (0, 0), {"min_sample_size": 0}, "incomplete"),
        ((9_900, 10_000), (9_850, 10_000), {}, "passed"),
        ((9_900, 10_000), (9_850, 10_000), {"minEffectSize": 0.001}, "failed"),
        ((9, 10), (4, 10), {"min_efect_size": 0.1}, "usage_error"),
        ((9, 10), (4, 10), {"min_effect_size": 2}, "usage_error"),
        ((9, 10), (4, 10), {"min_sample_size": 2.5}, "usage_error"),
        ((9, 10), (4, 10), "yes", "usage_error"),
    ],
)
def test_a_drop_counts_when_it_is_certain_and_not_tiny(base: tuple[int, int], compare: tuple[int, int], options: Any, outcome: str) -> None:
    assert evaluate_compare_gates(side(*base), side(*compare), {"passRateRegression": options}).outcome == outcome


def list_messages(report: GateReport) -> str:
    return " ".join(each.message for each in report.verdicts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cases": {"d": CaseRun(results=(True,) * 10)}}, "tests of one run only: c, d"),
        ({"cases": {"c": CaseRun(results=(True,) * 10, scenario_hash="x")}}, "ask for something else: c"),
        ({"config_hash": "x"}, "graded differently"),
        ({"cases": {"c": CaseRun(results=(True,) * 9)}}, "not repeated equally often: c (10 and 9)"),
        ({"cases": {}}, "unknown which tests"),
    ],
)
def test_runs_that_did_not_measure_the_same_are_not_compared(change: dict[str, Any], message: str) -> None:
    policy = {"pass_rate_regression": {}, "maximum_p95_latency_increase_ms": 5}
    report = evaluate_compare_gates(side(9, 10, p95_ms=1), side(4, 10, **{"p95_ms": 99, **change}), policy)
    assert report.outcome == "incomplete" and all(message in each.message for each in report.verdicts)


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [(100, 150, "passed"), (100, 150.5, "failed"), (100, 20, "passed"), (None, 5, "incomplete"), (5, None, "incomplete")],
)
def test_the_latency_may_rise_only_so_far(before: float | None, after: float | None, outcome: str) -> None:
    report = evaluate_compare_gates(side(1, 1, p95_ms=before), side(1, 1, p95_ms=after), maximum_p95_latency_increase_ms=50)
    assert report.outcome == outcome


def test_runs_of_evals_can_be_compared() -> None:
    good, bad = evaluated(*(True,) * 10), evaluated(*(False,) * 8, True, True, e2e_ms=500)
    report = evaluate_compare_gates(
        good, bad, pass_rate_regression=True, maximum_p95_latency_increase_ms=100, no_deterministic_regressions=True
    )
    assert [each.status for each in report.verdicts] == ["failed"] * 3 and "t/legacy:test" in list_messages(report)
    assert evaluate_compare_gates(bad, good, pass_rate_regression=True, no_deterministic_regressions=True).passed
    other = evaluated(*(False,) * 10, expected_output="else")
    assert "ask for something else: t" in list_messages(evaluate_compare_gates(good, other, pass_rate_regression=True))


def test_a_dropped_scorer_is_reported_per_test_whatever_else_changed() -> None:
    before = suite_of(one=(True, True), two=(True, False), gone=(True, True))
    after = suite_of(one=(True, False), two=(False, False), new=(False, False))
    report = evaluate_compare_gates(before, after, no_deterministic_regressions=True, pass_rate_regression=True)
    assert report.outcome == "failed"
    assert report.verdicts[0].message == "scorers that held before and do not now: one/legacy:test" and report.verdicts[0].observed == 1


def test_only_deterministic_gating_scorers_that_are_graded_alike_can_fall() -> None:
    def made(value: float, **options: Any) -> EvalRunResult:
        return evaluated(True, scorers=[scorer("own", lambda context: value, threshold=0.5, **options)])

    def outcome(**options: Any) -> str:
        return evaluate_compare_gates(made(1, **options), made(0, **options), no_deterministic_regressions=True).outcome

    assert outcome() == "failed"
    assert outcome(deterministic=False) == outcome(role="advisory") == "passed"
    changed = evaluate_compare_gates(made(1), made(0, scorer_version="2"), no_deterministic_regressions=True)
    assert changed.outcome == "passed"
    assert evaluate_compare_gates(made(1), made(5), no_deterministic_regressions=True).outcome == "failed", "an error is a fall too"


@pytest.mark.parametrize(("base", "compare"), [("invalid", "valid"), ("valid", "invalid")])
def test_both_runs_need_sound_rows(base: Any, compare: Any) -> None:
    report = evaluate_compare_gates(
        side(9, 10, score_integrity=base), side(4, 10, score_integrity=compare), no_deterministic_regressions=True
    )
    assert (report.outcome, report.score_integrity) == ("incomplete", "invalid")


def test_runs_that_share_no_graded_test_have_no_regressions_to_find() -> None:
    assert evaluate_compare_gates(side(1, 1), side(1, 1), no_deterministic_regressions=True).outcome == "incomplete"
    config = EvaluationConfig.of(())
    graded = side(1, 1, cases={"c": CaseRun(results=(True,), config=config)})
    assert evaluate_compare_gates(graded, graded, no_deterministic_regressions=True).passed


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"minimum_pass_rate": 1}, "use evaluate_gates"),
        ({"maximum_flaky_cases": 0}, "no such gate"),
        ({"no_deterministic_regressions": "all"}, "true or false"),
        ({"maximum_p95_latency_increase_ms": -5}, "at least 0"),
    ],
)
def test_an_unusable_comparison_is_reported(policy: dict[str, Any], message: str) -> None:
    report = evaluate_compare_gates(side(1, 1), side(1, 1), policy)
    assert report.outcome == "usage_error" and message in list_messages(report)


def test_an_empty_comparison_passes() -> None:
    assert evaluate_compare_gates(side(9, 10), side(0, 10)).passed


# --- flaky tests --------------------------------------------------------------------------------------------------------------


def test_tests_with_both_outcomes_are_flaky() -> None:
    done = suite_of(steady=(True, True, True), wavering=(True, False, True), broken=(False, False, False), another=(False, False, True))
    assert [(each.case, each.passed, each.total) for each in detect_flaky_cases(done)] == [("another", 1, 3), ("wavering", 2, 3)]
    assert [each.case for each in detect_flaky_cases(evaluated(True, False, name="Lone test"))] == ["lone-test"]


def test_flaky_tests_are_sorted_by_code_unit() -> None:
    mixed = CaseRun(results=(True, False))
    given = GateInput(cases={"～": mixed, "😀": mixed, "a": mixed, "B": mixed})
    assert [each.case for each in detect_flaky_cases(given)] == ["B", "a", "😀", "～"]
