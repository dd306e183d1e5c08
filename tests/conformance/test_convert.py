"""A suite of any dialect, converted to the native format, gives the same verdicts.

First for every documented suite in the conformance tables, then for generated suites.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import proctor
from proctor.actions.checking.check import read_all_evidence
from proctor.actions.help.demo import EXAMPLES, examples_folder
from proctor.errors import EvidenceError, InputError
from proctor.formats.dialect_text import write_dialect
from proctor.formats.mcplab.text import describe_agents
from proctor.formats.native.text import write_native
from proctor.formats.suites import read_suite
from proctor.model.case import Suite
from tests.tables import load

HERE = Path(__file__).parent
NOW = "2026-11-15T09:00:00Z"


def verdicts_of(suite: Suite, evidence: Any) -> list[Any]:
    """Every field of the verdicts, for every case."""
    result = proctor.check(suite, evidence, now=NOW)
    return [
        (
            case.id,
            case.outcome,
            case.score,
            case.verdict,
            case.axes,
            case.extracted,
            [(v.outcome, v.score, v.code, v.reason) for v in case.verdicts],
        )
        for case in result.cases
    ]


def keeps_verdicts(suite: Suite, evidence: Any) -> None:
    native = write_native(suite)
    again = read_suite(native, file="native.yaml")
    assert again.dialect == "native"
    assert verdicts_of(again, evidence) == verdicts_of(suite, evidence)
    assert write_native(again) == native, "writing what was written is stable"
    goes_back(suite, evidence)


def goes_back(suite: Suite, evidence: Any) -> None:
    """A dialect converted to native and back keeps its verdicts; suites that cannot be converted are refused."""
    if suite.dialect == "native":
        return
    described = describe_agents(suite, None)[0] if suite.dialect == "mcplab" else suite
    native = read_suite(write_native(described), file="native.yaml", name=suite.name)
    if any(assertion.check == "unsupported" for case in suite.cases for assertion in case.assertions):
        with pytest.raises(InputError):
            write_dialect(native, suite.dialect)
        return
    text, _ = write_dialect(native, suite.dialect)
    back = read_suite(text, file=f"back.{suite.dialect}", dialect=suite.dialect)
    # MCPLab and MCPJam list rules by kind, so rules may change order.
    assert ordered(verdicts_of(back, evidence)) == ordered(verdicts_of(suite, evidence))


def ordered(cases: list[Any]) -> list[Any]:
    return [(*case[:-1], sorted(map(repr, case[-1]))) for case in cases]


def documented() -> list[Any]:
    found: list[Any] = []
    for file in ("mcplab_suites/documentation.yaml", "mcplab_suites/vectors.yaml"):
        for row in load(f"conformance/{file}"):
            if "library" not in row:
                text = row.get("suite") or f"id: only\nprompt: hi\neval:\n{textwrap.indent(row['eval'], '  ')}\n"
                found.append(pytest.param("mcplab", text, row["given"], id=f"mcplab {row['id']}"))
    for file in ("mibo/documentation.yaml", "mibo/vectors.yaml"):
        for row in load(f"conformance/{file}"):
            if "suite" in row:
                found.append(pytest.param("mibo", row["suite"], row["given"], id=f"mibo {row['id']}"))
    for row in load("conformance/verial/criteria.yaml"):
        found.append(pytest.param("verial", row["document"], {"state": row["state"]}, id=f"verial {row['id']}"))
    for row in load("conformance/mcpjam/predicates.yaml"):
        document = json.dumps([{"id": "c", "prompt": "p", "predicates": [row["given"]["predicate"]]}])
        found.append(pytest.param("mcpjam", document, row["given"]["evidence"], id=f"mcpjam {row['id']}"))
    return found


@pytest.mark.in_turn
@pytest.mark.parametrize(("dialect", "text", "evidence"), documented())
def test_a_documented_suite_keeps_its_verdicts(dialect: str, text: str, evidence: Any) -> None:
    try:
        suite = read_suite(text, dialect=dialect)
    except InputError:
        return  # a row about an unreadable suite
    keeps_verdicts(suite, evidence)


@pytest.mark.parametrize(("suite", "evidence", "about"), EXAMPLES)
def test_a_bundled_example_keeps_its_verdicts(suite: str, evidence: str, about: str) -> None:
    folder = examples_folder()
    keeps_verdicts(proctor.load_suite(folder / suite), read_all_evidence(folder / evidence))


WORDS = st.sampled_from(["search", "pay", "refund", "lookup order", "Überweisung", "a:b", "yes", "12", "null", "*", "any", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, -1.25]) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
LITERAL_CHECKS = st.sampled_from(["contains", "not_contains", "starts_with", "ends_with", "equals"])
FIELD_PATHS = st.sampled_from(["status", "id"])
ANSWER_FIELDS = st.sampled_from(["status", "n", "a.0"])
PATTERNS = st.sampled_from(["refund", "^R"])
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
EVIDENCE = st.fixed_dictionaries(
    {"text": st.sampled_from(["Refund processed.", "", '{"status": "ok", "n": 1}', "search\nand pay", "Ü"])},
    optional={
        "tool_calls": st.lists(st.fixed_dictionaries({"name": WORDS, "arguments": ARGUMENTS}), max_size=4),
        "http_status": st.sampled_from([200, 500]),
        "duration_ms": st.integers(0, 5000),
        "usage": st.fixed_dictionaries({"input_tokens": st.integers(0, 500), "output_tokens": st.integers(0, 500)}),
    },
)

MCPLAB = st.fixed_dictionaries(
    {},
    optional={
        "tool_constraints": st.fixed_dictionaries(
            {}, optional={"required_tools": st.lists(WORDS, max_size=3), "forbidden_tools": st.lists(WORDS, max_size=3)}
        ),
        "tool_sequence": st.lists(WORDS, max_size=3),
        "tool_input_assertions": st.lists(
            st.one_of(
                st.fixed_dictionaries({"type": st.just("contains"), "tool": WORDS, "value": WORDS}),
                st.fixed_dictionaries({"type": st.just("regex"), "tool": WORDS, "pattern": st.sampled_from(["^a", "[", "\\d+", "s.*h"])}),
            ),
            max_size=2,
        ),
        "response_assertions": st.lists(
            st.one_of(
                st.fixed_dictionaries({"type": LITERAL_CHECKS, "value": WORDS}),
                st.fixed_dictionaries({"type": st.just("regex"), "pattern": st.sampled_from(["refund", "(?i)REF", "[", "^$"])}),
                st.fixed_dictionaries({"type": st.just("jsonpath"), "path": st.sampled_from(["$.status", "n", "$..x"]), "equals": VALUES}),
            ),
            max_size=3,
        ),
    },
).map(lambda rules: {"id": "s", "prompt": "hi", "eval": rules})

MIBO = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"target": st.just("node_call"), "condition": st.sampled_from(["MUST_CALL", "MUST_NOT_CALL"]), "expected_name": WORDS},
            optional={
                "expected_arguments": ARGUMENTS,
                "strict": st.booleans(),
                "forbidden_arguments": st.lists(WORDS, max_size=2),
                "expected_index": st.integers(0, 2),
            },
        ),
        st.fixed_dictionaries({"target": st.just("json_match"), "field": ANSWER_FIELDS, "expected_value": VALUES}),
        st.fixed_dictionaries({"target": st.just("response_regex"), "pattern": PATTERNS, "should_match": st.booleans()}),
        st.fixed_dictionaries({"target": st.just("http_status"), "expected_status": st.sampled_from([200, 404])}),
        st.fixed_dictionaries({"target": st.just("token_limit"), "max_total_tokens": st.integers(0, 900)}),
    ),
    max_size=4,
).map(lambda claims: {"scenario": "s", "input_utterance": "hi", "assertions": {"procedural": claims}})

MCPJAM = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("toolCalledWith"), "toolName": WORDS, "args": st.fixed_dictionaries({"args": ARGUMENTS})},
        ),
        st.fixed_dictionaries({"type": st.sampled_from(["toolCalledAtLeastOnce", "toolNeverCalled", "firstToolWas"]), "toolName": WORDS}),
        st.fixed_dictionaries({"type": st.just("responseContains"), "needle": WORDS, "caseSensitive": st.booleans()}),
        st.fixed_dictionaries({"type": st.sampled_from(["noToolErrors", "finalAssistantMessageNonEmpty"])}),
        st.fixed_dictionaries({"type": st.just("tokenBudgetUnder"), "tokens": st.integers(1, 900)}),
    ),
    max_size=4,
).flatmap(
    lambda predicates: st.lists(st.fixed_dictionaries({"toolName": WORDS, "arguments": ARGUMENTS}), max_size=3).map(
        lambda calls: [{"id": "c", "prompt": "p", "predicates": predicates, "expectedToolCalls": calls}]
    )
)

VERIAL = st.lists(
    st.fixed_dictionaries(
        {
            "label": WORDS,
            "assertion": st.fixed_dictionaries(
                {
                    "assert": st.sampled_from(["portal-state-match", "no-such-assertion"]),
                    "correlate_by": st.just({"resource": "rows", "key": "id", "value": 1}),
                    "assertions": st.lists(st.fixed_dictionaries({"path": FIELD_PATHS, "expected": VALUES}), max_size=3),
                }
            ),
        },
        optional={"weight": st.sampled_from([0.2, 1, 3]), "axis": WORDS},
    ),
    max_size=3,
).map(lambda criteria: {"task": {"id": "t", "name": "t"}, "criteria": criteria})


@settings(max_examples=60, deadline=None)
@given(st.one_of(MCPLAB, MIBO, MCPJAM, VERIAL), EVIDENCE)
@pytest.mark.timeout(60)
def test_a_generated_suite_keeps_its_verdicts(document: Any, evidence: dict[str, Any]) -> None:
    try:
        suite = read_suite(json.dumps(document), file="suite.json")
    except InputError:
        return  # an empty name, for example
    keeps_verdicts(suite, {**evidence, "state": {"portal": {"rows": [{"id": 1, "status": "ok"}]}}})


TEXTS = st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda data: data.decode("latin-1")))


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from([None, "native", "mcplab", "mibo", "verial", "mcpjam"]), st.sampled_from(["s.json", "s.yaml", None]))
def test_any_text_is_a_suite_or_an_input_error(text: str, dialect: str | None, file: str | None) -> None:
    try:
        read_suite(text, file=file, dialect=dialect)
    except InputError as error:
        assert str(error)


@settings(max_examples=150, deadline=None)
@given(VALUES | MCPLAB | MIBO | MCPJAM | VERIAL, st.sampled_from(["native", "mcplab", "mibo", "verial", "mcpjam"]))
@pytest.mark.timeout(60)
def test_any_document_is_a_suite_of_a_dialect_or_an_input_error(document: Any, dialect: str) -> None:
    try:
        proctor.check(read_suite(json.dumps(document), file="s.json", dialect=dialect), {"text": "x"})
    except InputError as error:
        assert str(error)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_evidence_or_an_evidence_error(data: bytes) -> None:
    from proctor.evidence.reading import read_bytes

    try:
        read_bytes(data)
    except EvidenceError as error:
        assert error.message
