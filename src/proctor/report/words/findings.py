"""What the details of a verdict add to its reason, as short lines.

Checks keep structured details for machines. The ones shown here are those a person looks for first: fields and phrases that do not
hold, calls that are missing, extra, out of order or made with other arguments, who judged. Any other detail stays in the JSON. Rows
come from any check, also one of another distribution, so nothing is taken for granted about their shape. Lists are bounded: a finding
about a thousand fields is read no better for listing all of them.
"""

from collections.abc import Callable, Iterable, Mapping

from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.words.detail_rows import find_part, list_rows, phrase_holds
from proctor.report.words.judge import judge_words, reply_words
from proctor.report.words.wording import LABEL_WIDTH, pad_label

_LABELS = ("missing", "extra", "arguments", "order", "expected", "found", "judge", "replied")
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
    lines += _write_rows("missing", details.get("missing"), _write_call)
    lines += _write_rows("extra", details.get("extra"), _write_call)
    lines += _write_rows("arguments", details.get("argument_mismatches"), _write_mismatch)
    lines += _write_rows("order", details.get("out_of_order"), _write_order)
    lines += _pair_lines(details, verdict.reason)
    told = (("replied", reply_words(verdict)), ("judge", judge_words(verdict)))
    lines += [_label_text(label, text) for label, text in told if text]
    if isinstance(details.get("traceback"), str):
        # The end of a traceback says most.
        lines += details["traceback"][-4000:].rstrip().splitlines()[-10:]
    return lines


def measure_hanging_indent(line: str) -> int:
    """Return how far the rest of a finding is set in when it takes more than one line."""
    if line.startswith(tuple(pad_label(label) for label in _LABELS)):
        return LABEL_WIDTH
    return 2 if line.startswith("✗ ") else 0


def _bound_lines(lines: Iterable[str], total: int) -> list[str]:
    shown: list[str] = []
    for line in lines:
        if len(shown) == _MOST_ROWS:
            return [*shown, f"… {total - _MOST_ROWS:,} more"]
        shown.append(line)
    return shown


def _name(value: Json) -> str:
    return shorten(value, _VALUE) if isinstance(value, str) else show(value, _VALUE)


def _write_fields(value: Json, reason: str) -> list[str]:
    rows = list_rows(value)
    broken = [row for row in rows if not find_part(row, "passed")]
    return [
        *_write_share(rows, broken, "fields", reason),
        *_bound_lines((_write_field(row) for row in broken), len(broken)),
    ]


def _write_share(rows: list[Json], broken: list[Json], name: str, reason: str) -> list[str]:
    """Write `1 of 3 fields hold`, unless the reason has said it."""
    held = len(rows) - len(broken)
    return [f"{held:,} of {len(rows):,} {name} hold"] if rows and f"{held} of {len(rows)}" not in reason else []


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
        return f"{phrase} was never said"
    turn = find_part(row, "turn")
    if turn is None:
        return f"{phrase} was said"
    # A number counts from 0 like every index into evidence; a text quotes the turn itself.
    if isinstance(turn, int):
        return f"{phrase} was said in turn {turn + 1:,}"
    return f"{phrase} was said: {show(turn, _VALUE)}"


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
    """Write `expected` and `actual` beside each other, unless the reason already shows them."""
    found_key = next((key for key in ("actual", "found") if key in details), None)
    if "expected" not in details or found_key is None:
        return []
    expected, found = details["expected"], details[found_key]
    if _is_shown(expected, reason) and _is_shown(found, reason):
        return []
    return [_label_text("expected", show(expected)), _label_text("found", show(found))]


def _is_shown(value: Json, reason: str) -> bool:
    """Return whether a reason has a value, or the text that a check made of it."""
    if isinstance(value, list) and value:
        return all(_is_shown(entry, reason) for entry in value)
    return show(value) in reason or (isinstance(value, str) and value in reason)
