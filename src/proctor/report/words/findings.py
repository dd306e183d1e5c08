"""Details of a verdict as short lines below its reason.

Shows what a person looks for first: fields and phrases that fail, calls that are missing, extra, out of order or have other arguments, and
who judged. Other details are in the JSON. Rows may come from plugins, so their shape is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.words.wording import LABEL_WIDTH, number_words, pad_label, weight_words

_VARIABLE = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'" + r"|\d+(?:[.,:]\d+)*")
"""The parts in which similar reasons may differ."""


def find_shape(reason: str) -> str:
    """Return a reason without the parts in which similar reasons may differ."""
    return _VARIABLE.sub("…", reason)


def list_rows(value: Json) -> list[Json]:
    """Return the rows of a list, or none."""
    return list(value) if isinstance(value, (list, tuple)) else []


def find_part(row: Json, *names: str) -> Json:
    """Return the first of these fields that a row has."""
    for name in names:
        if isinstance(row, dict):
            if name in row:
                return row[name]
        elif isinstance(row, msgspec.Struct) and hasattr(row, name):
            return getattr(row, name)
    return None


def phrase_holds(row: Json) -> bool:
    """Return whether a phrase occurs if expected, and does not if forbidden."""
    passed = find_part(row, "passed")
    return bool(passed) if passed is not None else bool(find_part(row, "found")) is not bool(find_part(row, "forbidden"))


_MOST_MODELS = 4
"""Models of a jury that are named."""
_NAME = 80
"""Characters of a model's name."""
_REPLY = 160
"""Characters of a reply that could not be read."""


def judge_words(verdict: Verdict) -> str:
    """Return who judged and how: `gpt-4o · score 0.79, passes from 0.8 · 2 yes, 1 no`; empty without a judge."""
    details = verdict.details
    judge = _name_judge(details)
    # The reason of a judge without an answer already names it.
    if not judge or (verdict.outcome == "error" and judge in verdict.reason and not _list_rows_with_votes(details.get("samples"))):
        return ""
    return " · ".join(part for part in (judge, _score(verdict), _describe_votes(details.get("samples"))) if part)


def reply_words(verdict: Verdict) -> str:
    """Return the start of an unreadable reply of the judge, or ""."""
    if verdict.outcome != "error" or not (verdict.code or "").startswith("judge_"):
        return ""
    replies = list_rows(verdict.details.get("replies"))
    last = replies[-1] if replies else None
    # A metric has votes on each point, a comparison in each order.
    parts = [verdict.details, *list_rows(verdict.details.get("points")), *list_rows(verdict.details.get("orders"))]
    decided = any(_list_rows_with_votes(find_part(part, "samples")) for part in parts)
    return show(last, _REPLY) if isinstance(last, str) and not decided else ""


def _name_judge(details: dict[str, Json]) -> str:
    models = [shorten(model, _NAME) for model in list_rows(details.get("models")) if isinstance(model, str)]
    name = details.get("judge")
    if len(models) > 1:
        more = len(models) - _MOST_MODELS
        return ", ".join(models[:_MOST_MODELS]) + (f" and {more:,} more" if more > 0 else "")
    if isinstance(name, str) and name:
        return shorten(name, _NAME) + (f" ({models[0]})" if models and models[0] != name else "")
    return models[0] if models else ""


def _score(verdict: Verdict) -> str:
    threshold = _number(verdict.details.get("threshold"))
    if threshold is None or not _list_rows_with_votes(verdict.details.get("samples")):
        return ""
    least = weight_words(threshold)
    # A violated constraint sets the outcome and the score of the claim, not of its criterion.
    criterion = verdict.details.get("criterion")
    if (find_part(criterion, "outcome") or verdict.outcome) == "error":
        return f"passes from {least}"
    score = _number(find_part(criterion, "score"))
    reached = number_words(verdict.score if score is None else score)
    return f"score {reached}, passes from {least}"


def _describe_votes(samples: Json) -> str:
    """Return how many answers agreed and how many are missing."""
    rows = list_rows(samples)
    if len(rows) < 2:
        return ""
    votes = _list_rows_with_votes(samples)
    yes = sum(bool(find_part(row, "passed")) for row in votes)
    parts = [f"{yes:,} yes, {len(votes) - yes:,} no"] if votes else []
    if len(votes) < len(rows):
        parts.append(f"{len(rows) - len(votes):,} without an answer")
    return ", ".join(parts)


def _list_rows_with_votes(samples: Json) -> list[Json]:
    return [row for row in list_rows(samples) if isinstance(find_part(row, "passed"), bool)]


def _number(value: Json) -> float | None:
    return float(value) if is_number(value) else None


_LABELS = ("missing", "extra", "arguments", "order", "expected", "found", "judge", "replied")
_MOST_ROWS = 8
"""Findings listed under one verdict."""
_VALUE = 100
"""Characters of a value."""


def write_findings(verdict: Verdict) -> list[str]:
    """Return the details of a verdict, one line per finding."""
    details = verdict.details
    if not details:
        return []
    lines: list[str] = []
    for key in ("field_results", "assertion_results"):
        rows = list_rows(details.get(key))
        broken = [row for row in rows if not find_part(row, "passed")]
        lines += [
            *_write_share(rows, broken, "fields", verdict.reason),
            *_bound_lines((_write_field(row) for row in broken), len(broken)),
        ]
    lines += _write_phrases(details.get("phrase_results"), verdict.reason)
    lines += _write_rows("missing", details.get("missing"), _write_call)
    lines += _write_rows("extra", details.get("extra"), _write_call)
    lines += _write_rows("arguments", details.get("argument_mismatches"), _write_mismatch)
    lines += _write_rows("order", details.get("out_of_order"), _write_order)
    lines += _pair_lines(details, verdict.reason)
    labelled = (("replied", reply_words(verdict)), ("judge", judge_words(verdict)))
    lines += [_label_text(label, text) for label, text in labelled if text]
    if isinstance(details.get("traceback"), str):
        # The end of a traceback is the most useful part.
        lines += details["traceback"][-4000:].rstrip().splitlines()[-10:]
    return lines


def measure_hanging_indent(line: str) -> int:
    """Return the indent of the second and following lines of a finding."""
    if line.startswith(tuple(pad_label(label) for label in _LABELS)):
        return LABEL_WIDTH
    return 2 if line.startswith("✗ ") else 0


def _bound_lines(lines: Iterable[str], total: int) -> list[str]:
    bounded: list[str] = []
    for line in lines:
        if len(bounded) == _MOST_ROWS:
            return [*bounded, f"… {total - _MOST_ROWS:,} more"]
        bounded.append(line)
    return bounded


def _name(value: Json) -> str:
    return shorten(value, _VALUE) if isinstance(value, str) else show(value, _VALUE)


def _write_share(rows: list[Json], broken: list[Json], name: str, reason: str) -> list[str]:
    """Return `1 of 3 fields hold`, unless the reason has it."""
    passing = len(rows) - len(broken)
    return [f"{passing:,} of {len(rows):,} {name} hold"] if rows and f"{passing} of {len(rows)}" not in reason else []


def _write_field(row: Json) -> str:
    path, expected, actual = (find_part(row, name) for name in ("path", "expected", "actual"))
    return f"✗ {_write_sides(_name(path), expected, actual)}"


def _write_sides(name: str, expected: Json, actual: Json) -> str:
    return f"{name}: expected {show(expected, _VALUE)}, found {show(actual, _VALUE)}"


def _write_phrases(value: Json, reason: str) -> list[str]:
    rows = list_rows(value)
    broken = [row for row in rows if not phrase_holds(row)]
    return [
        *_write_share(rows, broken, "phrases", reason),
        *_bound_lines((f"✗ {_write_phrase(row)}" for row in broken), len(broken)),
    ]


def _write_phrase(row: Json) -> str:
    phrase = show(find_part(row, "phrase"), _VALUE)
    if not find_part(row, "found"):
        return f"{phrase} was not found"
    turn = find_part(row, "turn")
    if turn is None:
        return f"{phrase} was found"
    # A number is an index from 0; a text quotes the turn.
    if isinstance(turn, int):
        return f"{phrase} was found in turn {turn + 1:,}"
    return f"{phrase} was found: {show(turn, _VALUE)}"


def _write_rows(label: str, value: Json, write: Callable[[Json], str]) -> list[str]:
    rows = list_rows(value)
    return _bound_lines((_label_text(label, write(row)) for row in rows), len(rows))


def _label_text(label: str, text: str) -> str:
    return pad_label(label) + text


def _write_call(row: Json) -> str:
    """Return a call as `search {"q":"x"}`."""
    name = find_part(row, "name", "tool_name", "toolName")
    if name is None:
        return _name(row)
    arguments = find_part(row, "arguments", "args")
    return f"{_name(name)} {show(arguments, _VALUE)}" if arguments else _name(name)


def _write_mismatch(row: Json) -> str:
    name = find_part(row, "tool_name", "toolName", "name")
    if name is None:
        return _name(row)
    expected, actual = find_part(row, "expected_args", "expectedArgs", "expected"), find_part(row, "actual_args", "actualArgs", "actual")
    return _write_sides(_name(name), expected, actual)


def _write_order(row: Json) -> str:
    name = find_part(row, "tool_name", "toolName", "name")
    if name is None:
        return _name(row)
    expected, actual = find_part(row, "expected_index", "expectedIndex"), find_part(row, "actual_index", "actualIndex")
    return f"{_name(name)}: expected at position {show(expected)}, found at {show(actual)}"


def _pair_lines(details: Mapping[str, Json], reason: str) -> list[str]:
    """Return `expected` and `actual` side by side, unless the reason already shows them."""
    found_key = next((key for key in ("actual", "found") if key in details), None)
    if "expected" not in details or found_key is None:
        return []
    expected, found = details["expected"], details[found_key]
    if _is_shown(expected, reason) and _is_shown(found, reason):
        return []
    return [_label_text("expected", show(expected)), _label_text("found", show(found))]


def _is_shown(value: Json, reason: str) -> bool:
    """Return whether a reason contains a value, or the text that a check made of it."""
    if isinstance(value, list) and value:
        return all(_is_shown(entry, reason) for entry in value)
    return show(value) in reason or (isinstance(value, str) and value in reason)
