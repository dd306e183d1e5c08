"""The scoring contract: one text per value, hashes, rows, and when an iteration passes."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
import quickjs
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evals.grading.score_rows import (
    DEEPEST,
    LONGEST_ERROR,
    LONGEST_EVIDENCE,
    LONGEST_RATIONALE,
    MOST_EVIDENCE,
    EvaluationConfig,
    ScoreDefinition,
    ScoreOutcome,
    canonical_digest,
    canonical_json,
    definition_hash,
    evaluation_config_hash,
    is_passed,
    make_error_outcome,
    make_row,
    not_applicable,
    read_outcome,
    score_integrity,
    scored,
    skipped,
    suite_config_hash,
)
from tests.tables import rows

LEGACY_IMPLEMENTATION = "4e671f4627b3d66accaebabc6df72885a59c9f9adc9db9e47af371210468015c"
LEGACY_DEFINITION = "0f4b9ae5b9454b551b2912b600281d1a775bc44e934e85789aa8900e5663d419"


def defined(id: str = "tone", **more: Any) -> ScoreDefinition:
    return ScoreDefinition(**{"scorer_id": id, "implementation_hash": "0" * 64, "pass_threshold": 0.7, **more})


# --- canonical text -----------------------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_original() -> None:
    assert canonical_digest({"kind": "legacy-test"}) == LEGACY_IMPLEMENTATION


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        (-0.0, "0"),
        (1.0, "1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (123.456, "123.456"),
        (-1.5e300, "-1.5e+300"),
        (2**60 + 1, "1152921504606846977"),
        ("a\u2028é\x01\"", '"a\u2028é\\u0001\\""'),
        ("\ud800", '"\\ud800"'),
        # A character beyond the basic plane begins with a surrogate, and so comes before U+FF5E.
        ({"～": 1, "😀": 2}, '{"😀":2,"～":1}'),
    ],
)  # fmt: skip
def test_a_value_has_one_text(value: Any, text: str) -> None:
    assert canonical_json(value) == text


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=-(10**14), max_value=10**14), st.integers(min_value=-30, max_value=30))
def test_numbers_are_written_as_javascript_writes_them(digits: int, exponent: int) -> None:
    value = float(f"{digits}e{exponent}")
    assert canonical_json(value) == quickjs.Context().eval(f"JSON.stringify({value!r})")


@settings(max_examples=150, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_of_a_number_is_lost(value: float) -> None:
    assert float(canonical_json(value)) == value


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
@pytest.mark.timeout(60)
def test_the_text_parses_to_the_value_in_any_member_order(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, {"a": {1, 2}}, object(), b"x"])
def test_values_without_a_json_form_are_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical_json(value)


def test_circular_or_too_deep_values_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested"):
        canonical_json(loop)
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    assert canonical_json(deep).endswith("]")


# --- definitions --------------------------------------------------------------------------------------------------------------


def test_the_hash_of_a_definition_is_that_of_the_original() -> None:
    legacy = ScoreDefinition(scorer_id="legacy:test", implementation_hash=LEGACY_IMPLEMENTATION, label="test()")
    assert definition_hash(legacy) == LEGACY_DEFINITION
    assert definition_hash(msgspec.structs.replace(legacy, label="another")) == LEGACY_DEFINITION


@pytest.mark.parametrize(
    "change",
    [
        {"scorer_id": "other"},
        {"id_source": "generated"},
        {"scorer_version": "2"},
        {"implementation_hash": "1" * 64},
        {"deterministic": False},
        {"pass_threshold": 0.71},
        {"role": "advisory"},
        {"on_error": "ignore"},
        {"on_skipped": "ignore"},
        {"model": "m"},
        {"scope": {"kind": "turn", "promptIndex": 0}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_changes_the_grading_changes_the_hash(change: dict[str, Any]) -> None:
    assert definition_hash(defined(**change)) != definition_hash(defined())


def test_policies_follow_the_role_unless_they_are_written() -> None:
    assert (defined().on_error, defined().on_skipped) == ("fail", "fail")
    advisory = defined(role="advisory", on_error="fail")
    assert (advisory.on_error, advisory.on_skipped) == ("fail", "ignore")


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "x" * 129},
        {"pass_threshold": 1.1},
        {"pass_threshold": -1},
        {"pass_threshold": math.nan},
        {"role": "boss"},
        {"on_error": "no"},
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        defined(**wrong)


def test_the_hash_of_a_config_does_not_depend_on_the_order() -> None:
    one, two = defined("a"), defined("b")
    assert evaluation_config_hash([one, two]) == evaluation_config_hash([two, one]) == canonical_digest([one.graded_by(), two.graded_by()])
    assert EvaluationConfig.of([two, one]).definitions == (two, one)
    with pytest.raises(ValueError, match="two scorers have the id 'a'"):
        EvaluationConfig.of([one, one])


def test_the_hash_of_a_suite_keeps_duplicates() -> None:
    assert suite_config_hash(["b", "a"]) == suite_config_hash(["a", "b"]) == canonical_digest(["a", "b"])
    assert suite_config_hash(["a"]) != suite_config_hash(["a", "a"])


# --- rows ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "passed"), [(0, False), (0.69, False), (0.7, True), (1, True)])
def test_the_threshold_decides(value: float, passed: bool) -> None:
    row = make_row(defined(), scored(value, "so so", evidence=["one"], scope={"kind": "turn"}))
    assert (row.status, row.value, row.passed, row.rationale, row.evidence, row.error) == ("scored", value, passed, "so so", ("one",), None)
    assert row.definition_hash == definition_hash(defined()) and row.scope == {"kind": "turn"} and row.pass_threshold == 0.7


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, math.inf, 10**400, "1", None, [1]])
def test_an_invalid_score_is_an_error_and_is_never_clamped(value: Any) -> None:
    row = make_row(defined(), ScoreOutcome(kind="scored", value=value, rationale="why"))
    assert row.status == "error" and row.value is None and row.passed is None and "0 to 1" in (row.error or "") and row.rationale is None


def test_only_scored_rows_have_a_value_and_only_errors_an_error() -> None:
    for outcome, status in ((skipped("why"), "skipped"), (not_applicable("why"), "not_applicable")):
        row = make_row(defined(model="m"), outcome)
        assert (row.status, row.value, row.passed, row.rationale, row.error, row.model) == (status, None, None, "why", None, "m")
    assert make_row(defined(), make_error_outcome(" ")).error == "unknown error"


def test_long_texts_are_cut() -> None:
    row = make_row(defined(), scored(1, "r" * 5000, evidence=["e" * 400] * 30))
    assert len(row.rationale or "") == LONGEST_RATIONALE and len(row.evidence) == MOST_EVIDENCE
    assert {len(each) for each in row.evidence} == {LONGEST_EVIDENCE}
    assert len(make_row(defined(), make_error_outcome("x" * 900)).error or "") == LONGEST_ERROR


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (True, scored(1.0)),
        (False, scored(0.0)),
        (0.25, scored(0.25)),
        (1, scored(1)),
        ({"kind": "scored", "value": 0.5, "promptHash": "h", "evidence": ["e"]}, scored(0.5, prompt_hash="h", evidence=["e"])),
        ({"kind": "skipped", "rationale": "r"}, skipped("r")),
        ({"kind": "not_applicable"}, not_applicable()),
    ],
)  # fmt: skip
def test_a_scorer_may_answer_in_several_ways(answer: Any, outcome: ScoreOutcome) -> None:
    assert read_outcome(answer) == outcome


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "found null"),
        ("yes", "found text"),
        ({"kind": "great"}, "cannot be used"),
        ({"value": 1}, "cannot be used"),
        ({"kind": "scored", "vlaue": 1}, "nearest: 'value'"),
        ({"kind": "scored", "value": 1, "passed": True}, "no member 'passed'"),
    ],
)
def test_an_invalid_answer_is_refused(answer: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        read_outcome(answer)


# --- the rule -----------------------------------------------------------------------------------------------------------------


def given_rows(given: dict[str, Any]) -> tuple[EvaluationConfig, list[Any]]:
    definitions: list[ScoreDefinition] = []
    found: list[Any] = []
    for number, row in enumerate(given["rows"]):
        policies = {key: row[key] for key in ("role", "on_error", "on_skipped") if key in row}
        definition = defined(f"s{number}", **policies)
        definitions.append(definition)
        if row["status"] == "none":
            continue
        made = make_row(definition, ScoreOutcome(kind=row["status"], value=row.get("value"), rationale="why"))
        found.append(msgspec.structs.replace(made, definition_hash=row["hash"]) if "hash" in row else made)
    return EvaluationConfig.of(definitions), found


@rows("conformance/mcpjam/scoring.yaml")
def test_an_iteration_passes_by_its_rows(row: dict[str, Any]) -> None:
    config, found = given_rows(row["given"])
    assert is_passed(found, config) is row["expect"]


def test_a_row_without_a_definition_fails_an_iteration() -> None:
    config, found = given_rows({"rows": [{"status": "scored", "value": 1}]})
    assert is_passed(found, config) and not is_passed([*found, make_row(defined("stranger"), scored(1))], config)


@pytest.mark.parametrize("change", [{"pass_threshold": 0.1, "passed": True}, {"passed": True}, {"value": 1.0}])
def test_a_row_cannot_bring_its_own_verdict(change: dict[str, Any]) -> None:
    definition = defined()
    forged = msgspec.structs.replace(make_row(definition, scored(0.2)), **change)
    assert not is_passed([forged], EvaluationConfig.of([definition]))
    assert score_integrity([forged], [definition]) == "invalid"


def test_rows_that_belong_to_their_definitions_are_sound() -> None:
    definition = defined()
    sound = [make_row(definition, outcome) for outcome in (scored(0.2), scored(0.9), skipped(), not_applicable(), make_error_outcome("x"))]
    assert score_integrity(sound, [definition]) == "valid"
    assert score_integrity(sound, []) == "invalid"
    assert score_integrity([msgspec.structs.replace(sound[2], value=1.0)], [definition]) == "invalid"
