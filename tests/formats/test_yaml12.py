"""YAML 1.2 with positions: the meaning of scalars, the places of values, and problems."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.formats.text import yaml_events
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.yaml12 import MAX_COMPLAINTS, MAX_DEPTH, read_yaml
from proctor.formats.text.yaml_text import to_yaml
from tests.formats.test_json_text import VALUES, listed
from tests.tables import rows


def reading_of(text: str) -> tuple[Located | None, Reading]:
    reading = Reading(file="suite.yaml", text=text)
    return read_yaml(text, reading), reading


@pytest.fixture(params=["libyaml", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers: the fast one, and the fallback for when it is missing or refuses an escape."""
    if request.param == "pure":
        monkeypatch.setattr(yaml_events, "cyaml", None)
    return request.param


@rows("formats/cases/yaml12_scalars.yaml")
def test_a_scalar_has_its_core_schema_meaning(row: dict[str, Any], parser: str) -> None:
    document, reading = reading_of(f"key: {row['given']}\n")
    if "problem" in row:
        assert [p.message.startswith(row["problem"]) for p in reading.problems] == [True], listed(reading)
    else:
        assert listed(reading) == []
        assert document is not None
        # As text, because 1 == 1.0 == True in Python.
        assert json.dumps(document.plain()["key"]) == json.dumps(json.loads(row["expect"]))


@rows("formats/cases/yaml12_problems.yaml")
def test_a_faulty_document_is_explained(row: dict[str, Any]) -> None:
    document, reading = reading_of(row["given"])
    assert listed(reading) == row["problems"]
    if "value" in row:
        assert document is not None
        assert json.dumps(document.plain()) == json.dumps(json.loads(row["value"]))


def test_every_value_and_key_has_its_place(parser: str) -> None:
    text = 'scenarios:\n  - id: "é 😀"\n    "odd key": |\n      some\n      text\n    next: plain text # why\n'
    document, _ = reading_of(text)
    assert document is not None
    scenario = document.value["scenarios"].value[0]
    assert (scenario.line, scenario.column, scenario.path) == (2, 5, "$.scenarios[0]")
    assert scenario.key_at == {"id": (2, 5), "odd key": (3, 6), "next": (6, 5)}
    assert (scenario.value["id"].line, scenario.value["id"].column, scenario.value["id"].width) == (2, 9, 5)
    block = scenario.value["odd key"]
    assert (block.line, block.column, block.width, block.path) == (3, 16, 1, '$.scenarios[0]["odd key"]')
    assert (scenario.value["next"].line, scenario.value["next"].column, scenario.value["next"].width) == (6, 11, 10)


def test_an_alias_has_the_path_of_its_use_and_the_place_of_its_anchor() -> None:
    document, _ = reading_of("a: &x\n  b: 1\nc: [*x]\n")
    assert document is not None
    copied = document.value["c"].value[0].value["b"]
    assert (copied.path, copied.line, copied.column) == ("$.c[0].b", 2, 6)


def test_the_same_value_is_read_with_and_without_a_byte_order_mark() -> None:
    with_mark, without = reading_of("\ufeffa: 1\n")[0], reading_of("a: 1\n")[0]
    assert with_mark == without


def test_nesting_has_a_limit_that_is_named(parser: str) -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert reading_of(deepest)[0] is not None
    for text in ("[" + deepest + "]", "[" * 20_000, "- " * 20_000, "{a: " * 20_000):
        document, reading = reading_of(text)
        assert document is None
        assert [p.message for p in reading.problems] == [f"nested more than {MAX_DEPTH} levels deep"]


@pytest.mark.parametrize("large", ["x" * 100_000, "{? " + "k" * 100_000 + " : 1}"])
def test_long_texts_count_as_many_values_through_aliases(large: str) -> None:
    for times, problems in ((90, []), (200, ["aliases make this document too large"])):
        _, reading = reading_of(f"a: &x {large}\nb: [{', '.join(['*x'] * times)}]\n")
        assert [p.message for p in reading.problems] == problems


def test_nesting_through_aliases_is_limited() -> None:
    levels = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]\n" for n in range(1, 30))
    document, reading = reading_of(levels)
    assert document is None
    assert [p.message for p in reading.problems] == ["aliases make this document too large"]


def test_a_billion_laughs_are_refused() -> None:
    laughs = "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
    laughs += "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    document, reading = reading_of(laughs)
    assert document is None
    assert [p.message for p in reading.problems] == ["aliases make this document too large"]


def test_a_long_key_over_many_values_does_not_multiply() -> None:
    document, _ = reading_of(f"{'k' * 900}:\n" + "- 1\n" * 2000)
    assert document is not None
    values = next(iter(document.value.values())).value
    assert len(values) == 2000
    assert max(sys.getsizeof(node.path) for node in values) < 1000


def test_the_number_of_problems_is_limited() -> None:
    document, reading = reading_of("a: 1\n" * 10_000)
    assert document is None
    assert len(reading.problems) == MAX_COMPLAINTS


def test_an_absurdly_long_number_is_a_problem_not_a_crash() -> None:
    for text in ("9" * 5000, "0x" + "f" * 5000):
        _, reading = reading_of(f"a: {text}\n")
        assert listed(reading) == [f"1:4 a number of {len(text)} characters is too long"]


def test_the_hint_for_a_kept_escape_suggests_single_quotes() -> None:
    _, reading = reading_of('pattern: "refund\\s+(processed|completed)"\n')
    assert reading.problems[0].render() == (
        "suite.yaml:1:17: warning: \\s is not a YAML escape; the backslash stays as written\n"
        '    1 | pattern: "refund\\s+(processed|completed)"\n'
        "      |                 ^^\n"
        "  write the text in single quotes, where a backslash is a backslash"
    )


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_json_output_is_valid_yaml(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps({"v": value}, indent=indent, ensure_ascii=ascii_only)
    document, reading = reading_of(text)
    if any(p.message.startswith("the character U+") for p in reading.problems):
        assert not ascii_only  # a raw control character such as U+007F, which JSON allows and YAML does not
        return
    assert document is not None and not reading.problems
    assert json.dumps(document.plain()) == json.dumps({"v": value})


WORDS = "a|b: |: |- |\n|\n  |\n    |[|]|{|}|,|\"|'|>|&x |*x|!!str |!t |#|? |---|...|%|\\|\\s|\t|012|1e3|.inf|~|true|<<: |@|é😀"
FRAGMENTS = st.lists(st.sampled_from([*WORDS.split("|"), "|", "\u2028", "\x85", "\ufeff", "\x00"]), max_size=25).map("".join)


@given(FRAGMENTS | st.text(max_size=200))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_reported(text: str) -> None:
    document, reading = reading_of(text)
    assert document is not None or any(p.level == "error" for p in reading.problems)
    for problem in reading.problems:
        problem.render()
    if document is not None:
        json.dumps(document.plain(), allow_nan=False)


@given(FRAGMENTS)
@settings(max_examples=200, deadline=None)
def test_places_point_at_the_text(text: str) -> None:
    document, reading = reading_of(text)
    if document is None or reading.problems:
        return
    lines = [reading.find_excerpt(n) for n in range(1, 60)]
    waiting = [document]
    while waiting:
        node = waiting.pop()
        line = lines[node.line - 1]
        assert line is not None and node.column <= len(line) + 1
        waiting.extend(node.value.values() if node.is_object else node.value if node.is_list else ())


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    assert to_yaml({"a\ud800": "x\udc00 \U0001f600"}) == '"a\\ud800": "x\\udc00 \U0001f600"\n'
