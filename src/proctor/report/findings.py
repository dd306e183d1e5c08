"""What the details of a verdict add to its reason, as short lines.

Checks keep structured details for machines. The ones shown here are those a person looks for first: fields and phrases that do not
hold, calls that are missing, extra, out of order or made with other arguments, who judged. Any other detail stays in the JSON. Rows
come from any check, also one of another distribution, so nothing is taken for granted about their shape. Lists are bounded: a finding
about a thousand fields is read no better for listing all of them.
"""

from collections.abc import Iterable, Mapping

from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.detail_rows import find_part, phrase_holds
from proctor.report.judge_words import judge_words, reply_words
from proctor.report.wording import LABEL

_LABELS = tuple(f"{word:<{LABEL}}" for word in ("missing", "extra", "arguments", "order", "expected", "found", "judge", "replied"))
_MOST_ROWS = 8
"""Findings listed under one verdict."""
_VALUE = 100
"""Characters of a value."""


def write_findings(verdict: Verdict) -> list[str]:
    """Return what the details of a verdict add to its reason, one line per finding."""
    details = verdict.details
    if not details:
        return []
    lines: list[str] = []
    for key in ("field_results", "assertion_results"):
        lines += _write_fields(details.get(key), verdict.reason)
    lines += _write_phrases(details.get("phrase_results"), verdict.reason)
    lines += _call_lines("missing", details.get("missing"))
    lines += _call_lines("extra", details.get("extra"))
    lines += _write_mismatches(details.get("argument_mismatches"))
    lines += _order_lines(details.get("out_of_order"))
    lines += _pair_lines(details, verdict.reason)
    lines += [_label_text(word, text) for word, text in (("replied", reply_words(verdict)), ("judge", judge_words(verdict))) if text]
    if isinstance(details.get("traceback"), str):
        # The end of a traceback says most.
        lines += details["traceback"][-4000:].rstrip().splitlines()[-10:]
    return lines


def measure_hanging_indent(line: str) -> int:
    """Return how far the rest of a finding is set in when it takes more than one line."""
    if line.startswith(_LABELS):
        return LABEL
    return 2 if line.startswith("✗ ") else 0


def _bound_lines(lines: Iterable[str], total: int) -> list[str]:
    shown: list[str] = []
    for line in lines:
        if len(shown) == _MOST_ROWS:
            return [*shown, f"… {total - _MOST_ROWS} more"]
        shown.append(line)
    return shown


def _list_rows(value: Json) -> list[Json]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _name(value: Json) -> str:
    return shorten(value, _VALUE) if isinstance(value, str) else show(value, _VALUE)


def _write_fields(value: Json, reason: str) -> list[str]:
    rows = _list_rows(value)
    broken = [row for row in rows if not find_part(row, "passed")]
    return [*_write_share(rows, broken, "fields", reason), *_bound_lines(map(_write_field, broken), len(broken))]


def _write_share(rows: list[Json], broken: list[Json], noun: str, reason: str) -> list[str]:
    """Write `1 of 3 fields hold`, unless the reason has said it."""
    share = f"{len(rows) - len(broken)} of {len(rows)}"
    return [f"{share} {noun} hold"] if rows and share not in reason else []


def _write_field(row: Json) -> str:
    path, expected, actual = (find_part(row, name) for name in ("path", "expected", "actual"))
    return f"✗ {_name(path)}: expected {show(expected, _VALUE)}, found {show(actual, _VALUE)}"


def _write_phrases(value: Json, reason: str) -> list[str]:
    rows = _list_rows(value)
    broken = [row for row in rows if not phrase_holds(row)]
    return [*_write_share(rows, broken, "phrases", reason), *_bound_lines(map(_write_phrase, broken), len(broken))]


def _write_phrase(row: Json) -> str:
    phrase = show(find_part(row, "phrase"), _VALUE)
    if not find_part(row, "found"):
        return f"✗ {phrase} was never said"
    turn = find_part(row, "turn")
    if turn is None:
        return f"✗ {phrase} was said"
    # A number counts from 0 like every index into evidence; a text quotes the turn itself.
    return f"✗ {phrase} was said in turn {turn + 1}" if isinstance(turn, int) else f"✗ {phrase} was said: {show(turn, _VALUE)}"


def _call_lines(word: str, value: Json) -> list[str]:
    rows = _list_rows(value)
    return _bound_lines((_label_text(word, _call(row)) for row in rows), len(rows))


def _label_text(word: str, text: str) -> str:
    return f"{word:<{LABEL}}{text}"


def _call(row: Json) -> str:
    """Return a call as `search {"q":"x"}`."""
    name = find_part(row, "name", "tool_name", "toolName")
    if name is None:
        return _name(row)
    arguments = find_part(row, "arguments", "args")
    return f"{_name(name)} {show(arguments, _VALUE)}" if arguments else _name(name)


def _write_mismatches(value: Json) -> list[str]:
    rows = _list_rows(value)
    return _bound_lines((_write_mismatch(row) for row in rows), len(rows))


def _write_mismatch(row: Json) -> str:
    name = find_part(row, "tool_name", "toolName", "name")
    if name is None:
        return _label_text("arguments", _name(row))
    expected, actual = find_part(row, "expected_args", "expectedArgs", "expected"), find_part(row, "actual_args", "actualArgs", "actual")
    return _label_text("arguments", f"{_name(name)}: expected {show(expected, _VALUE)}, found {show(actual, _VALUE)}")


def _order_lines(value: Json) -> list[str]:
    rows = _list_rows(value)
    return _bound_lines((_order(row) for row in rows), len(rows))


def _order(row: Json) -> str:
    name = find_part(row, "tool_name", "toolName", "name")
    if name is None:
        return _label_text("order", _name(row))
    expected, actual = find_part(row, "expected_index", "expectedIndex"), find_part(row, "actual_index", "actualIndex")
    return _label_text("order", f"{_name(name)}: expected at position {show(expected)}, found at {show(actual)}")


def _pair_lines(details: Mapping[str, Json], reason: str) -> list[str]:
    """Write `expected` and `actual` beside each other, unless the reason already shows them."""
    found_key = next((key for key in ("actual", "found") if key in details), None)
    if "expected" not in details or found_key is None:
        return []
    expected, found = show(details["expected"]), show(details[found_key])
    if expected in reason and found in reason:
        return []
    return [_label_text("expected", expected), _label_text("found", found)]
