# Written by `python -m docs.generate` from PUBLIC_NAMES in `__init__.py`; do not edit.

from proctor.actions.checking.check import (
    check as check,
    check_async as check_async,
    read_evidence as read_evidence,
)
from proctor.actions.running.examine_server import (
    examine_server as examine_server,
)
from proctor.actions.running.run import (
    run as run,
    run_async as run_async,
)
from proctor.actions.workspace.suites import (
    load_suite as load_suite,
    parse_suite as parse_suite,
)
from proctor.batches.run import (
    BatchProgress as BatchProgress,
    batch as batch,
)
from proctor.errors import (
    EvidenceError as EvidenceError,
    InputError as InputError,
    ProctorError as ProctorError,
)
from proctor.evals.agents.client_manager import (
    MCPClientManager as MCPClientManager,
)
from proctor.evals.agents.prompt_result import (
    PromptResult as PromptResult,
)
from proctor.evals.agents.prompting import (
    has_tool_call as has_tool_call,
    step_count_is as step_count_is,
)
from proctor.evals.agents.test_agent import (
    TestAgent as TestAgent,
)
from proctor.evals.eval_suite import (
    EvalSuite as EvalSuite,
)
from proctor.evals.eval_test import (
    EvalTest as EvalTest,
)
from proctor.evals.grading.gates import (
    GateError as GateError,
    GateReport as GateReport,
    assert_gate as assert_gate,
    detect_flaky_cases as detect_flaky_cases,
    evaluate_compare_gates as evaluate_compare_gates,
    evaluate_gates as evaluate_gates,
    pass_rate_fraction_from_percent as pass_rate_fraction_from_percent,
)
from proctor.evals.grading.judge_scorer import (
    judge_scorer as judge_scorer,
)
from proctor.evals.grading.score_rows import (
    ScoreDefinition as ScoreDefinition,
    ScoreResult as ScoreResult,
    not_applicable as not_applicable,
    scored as scored,
    skipped as skipped,
)
from proctor.evals.grading.scorers import (
    ScorerContext as ScorerContext,
    predicate_scorer as predicate_scorer,
    scorer as scorer,
)
from proctor.expectations import (
    ExpectationFailed as ExpectationFailed,
    expect as expect,
)
from proctor.model.batch import (
    BatchSummary as BatchSummary,
)
from proctor.model.case import (
    Assertion as Assertion,
    Case as Case,
    Suite as Suite,
)
from proctor.model.evidence import (
    Evidence as Evidence,
    ToolCall as ToolCall,
)
from proctor.model.result import (
    CaseResult as CaseResult,
    RunResult as RunResult,
)
from proctor.model.verdict import (
    TextRange as TextRange,
    Verdict as Verdict,
)
from proctor.report.words.ranges import (
    add_ranges as add_ranges,
)
from proctor.targets.shared.marks import (
    agent as agent,
)
from proctor.validators import (
    evaluate_tool_calls as evaluate_tool_calls,
    explain_any_tool_call as explain_any_tool_call,
    explain_no_tool_calls as explain_no_tool_calls,
    explain_tool_argument as explain_tool_argument,
    explain_tool_argument_with as explain_tool_argument_with,
    explain_tool_call_count as explain_tool_call_count,
    explain_tool_call_with_args as explain_tool_call_with_args,
    explain_tool_call_with_partial_args as explain_tool_call_with_partial_args,
    explain_tool_calls as explain_tool_calls,
    explain_tool_calls_subset as explain_tool_calls_subset,
    match_any_tool_call as match_any_tool_call,
    match_no_tool_calls as match_no_tool_calls,
    match_tool_argument as match_tool_argument,
    match_tool_argument_with as match_tool_argument_with,
    match_tool_argument_with_async as match_tool_argument_with_async,
    match_tool_call_count as match_tool_call_count,
    match_tool_call_with_args as match_tool_call_with_args,
    match_tool_call_with_partial_args as match_tool_call_with_partial_args,
    match_tool_calls as match_tool_calls,
    match_tool_calls_subset as match_tool_calls_subset,
)

__version__: str
__all__: list[str]
PUBLIC_NAMES: dict[str, dict[str, tuple[str, ...]]]
