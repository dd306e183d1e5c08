from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

import proctor
from proctor.checks.judged.goal import GoalReached
from proctor.checks.registry import default_registry
from proctor.formats.native.schema import build_native_schema
from proctor.formats.native.text import write_native
from proctor.model.case import Scoring

GOLDEN = Path(__file__).parent / "golden" / "native"
SHORT = """
proctor: 1
name: Short
scoring: weighted
tags: [all]
cases:
  first:
    input: hello
    tags: {area: greeting}
    expect:
      - response_contains: hi
        id: greets
        weight: 2
        axis: manners
      - tool_called: search
        depends_on: greets
        required: true
      - no_tool_errors
      - tools_in_order: [a, b]
        advisory: true
        when_missing: skip
    extract: {total: 'total (\\d+)'}
    repeat: 3
    pass_rate: 0.5
  second:
    turns:
      - good morning
      - {input: bye, expect: {response_contains: bye}}
    skip: not ready
"""


def test_the_short_spelling_is_read() -> None:
    suite = proctor.parse_suite(SHORT)
    first, second = suite.cases
    assert [a.check for a in first.assertions] == ["response_contains", "tool_called", "no_tool_errors", "tools_in_order"]
    greets, called, errors, order = first.assertions
    assert (greets.id, greets.weight, greets.axis, greets.label) == ("greets", 2.0, "manners", "response_contains · hi")
    assert (called.depends_on, called.required) == (("greets",), True)
    assert (order.advisory, order.when_missing) == (True, "skip")
    assert errors.label == "no_tool_errors"
    assert first.scoring == Scoring(mode="weighted")
    assert first.tags == {"all": True, "area": "greeting"}
    assert (first.repetitions, first.pass_threshold, first.captures[0].name) == (3, 0.5, "total")
    assert [turn.input for turn in second.turns] == ["good morning", "bye"]
    assert second.assertions[0].turn == 1
    assert second.skip is not None and second.skip.reason == "not ready"


def test_a_written_suite_is_read_back_unchanged() -> None:
    once = write_native(proctor.parse_suite(SHORT))
    assert write_native(proctor.parse_suite(once)) == once


@pytest.mark.parametrize("body", ["0", "false", "''", "[]", "{}", "{a: 0}"])
def test_any_body_can_be_written(body: str) -> None:
    suite = proctor.parse_suite(f"proctor: 1\ncases: [{{id: a, body: {body}, expect: [no_tool_errors]}}]")
    (case,) = proctor.parse_suite(write_native(suite)).cases
    assert case.custom_body == yaml.safe_load(body) == suite.cases[0].custom_body
    assert type(case.custom_body) is type(suite.cases[0].custom_body)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_mistake_is_reported_in_one_pass(path: Path) -> None:
    with pytest.raises(proctor.InputError) as caught:
        proctor.parse_suite(path.read_text(encoding="utf-8"))
    rendered = str(caught.value) + "\n"
    golden = path.with_suffix(".txt")
    if os.environ.get("PROCTOR_REGEN"):
        golden.write_text(rendered, encoding="utf-8")
    # The number of checks is not compared.
    report, wanted = (re.sub(r"one of \d+ checks", "one of N checks", text) for text in (rendered, golden.read_text(encoding="utf-8")))
    assert report == wanted, "if this is meant: PROCTOR_REGEN=1 rewrites it; read the diff"


def test_the_published_schema_accepts_what_the_reader_accepts() -> None:
    validator = jsonschema_rs.Draft202012Validator(build_native_schema(default_registry()))
    validator.validate(yaml.safe_load(SHORT))
    examples = Path(proctor.__file__).parent / "examples" / "native" / "suite.yaml"
    validator.validate(yaml.safe_load(examples.read_text(encoding="utf-8")))


BEYOND_A_SCHEMA = ("bad_values_inside", "dependencies", "duplicate_ids", "evidence_paths", "two_inputs")
"""Problems that only compiling and comparing find: a bad pattern, a cycle."""


@pytest.mark.parametrize("path", [p for p in sorted(GOLDEN.glob("*.yaml")) if p.stem not in BEYOND_A_SCHEMA], ids=lambda path: path.stem)
def test_the_published_schema_refuses_what_the_reader_refuses(path: Path) -> None:
    validator = jsonschema_rs.Draft202012Validator(build_native_schema(default_registry()))
    assert not validator.is_valid(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_every_check_has_an_example_that_the_reader_and_the_schema_accept() -> None:
    validator = jsonschema_rs.Draft202012Validator(build_native_schema(default_registry()))
    for entry in default_registry():
        assert entry.example, f"{entry.name} has no example"
        text = "proctor: 1\ncontext: {CUSTOMER: ada}\ncases:\n  - id: c\n    expect:\n"
        text += "\n".join(f"      {line}" for line in f"- {entry.example}".replace("\n", "\n  ").splitlines())
        suite = proctor.parse_suite(text)
        assert suite.cases[0].assertions[0].check == entry.name
        validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "claim",
    [
        "tools_called: []",
        "tools_in_order: {names: []}",
        "tool_calls_match: []",
        "any_tool_called: []",
        "response_contains: ''",
        "response_matches: ''",
        "response_not_contains: ''",
        "judged: {criteria: polite, threshold: 0}",
        "tool_called: {name: look, at_least: 0}",
    ],
)
def test_a_claim_with_a_constant_outcome_gives_a_warning(claim: str) -> None:
    [warning] = proctor.parse_suite(f"{{proctor: 1, cases: [{{id: a, input: hi, expect: [{{{claim}}}]}}]}}").warnings
    assert (warning.code, warning.level) == ("vacuous_claim", "warning")
    assert warning.message.startswith(claim.partition(":")[0])


def test_a_claim_may_be_only_the_name_of_its_check() -> None:
    document = {
        "proctor": 1,
        "cases": [{"id": "a", "turns": [{"input": "hi", "expect": "no_tools_called"}], "expect": "response_not_empty"}],
    }
    (case,) = proctor.parse_suite(json.dumps(document)).cases
    assert [(claim.check, claim.turn) for claim in case.assertions] == [("no_tools_called", 0), ("response_not_empty", None)]
    jsonschema_rs.validator_for(build_native_schema(default_registry())).validate(document)


@pytest.mark.parametrize("written", ["no_tools_caled", "[no_tools_caled]"])
def test_an_unknown_check_name_is_reported_with_the_nearest(written: str) -> None:
    with pytest.raises(proctor.InputError, match=r"unknown check 'no_tools_caled'") as caught:
        proctor.parse_suite(f"proctor: 1\ncases: [{{id: a, input: hi, expect: {written}}}]")
    assert "nearest: 'no_tools_called'" in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "column"),
    [
        ("scoring: {mode: weighted, pass_at: 0}", 38),
        ("scoring: {mode: boolean, pass_at: 0.5}", 37),
        ("scoring: {partial_above: 0.5}", 28),
        ("pass_rate: 0", 14),
    ],
)
def test_a_limit_that_decides_nothing_gives_a_warning(setting: str, column: int) -> None:
    suite = f"proctor: 1\ncases:\n- id: a\n  input: hi\n  {setting}\n  expect: [response_not_empty]\n"
    [warning] = proctor.parse_suite(suite).warnings
    assert (warning.code, warning.level, warning.origin and (warning.origin.line, warning.origin.column)) == (
        "vacuous_claim",
        "warning",
        (5, column),
    )


@pytest.mark.parametrize(
    "claim",
    [
        "tools_exactly: []",
        "tool_calls_match: {negative: true}",
        "tool_calls_match: {max_extra: 0}",
        "response_equals: ''",
        "tool_called: {name: look, at_least: 0, at_most: 2}",
    ],
)
def test_an_empty_value_that_can_fail_is_a_claim(claim: str) -> None:
    assert proctor.parse_suite(f"{{proctor: 1, cases: [{{id: a, input: hi, expect: [{{{claim}}}]}}]}}").warnings == ()


def test_a_dependency_cycle_is_named() -> None:
    expect = ", ".join(f"{{response_contains: x, id: {one}, depends_on: {other}}}" for one, other in ("ab", "bc", "ca"))
    with pytest.raises(proctor.InputError) as caught:
        proctor.parse_suite(f"{{proctor: 1, cases: [{{id: one, expect: [{expect}]}}]}}")
    assert [problem.message for problem in caught.value.problems] == [
        "assertion 'a' depends on itself: a -> b -> c -> a",
        "assertion 'b' depends on itself: b -> c -> a -> b",
        "assertion 'c' depends on itself: c -> a -> b -> c",
    ]


USERS = """
proctor: 1
cases:
  - id: played by a model
    user:
      persona: A customer
      goal: To know when the refund comes
      style: Short
      opening: I was charged twice
      gives_up_after: 3
      stop_when: A day was named
      model: main
    expect: [goal_reached, {judged: is polite}]
  - id: played by a script
    input: hello
    user:
      script: [one, {when: {response_contains: number}, say: "17"}, {when: no_tool_errors, done: true}, {gives_up: true}]
      stop_when: {tool_called: {name: pay_back, arguments: {id: 17}}}
    expect: [goal_reached, {goal_reached: {by: judge, goal: a refund}}]
"""


def test_a_simulated_user_survives_a_round_trip() -> None:
    suite = proctor.parse_suite(USERS)
    model, script = suite.cases
    assert model.user is not None and script.user is not None
    assert (model.input, model.user.gives_up_after, model.user.stop_when, model.user.model) == (
        "I was charged twice",
        3,
        "A day was named",
        "main",
    )
    assert (script.input, script.user.gives_up_after) == ("hello", 8)
    assert [(line.say, line.when and line.when.check, line.ends) for line in script.user.script] == [
        ("one", None, None),
        ("17", "response_contains", None),
        ("", "no_tool_errors", "done"),
        ("", None, "gave_up"),
    ]
    once = write_native(suite)
    again = proctor.parse_suite(once)
    assert write_native(again) == once
    assert [case.assertions[0].spec for case in again.cases] == [case.assertions[0].spec for case in suite.cases]
    jsonschema_rs.Draft202012Validator(build_native_schema(default_registry())).validate(yaml.safe_load(USERS))


def test_the_user_kind_decides_who_judges_the_goal() -> None:
    model, script = proctor.parse_suite(USERS).cases
    decided = [(a.spec.by, a.spec.goal) for case in (model, script) for a in case.assertions if isinstance(a.spec, GoalReached)]
    assert decided == [("judge", "To know when the refund comes"), ("stop_when", ""), ("judge", "a refund")]


def test_a_goal_that_a_script_cannot_reach_is_reported() -> None:
    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, user: {script: [hello]}, expect: [goal_reached]}]")
    assert [(warning.code, "can never hold" in warning.message) for warning in suite.warnings] == [("never_holds", True)]


def test_systems_survive_a_round_trip() -> None:
    text = """
proctor: 1
systems: {clinic: {kind: FHIR, seed: [{resourceType: Patient, id: ann}]}}
cases:
  - id: a
    input: hello
    systems:
      files:
        datasets: [{b.txt: one}, {c.txt: two}]
        scenario: [{drop_file_inbox: {path: a.txt, content: hi}}, {drop_file_inbox: {path: d.txt, content: hi}, after_s: 1.5}]
"""
    suite = proctor.parse_suite(text)
    assert [(system.name, system.kind) for system in suite.cases[0].systems] == [("clinic", "fhir"), ("files", "files")]
    files = suite.cases[0].systems[1]
    assert (files.datasets, [step.after_s for step in files.scenario]) == (({"b.txt": "one"}, {"c.txt": "two"}), [0.0, 1.5])
    again = proctor.parse_suite(write_native(suite))
    assert again.cases[0].systems == suite.cases[0].systems


@pytest.mark.parametrize(
    ("system", "problem"),
    [
        ("{datasets: [{../a: x}]}", "not a path inside the drop"),
        ("{scenario: [{drop_file_inbox: {path: ../a}, after_s: 5}]}", "not a path inside the drop"),
        ("{scenario: [{drop_file_inbox: {path: a}, after_s: -5}]}", "expected seconds from 0"),
        ("{scenario: [{after_s: 5}]}", "a step is an object with one name"),
    ],
)
def test_invalid_systems_are_refused(system: str, problem: str) -> None:
    with pytest.raises(proctor.InputError, match=problem):
        proctor.parse_suite(f"proctor: 1\nsystems: {{files: {system}}}\ncases: [{{id: a, input: hello, expect: [response_exists]}}]")


@pytest.mark.parametrize(
    "claim",
    [
        "request_not_made: {method: DELETE, system: shp}",
        "request_made: {path: /orders, then: [{system: shp}]}",
        "unchanged: [shp/orders/*]",
        "unchanged: {allowed: [{place: /shp/orders/*}]}",
    ],
)
def test_a_claim_about_a_missing_system_is_refused(claim: str) -> None:
    suite = "proctor: 1\nsystems: {{shop: {{kind: records}}}}\ncases: [{{id: a, input: hello, expect: [{claim}]}}]"
    with pytest.raises(proctor.InputError, match="'shp', and the case has none of that name; there are shop"):
        proctor.parse_suite(suite.format(claim=claim))
    proctor.parse_suite(suite.format(claim=claim.replace("shp", "shop")))
    proctor.parse_suite(suite.format(claim="unchanged: ['**', '*/orders/*', 's?op/x']"))
