"""Expected beside found, for every kind of verdict.

Checks tell what they expected and found in their details where they can, and in the words of their reason where not. All of it
becomes comparisons of one shape: what it is about, what was expected, what was found, or one remark where there are no two sides.
Rows come from any check, also one of another distribution, so nothing is taken for granted about their shape. Details that are no
comparison stay JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from proctor.model.evidence import Json
from proctor.model.verdict import Verdict
from proctor.report.words.detail_rows import find_part, phrase_holds
from proctor.report.words.html_text import write_block, write_label, write_pretty
from proctor.report.words.judge import judge_words, reply_words
from proctor.report.words.wording import ReasonParts, split_reason

MOST_COMPARISONS = 60
"""Rows of expected and found under one verdict."""
_VALUE = 3000
"""Characters of a value."""

Comparison = dict[str, Json]


class Explanation(msgspec.Struct, frozen=True):
    """What a verdict tells."""

    rows: list[Comparison]
    reason: str
    """Empty where the rows are the reason itself, taken apart."""
    rest: dict[str, Json]
    """The details that no row shows."""


def explain_in_rows(verdict: Verdict) -> Explanation:
    """Return the comparisons of a verdict, and what remains of its reason and details."""
    details = verdict.details
    rows = list(islice(_from_details(details), MOST_COMPARISONS + 1))
    if len(rows) > MOST_COMPARISONS:
        rows[-1] = {"remark": "and more, which the JSON result lists in full"}
    shown = {key for key in _READERS if _is_list(details.get(key))} | {"held", "total", "hint", "traceback"}
    reason = verdict.reason
    if "expected" in details and _find_found_key(details) is not None:
        shown |= {"expected", _find_found_key(details) or ""}
    sides = split_two_sides(reason) if not rows and verdict.outcome == "fail" else None
    if sides is not None:
        rows.append(_pair(sides.about, write_block(sides.expected, _VALUE), write_block(sides.found, _VALUE)))
        reason = ""
        shown.add("expected")
    for about, text in (("replied", reply_words(verdict)), ("judge", judge_words(verdict))):
        if text:
            rows.append({"about": about, "remark": write_block(text, 600)})
    if isinstance(details.get("hint"), str):
        rows.append({"about": "hint", "remark": write_block(details["hint"], 600)})
    return Explanation(
        rows, reason, {key: value for key, value in details.items() if key not in shown and value is not None and value != []}
    )


def split_two_sides(reason: str) -> ReasonParts | None:
    """Return a reason taken apart at `found`, or at the first semicolon behind what was expected, outside of quotes."""
    parts = split_reason(reason)
    if parts is not None:
        return parts
    if "\n" in reason or not reason.startswith("expected "):
        return None
    expected, semicolon, found = reason.removeprefix("expected ").partition("; ")
    if not semicolon or not expected or not found or expected.count('"') % 2:
        return None
    return ReasonParts("", expected, found.removeprefix("found "))


def _pair(about: Json, expected: str, found: str, holds: bool = False) -> Comparison:
    comparison: Comparison = {"expected": expected, "found": found}
    if about:
        comparison["about"] = _name(about)
    if holds:
        comparison["holds"] = True
    return comparison


def _from_details(details: dict[str, Json]) -> Iterator[Comparison]:
    for key, read in _READERS.items():
        if _is_list(details.get(key)):
            yield from (read(row) for row in details[key])
    yield from _compare_whole(details)
    if isinstance(details.get("traceback"), str):
        # The end of a traceback says most.
        yield {"remark": write_block(details["traceback"][-4000:]), "about": "traceback"}


def _compare_whole(details: dict[str, Json]) -> Iterator[Comparison]:
    """Yield `expected` beside whatever stands for what was found."""
    found = _find_found_key(details)
    if "expected" in details and found is not None:
        yield _pair("", _write_json(details["expected"]), _write_json(details[found]))


def _find_found_key(details: dict[str, Json]) -> str | None:
    return next((key for key in ("actual", "tools_called", "found") if key in details), None)


def _is_list(value: Json) -> bool:
    return isinstance(value, (list, tuple))


def _name(value: Json) -> str:
    return write_label(value, 300) if isinstance(value, str) else write_label(write_pretty(value, 300), 300)


def _compare_field(row: Json) -> Comparison:
    expected, actual = find_part(row, "expected"), find_part(row, "actual")
    return _pair(find_part(row, "path"), _write_json(expected), _write_json(actual), bool(find_part(row, "passed")))


def _write_json(value: Json) -> str:
    """Write a value as JSON with text in quotes: beside a number it matters which of the two is text."""
    return (
        # Inside a list, as a text by itself would be written without its quotes.
        write_pretty([value], _VALUE).removeprefix("[").removesuffix("]").strip() if isinstance(value, str) else write_pretty(value, _VALUE)
    )


def _compare_phrase(row: Json) -> Comparison:
    said, forbidden, turn = (find_part(row, name) for name in ("found", "forbidden", "turn"))
    phrase = _write_json(find_part(row, "phrase"))
    if not said:
        told = "never said"
    elif turn is None:
        told = "said"
    else:
        # A number counts from 0 like every index into evidence; a text quotes the turn itself.
        told = f"said in turn {turn + 1:,}" if isinstance(turn, int) else write_pretty(turn, 600)
    wanted = f"never {phrase}" if forbidden else phrase
    return _pair("phrase", wanted, told, phrase_holds(row))


def _call(row: Json) -> str:
    """Return a call as its name with the arguments below it."""
    name = find_part(row, "name", "tool_name", "toolName", "tool")
    if name is None:
        return write_pretty(row, _VALUE)
    arguments = find_part(row, "arguments", "args")
    return f"{_name(name)}\n{write_pretty(arguments, _VALUE)}" if arguments else _name(name)


def _compare_missing(row: Json) -> Comparison:
    return _pair("missing call", _call(row), "not called")


def _compare_extra(row: Json) -> Comparison:
    return _pair("further call", "no such call", _call(row))


def _compare_mismatch(row: Json) -> Comparison:
    expected, actual = find_part(row, "expected_args", "expectedArgs", "expected"), find_part(row, "actual_args", "actualArgs", "actual")
    name = find_part(row, "tool_name", "toolName", "name", "tool")
    return (
        {"remark": write_pretty(row, _VALUE)}
        if name is None
        else _pair(f"arguments of {_name(name)}", _write_json(expected), _write_json(actual))
    )


def _order(row: Json) -> Comparison:
    name = find_part(row, "tool_name", "toolName", "name", "tool")
    if name is None:
        return {"remark": write_pretty(row, _VALUE)}
    expected, actual = find_part(row, "expected_index", "expectedIndex"), find_part(row, "actual_index", "actualIndex")
    return _pair(f"order of {_name(name)}", _write_position(expected), _write_position(actual))


def _write_position(index: Json) -> str:
    """Write the position of an index: indexes count from 0, people from 1."""
    if isinstance(index, int) and not isinstance(index, bool):
        return f"call {index + 1:,}"
    return write_pretty(index, 100)


def _compare_difference(row: Json) -> Comparison:
    path, why = find_part(row, "path"), find_part(row, "why", "message")
    if not isinstance(why, str):
        return {"remark": write_pretty(row, _VALUE)}
    reason = split_two_sides(why)
    if reason is not None:
        return _pair(path or reason.about, write_block(reason.expected, _VALUE), write_block(reason.found, _VALUE))
    return {"remark": write_block(why, _VALUE), **({"about": _name(path)} if path else {})}


_READERS: dict[str, Callable[[Json], Comparison]] = {
    "field_results": _compare_field,
    "assertion_results": _compare_field,
    "phrase_results": _compare_phrase,
    "missing": _compare_missing,
    "extra": _compare_extra,
    "argument_mismatches": _compare_mismatch,
    "out_of_order": _order,
    "differences": _compare_difference,
    "errors": _compare_difference,
}
