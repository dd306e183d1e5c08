"""JSON with positions: values, their places, and problems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.formats.text.documents import read_text
from proctor.formats.text.json_text import MAX_COMPLAINTS, MAX_DEPTH, read_json
from proctor.formats.text.located import Located, Reading
from proctor.model.show import show
from tests.tables import rows

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def reading_of(text: str) -> tuple[Located | None, Reading]:
    reading = Reading(file="suite.json", text=text)
    return read_json(text, reading), reading


def listed(reading: Reading) -> list[str]:
    """`line:column message` of every problem, warnings marked."""
    return [f"{'warning: ' if p.level == 'warning' else ''}{p.origin.line}:{p.origin.column} {p.message}" for p in reading.problems]


@rows("formats/cases/json_text.yaml")
def test_a_json_text_is_read_or_its_problems_are_reported(row: dict[str, Any]) -> None:
    document, reading = reading_of(row["given"])
    assert listed(reading) == row.get("problems", [])
    if "value" in row:
        assert document is not None
        assert json.dumps(document.plain()) == json.dumps(json.loads(row["value"]))
    else:
        assert reading.problems


def test_every_value_and_key_has_its_place() -> None:
    text = '{\r\n  "name": "x",\r  "odd key": [10, {"b": null}]\n}'
    document, _ = reading_of(text)
    assert document is not None
    name, odd = document.value["name"], document.value["odd key"]
    assert (document.line, document.column, document.width) == (1, 1, 1)
    assert (name.line, name.column, name.width, name.path) == (2, 11, 3, "$.name")
    assert document.key_at == {"name": (2, 4), "odd key": (3, 4)}
    assert (odd.value[0].line, odd.value[0].column, odd.value[0].width) == (3, 15, 2)
    assert odd.value[1].value["b"].path == '$["odd key"][1].b'


def test_nesting_has_a_limit_that_is_named() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert reading_of(deepest)[0] is not None
    for text in ("[" + deepest + "]", "[" * 1_000_000, '{"a":' * 500_000):
        document, reading = reading_of(text)
        assert document is None
        assert [p.message for p in reading.problems] == [f"nested more than {MAX_DEPTH} levels deep"]


def test_the_number_of_problems_is_limited() -> None:
    document, reading = reading_of("[" + "NaN," * 100_000 + "1]")
    assert document is None
    assert len(reading.problems) == MAX_COMPLAINTS


def test_an_absurdly_long_number_is_a_problem_not_a_crash() -> None:
    document, reading = reading_of(f"[{'9' * 5000}]")
    assert document is not None
    assert listed(reading) == ["1:2 a number of 5000 characters is too long"]


def test_a_lone_surrogate_can_be_shown() -> None:
    document, _ = reading_of('{"a\\ud800": "\\udc00"}')
    assert document is not None
    (key, value) = next(iter(document.members()))
    assert value.path == f"$[{show(key)}]"
    value.path.encode()
    show(value.value).encode()


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
@settings(max_examples=150, deadline=None)
@pytest.mark.timeout(60)
def test_any_json_output_is_read_back(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    document, reading = reading_of(text)
    assert document is not None and not reading.problems
    assert json.dumps(document.plain()) == json.dumps(value)
    lines = text.split("\n")
    _assert_places(document, lines)


def _assert_places(node: Located, lines: list[str]) -> None:
    written = lines[node.line - 1][node.column - 1 :]
    if isinstance(node.value, (dict, list)):
        assert written.startswith("{" if isinstance(node.value, dict) else "[")
        for inner in node.value.values() if isinstance(node.value, dict) else node.value:
            _assert_places(inner, lines)
        for line, column in node.key_at.values():
            assert lines[line - 1][column - 2] == '"'
    else:
        assert json.dumps(json.loads(written[: node.width])) == json.dumps(node.value)


@given(VALUES, st.data())
@settings(max_examples=200, deadline=None)
@pytest.mark.timeout(60)
def test_a_damaged_text_is_accepted_exactly_when_the_standard_library_accepts_it(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 2))
    text = (
        text[:at]
        + data.draw(st.sampled_from(["", ",", "]", "}", "[", "{", ":", '"', "0", "-", ".", "e", "\\", " ", "x", "\n"]))
        + text[at + cut :]
    )
    document, reading = reading_of(text)
    try:
        expected = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
        json.dumps(expected, allow_nan=False)
        finite = True
    except (ValueError, RecursionError):
        finite = False
    assert (not reading.problems) == finite
    if finite:
        assert document is not None
        assert json.dumps(document.plain(), ensure_ascii=False) == _replace_surrogates(json.dumps(expected, ensure_ascii=False))


def _refuse(word: str) -> None:
    raise ValueError(word)


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which the standard library keeps."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({_replace_surrogates(key) for key, _ in pairs}) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


@given(st.text(max_size=200) | st.text(alphabet='{}[]",:\\ntruefalse019.eE+-/*# \r\n\t', max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_reported(text: str) -> None:
    document, reading = reading_of(text)
    assert document is not None or reading.problems
    for problem in reading.problems:
        problem.render()


def test_the_file_name_decides_the_format_or_else_the_text() -> None:
    def plain(text: str, file: str | None) -> Any:
        reading = Reading(file=file, text=text)
        document = read_text(text, file=file, reading=reading)
        return None if any(p.level == "error" for p in reading.problems) or document is None else document.plain()

    assert plain('{"a": 1}', "x.json") == {"a": 1}
    assert plain("{a: 1}", "x.json") is None
    assert plain("{a: 1}", "X.YML") == {"a": 1}
    assert plain("{a: yes}", None) == {"a": "yes"}
    assert plain('\ufeff{"a":1}', None) == {"a": 1}
    assert plain('["\\ud83d\\ude00", 1e5]', "suite") == ["😀", 1e5]
    assert plain("a: 1", "suite") == {"a": 1}
    assert plain("", None) is None


def test_a_text_in_neither_format_gets_the_problems_of_json() -> None:
    text = '{"a": [}'
    reading = Reading(file=None, text=text)
    assert read_text(text, file=None, reading=reading) is None
    assert listed(reading) == ["1:8 expected a value, found '}'"]
