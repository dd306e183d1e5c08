"""Details of a verdict as short lines below its reason.

Shows what a person looks for first: fields and phrases that fail, calls that are missing, extra, out of order or have other arguments, and
who judged. Other details are in the JSON. Rows may come from plugins, so their shape is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import is_integer, is_number
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.words.wording import LABEL_WIDTH, pad_label, show_number, weight_words

_VARIABLE = lazy_pattern(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'" + r"|\d+(?:[.,:]\d+)*")
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


_MOST_MODELS = 4
"""Models of a jury that are named."""
_NAME = 80
"""Characters of a model's name."""
_REPLY = 160
"""Characters of a reply that could not be read."""


def describe_judging(verdict: Verdict) -> str:
    """Return who judged and how: `gpt-4o · score 0.79, passes from 0.8 · 2 yes, 1 no`; empty without a judge."""
    details = verdict.details
    judge = _name_judge(details)
    # The reason of a judge without an answer already names it.
    if not judge or (verdict.outcome == "error" and judge in verdict.reason and not _list_rows_with_votes(details.get("samples"))):
        return ""
    return " · ".join(part for part in (judge, _score(verdict), _describe_votes(details.get("samples"))) if part)


def quote_unreadable_reply(verdict: Verdict) -> str:
    """Return the start of an unreadable reply of the judge, or ""."""
    if verdict.outcome != "error" or not (verdict.code or "").startswith("judge_"):
        return ""
    # A metric has votes on each point, a comparison in each order, a claim on each constraint.
    lists = ("points", "orders", "negative_constraints")
    parts = [verdict.details, *(part for name in lists for part in list_rows(verdict.details.get(name)))]
    samples = [list_rows(find_part(part, "samples")) for part in parts]
    undecided = next((rows for rows in samples if rows and not _list_rows_with_votes(rows)), ())
    replies = [reply for row in undecided if isinstance(reply := find_part(row, "reply"), str)]
    return show(replies[-1], _REPLY) if replies else ""


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
    reached = show_number(verdict.score if score is None else score)
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


Kind = Literal["field", "phrase", "missing", "extra", "arguments", "order"]
LISTED: Mapping[str, Kind] = {
    "field_results": "field",
    "assertion_results": "field",
    "phrase_results": "phrase",
    "missing": "missing",
    "extra": "extra",
    "argument_mismatches": "arguments",
    "out_of_order": "order",
}
"""The lists of findings in the details of verdicts."""


class Finding(msgspec.Struct, frozen=True):
    """One row in the details of a verdict."""

    kind: Kind
    subject: Json
    """The path, phrase or tool; None if the row does not name one."""
    expected: Json
    """Of a call its arguments, of a phrase whether it is forbidden, of an order the index."""
    found: Json
    """Of a phrase None if it was not found, else true, the index of the turn, or a quote of it."""
    holds: bool
    row: Json


def read_finding(kind: Kind, row: Json) -> Finding:
    """Return one row of a list of findings."""
    expected, actual = find_part(row, "expected"), find_part(row, "actual")
    match kind:
        case "field":
            return Finding(kind, find_part(row, "path"), expected, actual, bool(find_part(row, "passed")), row)
        case "phrase":
            actual = None
            if find_part(row, "found"):
                turn = find_part(row, "turn")
                actual = True if turn is None else turn
            passed, forbidden = find_part(row, "passed"), bool(find_part(row, "forbidden"))
            holds = bool(passed) if passed is not None else (actual is not None) is not forbidden
            return Finding(kind, find_part(row, "phrase"), forbidden, actual, holds, row)
        case "missing" | "extra":
            expected = find_part(row, "arguments", "args")
        case "arguments":
            expected = find_part(row, "expected_args", "expectedArgs", "expected")
            actual = find_part(row, "actual_args", "actualArgs", "actual")
        case "order":
            expected, actual = find_part(row, "expected_index", "expectedIndex"), find_part(row, "actual_index", "actualIndex")
    return Finding(kind, find_part(row, "name", "tool_name", "toolName", "tool"), expected, actual, False, row)


_LABELS = ("missing", "extra", "arguments", "order", "expected", "found", "judge", "replied")
_COUNTED: Mapping[Kind, str] = {"field": "fields", "phrase": "phrases"}
"""Kinds whose lists also have what holds."""
_MOST_ROWS = 8
"""Findings listed under one verdict."""
_VALUE = 100
"""Characters of a value."""


def write_findings(verdict: Verdict) -> list[str]:
    """Return the details of a verdict, one line per finding."""
    details = verdict.details
    lines: list[str] = []
    for key, kind in LISTED.items():
        findings = [read_finding(kind, row) for row in list_rows(details.get(key))]
        broken = [finding for finding in findings if not finding.holds]
        passing = len(findings) - len(broken)
        if kind in _COUNTED and findings and f"{passing} of {len(findings)}" not in verdict.reason:
            lines.append(f"{passing:,} of {len(findings):,} {_COUNTED[kind]} hold")
        lines += map(_write_finding, broken[:_MOST_ROWS])
        if len(broken) > _MOST_ROWS:
            lines.append(f"… {len(broken) - _MOST_ROWS:,} more")
    lines += _pair_lines(details, verdict.reason)
    labelled = (("replied", quote_unreadable_reply(verdict)), ("judge", describe_judging(verdict)))
    lines += [pad_label(label) + text for label, text in labelled if text]
    if isinstance(details.get("traceback"), str):
        # The end of a traceback is the most useful part.
        lines += details["traceback"][-4000:].rstrip().splitlines()[-10:]
    return lines


def _write_finding(finding: Finding) -> str:
    subject, expected, actual = finding.subject, finding.expected, finding.found
    if finding.kind == "phrase":
        if actual is None or actual is True:
            place = "not found" if actual is None else "found"
        # A number is an index from 0; a text quotes the turn.
        elif is_integer(actual):
            place = f"found in turn {actual + 1:,}"
        else:
            place = f"found: {show(actual, _VALUE)}"
        return f"✗ {show(subject, _VALUE)} was {place}"
    label = "✗ " if finding.kind == "field" else pad_label(finding.kind)
    if subject is None and finding.kind != "field":
        return label + _name(finding.row)
    if finding.kind in ("missing", "extra"):
        return f"{label}{_name(subject)} {show(expected, _VALUE)}" if expected else label + _name(subject)
    if finding.kind == "order":
        return f"{label}{_name(subject)}: expected at position {show(expected)}, found at {show(actual)}"
    return f"{label}{_name(subject)}: expected {show(expected, _VALUE)}, found {show(actual, _VALUE)}"


def _name(value: Json) -> str:
    return shorten(value, _VALUE) if isinstance(value, str) else show(value, _VALUE)


def measure_hanging_indent(line: str) -> int:
    """Return the indent of the second and following lines of a finding."""
    if line.startswith(tuple(pad_label(label) for label in _LABELS)):
        return LABEL_WIDTH
    return 2 if line.startswith("✗ ") else 0


def _pair_lines(details: Mapping[str, Json], reason: str) -> list[str]:
    """Return `expected` and `actual` side by side, unless the reason already shows them."""
    found_key = next((key for key in ("actual", "found") if key in details), None)
    if "expected" not in details or found_key is None:
        return []
    expected, actual = details["expected"], details[found_key]
    if _is_shown(expected, reason) and _is_shown(actual, reason):
        return []
    return [pad_label("expected") + show(expected), pad_label("found") + show(actual)]


def _is_shown(value: Json, reason: str) -> bool:
    """Return whether a reason contains a value, or the text that a check made of it."""
    if isinstance(value, list) and value:
        return all(_is_shown(entry, reason) for entry in value)
    return show(value) in reason or (isinstance(value, str) and value in reason)
