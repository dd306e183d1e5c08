"""The types of the cells of a text file: text, unless `types` sets another one.

An empty cell of any other type is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from proctor.expressions.text_form import write_text_form
from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.show import show

TYPES = ("text", "number", "integer", "boolean", "json")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\Z")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MOST_DIGITS = 300


def convert_cells(values: Mapping[str, Json], types: Mapping[str, str], reading: Reading, place: Located) -> dict[str, Json]:
    """Return the values of a row as the types say; a cell that is none of its type is a problem."""
    found = dict(values)
    for column, kind in types.items():
        if column not in found:
            continue
        try:
            found[column] = convert_cell(found[column], kind)
        except ValueError as error:
            reading.error(place, f"column {column!r}: {error}", code="bad_cell")
    return found


def convert_cell(value: Json, kind: str) -> Json:
    """Return a value as another type; raises `ValueError` saying what was found."""
    if kind == "text":
        return write_text_form(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    if kind == "json":
        return _read_json(text)
    if kind == "boolean":
        if text.lower() not in _WORDS:
            raise ValueError(f"expected true or false, found {show(value, 60)}")
        return _WORDS[text.lower()]
    if not _NUMBER.match(text) or len(text) > _MOST_DIGITS:
        raise ValueError(f"expected a number, found {show(value, 60)}")
    number = float(text)
    if number.is_integer() and ("." not in text and "e" not in text.lower()):
        return int(text)
    if kind == "integer":
        raise ValueError(f"expected a whole number, found {show(value, 60)}")
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"expected a number, found {show(value, 60)}")
    return number


def _read_json(text: str) -> Json:
    def refuse(name: str) -> Json:
        raise ValueError(f"{name} is not JSON")

    def build(members: list[tuple[str, Json]]) -> Json:
        built = dict(members)
        if len(built) < len(members):
            twice = next(key for number, (key, _) in enumerate(members) if any(key == other for other, _ in members[:number]))
            raise ValueError(f"duplicate key {show(twice, 60)} in one object")
        return built

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, found {show(text, 60)} ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
