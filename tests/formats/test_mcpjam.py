"""MCPJam documents: the suites they become, and every problem with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.tools.tool_calls import ToolCalled
from proctor.checks.tools.tool_order import ExpectedCall, ToolCallsMatch, ToolsCalled
from proctor.errors import InputError
from proctor.formats.mcpjam import suite as mcpjam
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Reading
from proctor.formats.text.yaml12 import read_yaml
from tests.formats.mcpjam_documents import decide, read_document
from tests.tables import rows

HEAD = """schemaVersion: "1"
mode: agentWorkflow
reportingMode: standard
suite: {id: s, name: Shop}
target: {servers: [{name: shop}]}
defaults: {model: m, repetitions: 1, passThreshold: 1, validity: {}}
"""

SUITE_FILE: dict[str, Any] = {
    "schemaVersion": "1",
    "mode": "agentWorkflow",
    "reportingMode": "standard",
    "suite": {"id": "shop", "name": "Shop evals", "description": "Orders"},
    "target": {"servers": [{"name": "shop"}], "environment": "staging"},
    "defaults": {"model": "m-1", "repetitions": 5, "passThreshold": 0.8, "validity": {}},
    "provenance": {"sourceHash": "h", "sourceFormat": "promptfoo", "reportHash": "r"},
    "cases": [
        {
            "id": "order",
            "title": "Finds the order",
            "steps": [
                {"id": "s1", "kind": "prompt", "prompt": "Where is order 17?"},
                {"id": "s2", "kind": "assert", "assertion": {"type": "toolCalledWith", "toolName": "lookup", "args": {"args": {"id": 17}}}},
                {"id": "s3", "kind": "prompt", "prompt": "Cancel it"},
                {"id": "s4", "kind": "assert", "assertion": {"type": "toolNeverCalled", "toolName": "lookup"}},
                {"id": "s5", "kind": "assert", "assertion": {"type": "tokenBudgetUnder", "tokens": 1000}},
            ],
            "assertions": [{"type": "noToolErrors"}],
            "expectedOutput": "Cancelled.",
            "repetitions": 3,
            "passThreshold": 1,
        },
        {
            "id": "direct",
            "title": "Direct call",
            "steps": [
                {"id": "s1", "kind": "toolCall", "serverName": "shop", "toolName": "list", "arguments": {"n": 1}, "renderTimeoutMs": 500},
                {"id": "s2", "kind": "prompt", "prompt": "Show it"},
                {"id": "s3", "kind": "assert", "assertion": {"type": "widgetRendered"}},
            ],
            "import": {"status": "exact"},
        },
        {
            "id": "chat",
            "title": "Only talks",
            "steps": [{"id": "s1", "kind": "prompt", "prompt": "Hi"}],
            "isNegativeTest": True,
            "model": "m-2",
        },
        {
            "id": "clicks",
            "title": "Clicks",
            "steps": [
                {"id": "s1", "kind": "prompt", "prompt": "Show the cart"},
                {"id": "s2", "kind": "interact", "toolName": "cart", "action": {"kind": "click", "target": {"testId": "add"}}},
            ],
        },
        {
            "id": "sees",
            "title": "Sees",
            "steps": [
                {"id": "s1", "kind": "prompt", "prompt": "Show the cart"},
                {"id": "s2", "kind": "assert", "assertion": {"kind": "textVisible", "toolName": "cart", "text": "3 items"}},
            ],
        },
        {"id": "off", "title": "Off", "disabled": True, "steps": [{"id": "s1", "kind": "prompt", "prompt": "Hi"}]},
    ],
}


def test_a_suite_file_becomes_cases_with_turns_and_checks() -> None:
    suite = read_document(SUITE_FILE)
    assert (suite.name, suite.description, suite.dialect, suite.warnings) == ("Shop evals", "Orders", "mcpjam", ())
    assert suite.settings["target"]["environment"] == "staging"
    order, direct, chat, clicks, sees, off = suite.cases
    assert (order.id, order.name, order.input) == ("order", "Finds the order", None)
    assert [turn.input for turn in order.turns] == ["Where is order 17?", "Cancel it"]
    assert [(entry.check, entry.turn) for entry in order.assertions] == [
        ("tool_called", 0),
        ("tool_not_called", 1),
        ("tokens_within", None),
        ("no_tool_errors", None),
    ]
    assert (order.repetitions, order.pass_threshold, order.settings["expectedOutput"]) == (3, 1.0, "Cancelled.")
    assert (direct.input, direct.turns, direct.repetitions, direct.pass_threshold) == ("Show it", (), 5, 0.8)
    assert direct.settings["direct_calls"] == [
        {"server": "shop", "tool": "list", "arguments": {"n": 1}, "after_prompts": 0, "id": "s1", "render_timeout_ms": 500}
    ]
    assert [entry.turn for entry in direct.assertions] == [None]
    assert [entry.spec for entry in chat.assertions] == [ToolCallsMatch(negative=True)]
    assert chat.settings["model"] == "m-2"
    assert [case.skip and case.skip.code for case in (order, clicks, sees, off)] == [
        None,
        "unsupported_step",
        "unsupported_step",
        "disabled",
    ]
    assert {case.scoring.mode for case in suite.cases} == {"boolean"} and {case.scoring.when_empty for case in suite.cases} == {"skip"}


def test_assertions_of_a_step_see_only_their_turn() -> None:
    case = read_document(SUITE_FILE).cases[0]
    lookup = {"name": "lookup", "arguments": {"id": 17, "full": True}}
    turns = [{"tool_calls": [lookup]}, {"tool_calls": [{"name": "cancel"}]}]
    whole = {"turns": turns, "tool_calls": [lookup, {"name": "cancel"}], "usage": {"total_tokens": 999}}
    assert [verdict.outcome for verdict in decide(case, whole)] == ["pass", "pass", "pass", "pass"]
    swapped = {**whole, "turns": turns[::-1]}
    assert [verdict.outcome for verdict in decide(case, swapped)] == ["fail", "fail", "pass", "pass"]


def test_expected_calls_and_options_become_one_assertion() -> None:
    [case] = read_document(
        {
            "matchOptions": {"toolCallOrder": "strict", "maxExtraToolCalls": 2},
            "cases": [
                {
                    "name": "adds",
                    "query": "Add 2 and 3",
                    "expectedToolCalls": [
                        {"toolName": "add", "arguments": {"a": 2, "b": "number"}},
                        "log",
                        {"name": "end", "arguments": None},
                    ],
                    "matchOptions": {"toolCallOrder": "superset", "argumentMatching": "partial"},
                    "runs": 4,
                    "tags": ["math"],
                }
            ],
        }
    ).cases
    assert (case.id, case.input, case.repetitions, case.tags) == ("adds", "Add 2 and 3", 4, {"math": True})
    [assertion] = case.assertions
    calls = (ExpectedCall(name="add", arguments={"a": 2, "b": "number"}), ExpectedCall(name="log"), ExpectedCall(name="end"))
    assert assertion.spec == ToolCallsMatch(calls=calls, order="superset", max_extra=2)
    assert assertion.label == "expected calls · add, log, end"
    assert assertion.origin.path == "$.cases[0].expectedToolCalls"


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"allowExtraToolCalls": False}, 0),
        ({"allowExtraToolCalls": True}, None),
        ({"allowExtraToolCalls": False, "maxExtraToolCalls": 3}, 3),
        ({"allowExtraToolCalls": False, "maxExtraToolCalls": None}, None),
    ],
)
def test_the_limit_overrides_the_older_switch(options: Any, limit: int | None) -> None:
    [case] = read_document([{"id": "a", "prompt": "p", "expectedToolCalls": ["x"], "matchOptions": options}]).cases
    assert case.assertions[0].spec == ToolCallsMatch(calls=(ExpectedCall(name="x"),), max_extra=limit)


def test_an_empty_expectation_is_an_assertion_only_with_a_limit_or_declaration() -> None:
    def specs(**more: Any) -> list[Any]:
        [case] = read_document([{"id": "a", "prompt": "p", "expectedToolCalls": [], **more}]).cases
        return [entry.spec for entry in case.assertions]

    assert specs() == []
    assert specs(matchOptions={"maxExtraToolCalls": 0}) == [ToolCallsMatch(max_extra=0)]
    assert specs(isNegativeTest=False) == [ToolCallsMatch(positive_only=True)]
    assert specs(isNegativeTest=True) == [ToolCallsMatch(negative=True)]


def test_the_retired_form_expects_each_tool_once() -> None:
    suite = read_document(
        {
            "tests": [
                {
                    "title": "Lists files",
                    "prompt": "List the files",
                    "expectedTools": ["list", "read"],
                    "model": {"id": "m", "provider": "p"},
                    "selectedServers": ["fs"],
                    "advancedConfig": {"maxSteps": 5},
                }
            ]
        }
    )
    [case] = suite.cases
    assert (case.id, case.input) == ("Lists files", "List the files")
    assert [entry.spec for entry in case.assertions] == [ToolsCalled(names=("list", "read"))]
    assert case.settings["selectedServers"] == ["fs"]


def test_an_override_inherits_replaces_or_extends_what_the_suite_checks() -> None:
    own = [{"type": "firstToolWas", "toolName": "a"}]
    suite = read_document(
        {
            "checks": [{"type": "noToolErrors"}],
            "cases": [
                {"id": "plain", "prompt": "p"},
                {"id": "bare", "prompt": "p", "predicates": own},
                {"id": "inherit", "prompt": "p", "checks": {"mode": "inherit", "list": own}},
                {"id": "replace", "prompt": "p", "checks": {"mode": "replace", "list": own}},
                {"id": "extend", "prompt": "p", "checks": {"mode": "extend", "list": own}},
            ],
        }
    )
    assert {case.id: [entry.check for entry in case.assertions] for case in suite.cases} == {
        "plain": ["no_tool_errors"],
        "bare": ["no_tool_errors", "first_tool"],
        "inherit": ["no_tool_errors"],
        "replace": ["first_tool"],
        "extend": ["no_tool_errors", "first_tool"],
    }


def test_quirks_of_predicates_become_fields() -> None:
    predicates = [
        {"type": "toolCalledWith", "toolName": "a", "args": {"args": {"q": "any"}, "argumentMatching": "exact"}, "minCount": 2},
        {"type": "responseMatches", "pattern": "x+"},
    ]
    [case] = read_document([{"id": "a", "prompt": "p", "predicates": predicates}]).cases
    assert [entry.spec for entry in case.assertions] == [
        ToolCalled(name="a", arguments={"q": "any"}, match="exact", values="placeholders", at_least=2),
        ResponseMatches(pattern="x+", on_invalid="fail", refuse_nested_quantifiers=True, max_length=100_000),
    ]
    assert [entry.label for entry in case.assertions] == ["toolCalledWith · a", "responseMatches · x+"]


def test_missing_ids_are_generated() -> None:
    cases = [{"name": "Same", "prompt": "p"}, {"name": "Same", "prompt": "p"}, {"prompt": "What is 2 + 3?"}]
    assert [case.id for case in read_document(cases).cases] == ["Same", "Same-2", "what-is-2-3"]


def test_a_single_case_is_a_suite() -> None:
    assert [case.id for case in read_document({"id": "a", "prompt": "p", "expectedToolCalls": ["x"]}).cases] == ["a"]


@pytest.mark.parametrize(
    ("document", "mine"),
    [
        (SUITE_FILE, True),
        ([{"id": "a", "expectedToolCalls": []}], True),
        ({"tests": [{"title": "t", "expectedTools": ["a"]}]}, True),
        ({"cases": [{"steps": [{"id": "s", "kind": "prompt", "prompt": "p"}]}]}, True),
        ([{"checks": [{"type": "noToolErrors"}]}], True),
        ([{"checks": {"mode": "replace", "list": [{"type": "firstToolWas", "toolName": "a"}]}}], True),
        ({"proctor": 1, "cases": [{"expectedToolCalls": []}]}, False),
        ({"scenarios": [{"id": "a", "eval": {}}]}, False),
        ({"test_cases": [{"scenario": "x", "assertions": {"procedural": []}}]}, False),
        ([{"scenario": "x", "assertions": {"procedural": [{"target": "node_call", "expected_name": "a"}]}}], False),
        ([{"assertion": {"assert": "fhir-resource-state"}, "weight": 1}], False),
        ({"cases": []}, False),
        ([], False),
        ([1, "x", None], False),
        ("text", False),
    ],
)
def test_documents_are_recognised_by_their_shape(document: Any, mine: bool) -> None:
    text = json.dumps(document)
    tree = read_json(text, Reading(file=None, text=text))
    assert tree is not None and mcpjam.sniff(tree) is mine


@rows("formats/cases/mcpjam_problems.yaml")
def test_problems_are_reported_with_their_place(row: dict[str, Any]) -> None:
    text = HEAD + row["given"] if row.get("head") else row["given"]
    reading = Reading(file="evals.yaml", text=text)
    tree = read_yaml(text, reading)
    assert tree is not None
    mcpjam.read(tree, reading, name="evals")
    problems = sorted(reading.problems, key=lambda problem: (problem.origin.line or 0, problem.origin.column or 0))
    found = [
        f"{'warning ' if problem.level == 'warning' else ''}{problem.origin.line}:{problem.origin.column} {problem.message}"
        for problem in problems
    ]
    assert len(found) == len(row["expect"]), "\n".join(found)
    for line, expected in zip(found, row["expect"], strict=True):
        assert line.startswith(expected)
    if "nearest" in row:
        assert problems[0].nearest[0] == row["nearest"]


def test_a_problem_in_full() -> None:
    text = "- id: a\n  prompt: hi\n  predicates:\n    - type: toolCaledWith\n      toolName: a\n"
    reading = Reading(file="evals.yaml", text=text)
    tree = read_yaml(text, reading)
    assert tree is not None
    mcpjam.read(tree, reading, name="evals")
    with pytest.raises(InputError) as caught:
        reading.finish()
    assert str(caught.value).splitlines()[:4] == [
        'evals.yaml:4:13: unknown predicate type "toolCaledWith"',
        "  at $[0].predicates[0].type",
        "    4 |     - type: toolCaledWith",
        "      |             ^^^^^^^^^^^^^",
    ]
    assert "nearest: 'toolCalledWith'" in str(caught.value)


STEP_WORDS = ["steps", "kind", "prompt", "assert", "assertion", "type", "toolCalledWith", "toolName", "args", "import"]
CASE_WORDS = ["schemaVersion", "1", "cases", "tests", "id", "title", "defaults", "predicates", "checks", "mode", "list"]
WORDS = st.sampled_from([*STEP_WORDS, *CASE_WORDS, "expectedToolCalls", "matchOptions", "isNegativeTest"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
@pytest.mark.timeout(60)
def test_any_document_is_read_or_reported_and_never_breaks_the_reader(document: Any) -> None:
    try:
        suite = read_document(document)
    except InputError as error:
        assert error.problems
    else:
        assert suite.dialect == "mcpjam"
