"""proctor: examine AI agents before and after they ship.

State what an agent must do, read what it did, decide every assertion with evidence:

    import proctor

    suite = proctor.load_suite("booking.yaml")
    evidence = proctor.read_evidence({"text": "Done", "tool_calls": [{"name": "search", "arguments": {"q": "x"}}]})
    result = proctor.check(suite, evidence)

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proctor.actions.check import check, check_async
    from proctor.actions.evidence import read_evidence
    from proctor.actions.run import run, run_async
    from proctor.actions.suites import load_suite, parse_suite
    from proctor.errors import EvidenceError, InputError, ProctorError
    from proctor.evals.client_manager import MCPClientManager
    from proctor.evals.compare_gates import detect_flaky_cases, evaluate_compare_gates
    from proctor.evals.eval_suite import EvalSuite
    from proctor.evals.eval_test import EvalTest
    from proctor.evals.gates import GateError, GateReport, assert_gate, evaluate_gates, pass_rate_fraction_from_percent
    from proctor.evals.judge_scorer import judge_scorer
    from proctor.evals.prompt_result import PromptResult
    from proctor.evals.prompting import has_tool_call, step_count_is
    from proctor.evals.score_rows import ScoreDefinition, ScoreResult, not_applicable, scored, skipped
    from proctor.evals.scorer_context import ScorerContext
    from proctor.evals.scorers import predicate_scorer, scorer
    from proctor.evals.test_agent import TestAgent
    from proctor.expectations import ExpectationFailed, expect
    from proctor.model.case import Assertion, Case, Suite
    from proctor.model.evidence import Evidence, ToolCall
    from proctor.model.result import CaseResult, RunResult
    from proctor.model.verdict import Verdict
    from proctor.validators import (
        evaluate_tool_calls,
        explain_any_tool_call,
        explain_no_tool_calls,
        explain_tool_argument,
        explain_tool_argument_with,
        explain_tool_call_count,
        explain_tool_call_with_args,
        explain_tool_call_with_partial_args,
        explain_tool_calls,
        explain_tool_calls_subset,
        match_any_tool_call,
        match_no_tool_calls,
        match_tool_argument,
        match_tool_argument_with,
        match_tool_argument_with_async,
        match_tool_call_count,
        match_tool_call_with_args,
        match_tool_call_with_partial_args,
        match_tool_calls,
        match_tool_calls_subset,
    )

_HOMES = {
    "check": "proctor.actions.check",
    "check_async": "proctor.actions.check",
    "read_evidence": "proctor.actions.evidence",
    "run": "proctor.actions.run",
    "run_async": "proctor.actions.run",
    "load_suite": "proctor.actions.suites",
    "parse_suite": "proctor.actions.suites",
    "EvidenceError": "proctor.errors",
    "InputError": "proctor.errors",
    "ProctorError": "proctor.errors",
    "MCPClientManager": "proctor.evals.client_manager",
    "detect_flaky_cases": "proctor.evals.compare_gates",
    "evaluate_compare_gates": "proctor.evals.compare_gates",
    "EvalSuite": "proctor.evals.eval_suite",
    "EvalTest": "proctor.evals.eval_test",
    "assert_gate": "proctor.evals.gates",
    "evaluate_gates": "proctor.evals.gates",
    "GateError": "proctor.evals.gates",
    "GateReport": "proctor.evals.gates",
    "pass_rate_fraction_from_percent": "proctor.evals.gates",
    "judge_scorer": "proctor.evals.judge_scorer",
    "PromptResult": "proctor.evals.prompt_result",
    "has_tool_call": "proctor.evals.prompting",
    "step_count_is": "proctor.evals.prompting",
    "scored": "proctor.evals.score_rows",
    "skipped": "proctor.evals.score_rows",
    "not_applicable": "proctor.evals.score_rows",
    "ScoreDefinition": "proctor.evals.score_rows",
    "ScoreResult": "proctor.evals.score_rows",
    "ScorerContext": "proctor.evals.scorer_context",
    "predicate_scorer": "proctor.evals.scorers",
    "scorer": "proctor.evals.scorers",
    "TestAgent": "proctor.evals.test_agent",
    "ExpectationFailed": "proctor.expectations",
    "expect": "proctor.expectations",
    "Assertion": "proctor.model.case",
    "Case": "proctor.model.case",
    "Suite": "proctor.model.case",
    "Evidence": "proctor.model.evidence",
    "ToolCall": "proctor.model.evidence",
    "CaseResult": "proctor.model.result",
    "RunResult": "proctor.model.result",
    "Verdict": "proctor.model.verdict",
    "evaluate_tool_calls": "proctor.validators",
    "explain_any_tool_call": "proctor.validators",
    "explain_no_tool_calls": "proctor.validators",
    "explain_tool_argument": "proctor.validators",
    "explain_tool_argument_with": "proctor.validators",
    "explain_tool_call_count": "proctor.validators",
    "explain_tool_call_with_args": "proctor.validators",
    "explain_tool_call_with_partial_args": "proctor.validators",
    "explain_tool_calls": "proctor.validators",
    "explain_tool_calls_subset": "proctor.validators",
    "match_any_tool_call": "proctor.validators",
    "match_no_tool_calls": "proctor.validators",
    "match_tool_argument": "proctor.validators",
    "match_tool_argument_with": "proctor.validators",
    "match_tool_argument_with_async": "proctor.validators",
    "match_tool_call_count": "proctor.validators",
    "match_tool_call_with_args": "proctor.validators",
    "match_tool_call_with_partial_args": "proctor.validators",
    "match_tool_calls": "proctor.validators",
    "match_tool_calls_subset": "proctor.validators",
}

__all__ = [
    "Assertion",
    "Case",
    "CaseResult",
    "EvalSuite",
    "EvalTest",
    "Evidence",
    "EvidenceError",
    "ExpectationFailed",
    "GateError",
    "GateReport",
    "InputError",
    "MCPClientManager",
    "ProctorError",
    "PromptResult",
    "RunResult",
    "ScoreDefinition",
    "ScoreResult",
    "ScorerContext",
    "Suite",
    "TestAgent",
    "ToolCall",
    "Verdict",
    "__version__",
    "assert_gate",
    "check",
    "check_async",
    "detect_flaky_cases",
    "evaluate_compare_gates",
    "evaluate_gates",
    "evaluate_tool_calls",
    "expect",
    "explain_any_tool_call",
    "explain_no_tool_calls",
    "explain_tool_argument",
    "explain_tool_argument_with",
    "explain_tool_call_count",
    "explain_tool_call_with_args",
    "explain_tool_call_with_partial_args",
    "explain_tool_calls",
    "explain_tool_calls_subset",
    "has_tool_call",
    "judge_scorer",
    "load_suite",
    "match_any_tool_call",
    "match_no_tool_calls",
    "match_tool_argument",
    "match_tool_argument_with",
    "match_tool_argument_with_async",
    "match_tool_call_count",
    "match_tool_call_with_args",
    "match_tool_call_with_partial_args",
    "match_tool_calls",
    "match_tool_calls_subset",
    "not_applicable",
    "parse_suite",
    "pass_rate_fraction_from_percent",
    "predicate_scorer",
    "read_evidence",
    "run",
    "run_async",
    "scored",
    "scorer",
    "skipped",
    "step_count_is",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")
    import importlib  # loaded by Python anyway, but not before the first name is asked for

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
