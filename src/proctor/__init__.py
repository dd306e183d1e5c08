"""proctor: examine AI agents before and after they ship.

State what an agent must do, read what it did, decide every assertion with evidence:

    import proctor

    suite = proctor.load_suite("booking.yaml")
    evidence = proctor.read_evidence({"text": "Done", "tool_calls": [{"name": "search", "arguments": {"q": "x"}}]})
    result = proctor.check(suite, evidence)

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

__version__ = "0.1.0"

PUBLIC_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "Suites and evidence": {
        "proctor.actions.workspace.suites": ("load_suite", "parse_suite"),
        "proctor.actions.checking.check": ("check", "check_async", "read_evidence"),
        "proctor.actions.running.run": ("run", "run_async"),
        "proctor.batches.run": ("batch", "BatchProgress"),
        "proctor.model.batch": ("BatchSummary",),
        "proctor.targets.shared.marks": ("agent",),
        "proctor.expectations": ("expect",),
        "proctor.model.case": ("Suite", "Case", "Assertion"),
        "proctor.model.evidence": ("Evidence", "ToolCall"),
        "proctor.model.result": ("RunResult", "CaseResult"),
        "proctor.model.verdict": ("TextRange", "Verdict"),
        "proctor.report.words.ranges": ("add_ranges",),
    },
    "Validators over tool calls": {
        "proctor.validators": (
            "evaluate_tool_calls",
            "explain_any_tool_call",
            "explain_no_tool_calls",
            "explain_tool_argument",
            "explain_tool_argument_with",
            "explain_tool_call_count",
            "explain_tool_call_with_args",
            "explain_tool_call_with_partial_args",
            "explain_tool_calls",
            "explain_tool_calls_subset",
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
        ),
    },
    "Evals and gates": {
        "proctor.evals.eval_test": ("EvalTest",),
        "proctor.evals.eval_suite": ("EvalSuite",),
        "proctor.evals.agents.test_agent": ("TestAgent",),
        "proctor.evals.agents.client_manager": ("MCPClientManager",),
        "proctor.actions.running.examine_server": ("examine_server",),
        "proctor.evals.agents.prompt_result": ("PromptResult",),
        "proctor.evals.agents.prompting": ("has_tool_call", "step_count_is"),
        "proctor.evals.grading.scorers": ("scorer", "predicate_scorer", "ScorerContext"),
        "proctor.evals.grading.judge_scorer": ("judge_scorer",),
        "proctor.evals.grading.score_rows": ("ScoreDefinition", "ScoreResult", "scored", "skipped", "not_applicable"),
        "proctor.evals.grading.gates": (
            "evaluate_gates",
            "assert_gate",
            "GateReport",
            "pass_rate_fraction_from_percent",
            "evaluate_compare_gates",
            "detect_flaky_cases",
        ),
    },
    "Errors": {
        "proctor.errors": ("ProctorError", "InputError", "EvidenceError"),
        "proctor.expectations": ("ExpectationFailed",),
        "proctor.evals.grading.gates": ("GateError",),
    },
}
"""Every public name: by who uses it, and by the module it lives in. The stub for type checkers and the reference page are made from it."""

_HOMES = {name: module for modules in PUBLIC_NAMES.values() for module, names in modules.items() for name in names}

_RENAMED = {"HostRunner": "TestAgent"}

__all__ = ["__version__", *sorted(_HOMES)]  # pyright: ignore[reportUnsupportedDunderAll]  # the stub beside this file has them one by one


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        # As MCPJam's SDK spells it, in camelCase or by its current name.
        ours = _RENAMED.get(name) or "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        hint = f"; the name here is {ours!r}" if ours in _HOMES else ""
        raise AttributeError(f"module 'proctor' has no attribute {name!r}{hint}")
    import importlib  # loaded by Python anyway, but not before the first name is asked for

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
