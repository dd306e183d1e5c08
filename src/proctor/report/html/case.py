"""One case in full: every attempt with facts, assertions and timeline."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from proctor.evidence.unknowns.account import find_known
from proctor.model.account import PART_NAMES, Known
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence, Json, State, StateChange, StateRequest
from proctor.model.json_values import is_integer, is_number
from proctor.model.result import AssertionResult, CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.report.blocks.attempt_layout import Document
from proctor.report.blocks.marked_text import Mark, Marks
from proctor.report.html.timeline import build_timeline, list_facts, list_other_evidence
from proctor.report.words.findings import LISTED, Finding, describe_judging, find_part, list_rows, quote_unreadable_reply, read_finding
from proctor.report.words.html_text import duration_words, list_tag_pairs, write_block, write_label, write_pretty
from proctor.report.words.ranges import add_ranges
from proctor.report.words.tallies import describe_user, has_named_axes, name_axis
from proctor.report.words.wording import (
    assertion_notes,
    assertion_title,
    case_remark,
    evidence_place,
    origin_place,
    price_words,
    show_number,
    split_reason,
    unknown_words,
)

MOST_COMPARISONS = 60
"""Rows of expected and found under one verdict."""
_VALUE = 3000
"""Characters of a value."""

Comparison = dict[str, Json]


class Explanation(msgspec.Struct, frozen=True):
    """A verdict split into comparisons, reason and other details."""

    rows: list[Comparison]
    reason: str
    """Empty if the rows were parsed from the reason."""
    rest: dict[str, Json]
    """Details that no row shows."""


def explain_in_rows(verdict: Verdict) -> Explanation:
    """Return the comparisons of a verdict, and the rest of its reason and details."""
    details = verdict.details
    rows = list(islice(_from_details(details), MOST_COMPARISONS + 1))
    if len(rows) > MOST_COMPARISONS:
        rows[-1] = {"remark": "and more, which the JSON result lists in full"}
    shown_keys = {key for key in (*LISTED, *_DIFFERENCES) if isinstance(details.get(key), (list, tuple))}
    shown_keys |= {"held", "total", "hint", "traceback"}
    reason = verdict.reason
    if "expected" in details and _find_found_key(details) is not None:
        shown_keys |= {"expected", _find_found_key(details) or ""}
    sides = split_reason(reason) if not rows and verdict.outcome == "fail" else None
    if sides is not None:
        rows.append(_make_comparison(sides.about, write_block(sides.expected, _VALUE), write_block(sides.found, _VALUE)))
        reason = ""
        shown_keys.add("expected")
    for about, text in (("replied", quote_unreadable_reply(verdict)), ("judge", describe_judging(verdict))):
        if text:
            rows.append({"about": about, "remark": write_block(text, 600)})
    if isinstance(details.get("hint"), str):
        rows.append({"about": "hint", "remark": write_block(details["hint"], 600)})
    return Explanation(
        rows, reason, {key: value for key, value in details.items() if key not in shown_keys and value is not None and value != []}
    )


def _make_comparison(about: Json, expected: str, actual: str, holds: bool = False) -> Comparison:
    comparison: Comparison = {"expected": expected, "found": actual}
    if about:
        comparison["about"] = _write_name(about)
    if holds:
        comparison["holds"] = True
    return comparison


def _from_details(details: dict[str, Json]) -> Iterator[Comparison]:
    for key, kind in LISTED.items():
        yield from (_compare(read_finding(kind, row)) for row in list_rows(details.get(key)))
    for key in _DIFFERENCES:
        yield from map(_compare_difference, list_rows(details.get(key)))
    actual_key = _find_found_key(details)
    if "expected" in details and actual_key is not None:
        yield _make_comparison("", _write_json(details["expected"]), _write_json(details[actual_key]))
    if isinstance(details.get("traceback"), str):
        # The end of a traceback is the most useful part.
        yield {"remark": write_block(details["traceback"][-4000:]), "about": "traceback"}


_DIFFERENCES = ("differences", "errors")


def _find_found_key(details: dict[str, Json]) -> str | None:
    return next((key for key in ("actual", "tools_called", "found") if key in details), None)


def _write_name(value: Json) -> str:
    return write_label(value if isinstance(value, str) else write_pretty(value, 300), 300)


def _write_json(value: Json) -> str:
    """Return a value as JSON with text in quotes, to distinguish text from numbers."""
    # In a list, since a text alone would lose its quotes.
    return write_pretty([value], _VALUE)[1:-1].strip() if isinstance(value, str) else write_pretty(value, _VALUE)


def _compare(finding: Finding) -> Comparison:
    subject, expected, actual = finding.subject, finding.expected, finding.found
    match finding.kind:
        case "field":
            return _make_comparison(subject, _write_json(expected), _write_json(actual), finding.holds)
        case "phrase":
            place = "not found" if actual is None else "found" if actual is True else write_pretty(actual, 600)
            # A number is an index from 0; a text quotes the turn.
            place = f"found in turn {actual + 1:,}" if is_integer(actual) else place
            return _make_comparison("phrase", f"{'never ' if expected else ''}{_write_json(subject)}", place, finding.holds)
        case "missing" | "extra":
            call = write_pretty(finding.row, _VALUE) if subject is None else _write_name(subject)
            # The arguments below the name.
            call += f"\n{write_pretty(expected, _VALUE)}" if subject is not None and expected else ""
            missing = finding.kind == "missing"
            return (
                _make_comparison("missing call", call, "not called") if missing else _make_comparison("further call", "no such call", call)
            )
        case _ if subject is None:
            return {"remark": write_pretty(finding.row, _VALUE)}
        case "arguments":
            return _make_comparison(f"arguments of {_write_name(subject)}", _write_json(expected), _write_json(actual))
        case "order":
            # Counted from 1.
            first, second = (f"call {index + 1:,}" if is_integer(index) else write_pretty(index, 100) for index in (expected, actual))
            return _make_comparison(f"order of {_write_name(subject)}", first, second)


def _compare_difference(row: Json) -> Comparison:
    path, why = find_part(row, "path"), find_part(row, "why", "message")
    if not isinstance(why, str):
        return {"remark": write_pretty(row, _VALUE)}
    reason = split_reason(why)
    if reason is not None:
        return _make_comparison(path or reason.about, write_block(reason.expected, _VALUE), write_block(reason.found, _VALUE))
    return {"remark": write_block(why, _VALUE), **({"about": _write_name(path)} if path else {})}


MOST_CHANGES, MOST_REQUESTS = 50, 50
_MOST_FIELDS = 20
"""Fields of one record that differ."""
_LONGEST = 1000
_DEEPEST = 6
"""Levels that are compared; deeper differences are shown whole."""
_ABSENT = object()


def write_systems(state: State | None) -> Document | None:
    """Return changes and requests of the systems; None if none were simulated."""
    if state is None or (state.changes is None and state.requests is None):
        return None
    changes, requests = state.changes or (), state.requests or ()
    return {
        "changes": None if state.changes is None else [_write_change(change) for change in changes[:MOST_CHANGES]],
        "more_changes": max(0, len(changes) - MOST_CHANGES),
        "requests": [write_request(request) for request in requests[:MOST_REQUESTS]],
        "more_requests": max(0, len(requests) - MOST_REQUESTS),
    }


def _write_change(change: StateChange) -> Document:
    differing = list(islice(iterate_differences(change.before, change.after), _MOST_FIELDS + 1)) if change.change == "changed" else []
    if not differing:
        differing = [("", _ABSENT if change.before is None else change.before, _ABSENT if change.after is None else change.after)]
    return {
        "system": write_label(change.system, 80),
        "kind": change.change,
        "place": write_label(change.place, 200),
        "fields": [[write_label(name, 120), _write_side(was), _write_side(now)] for name, was, now in differing[:_MOST_FIELDS]],
        "more": len(differing) > _MOST_FIELDS,
    }


def iterate_differences(before: object, after: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object, object]]:
    """Yield path, old and new value of each field that differs."""
    if isinstance(before, dict) and isinstance(after, dict) and depth < _DEEPEST:
        for name in dict.fromkeys((*before, *after)):
            field_path = f"{path}.{name}" if path else str(name)
            yield from iterate_differences(before.get(name, _ABSENT), after.get(name, _ABSENT), field_path, depth + 1)
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _write_side(value: object) -> str | None:
    return None if value is _ABSENT else write_pretty(value, _LONGEST)  # type: ignore[arg-type]


def write_request(request: StateRequest) -> Document:
    """Return one request with what was sent and answered."""
    sides: dict[str, Json] = {"sent": request.body, "answered": request.response}
    return {
        "system": write_label(request.system, 80),
        "line": write_label(f"{request.method} {request.path}", 300),
        "status": request.status,
        "took": "" if request.duration_ms is None else duration_words(request.duration_ms),
        **{name: write_pretty(value, _LONGEST) for name, value in sides.items() if value is not None},
    }


_MOST_VOTES = 20


def list_votes(verdict: Verdict) -> list[Json]:
    """Return the answers of a judge: `outcome`, and `who`, `score` and `reason` if known."""
    samples = verdict.details.get("samples")
    rows: list[Json] = [_write_vote(sample) for sample in samples[:_MOST_VOTES]] if isinstance(samples, (list, tuple)) else []
    return [row for row in rows if row]


def _write_vote(sample: Json) -> dict[str, Json]:
    passed, code = find_part(sample, "passed"), find_part(sample, "code")
    if not isinstance(passed, bool) and code is None:
        return {}
    model, score, reason = (find_part(sample, name) for name in ("model", "score", "reason"))
    return _drop_empty(
        {
            "outcome": "error" if not isinstance(passed, bool) else "pass" if passed else "fail",
            "who": write_label(model, 80) if isinstance(model, str) else "",
            "score": show_number(score) if is_number(score) else "",
            "reason": write_block(reason, 2000) if isinstance(reason, str) else "",
        }
    )


def _drop_empty(document: Document) -> Document:
    return {key: value for key, value in document.items() if value not in (None, "", [], {})}


_MOST_POINTERS = 12
"""Pointers per verdict."""
_MOST_NAMED = 40
"""Tags and axes shown of one case."""
_OF_A_TURN = ("text", "body", "tool_calls", "nodes", "http_status", "duration_ms", "usage", "input")
"""Fields of a turn that a claim about it sees."""


def write_case(case: Case) -> Document:
    """Return what all attempts of a case share."""
    # A line of a suite without a file leads nowhere.
    place = origin_place(case.origin) if case.origin.file is not None else None
    tags = list_tag_pairs(case.tags)[:_MOST_NAMED]
    return _drop_empty({"about": write_block(case.description, 2000), "place": write_label(place or "", 300), "tags": tags})


def write_attempt(result: CaseResult, entry: RunEntry | None, *, with_evidence: bool) -> Document:
    """Return one attempt."""
    evidence = None if entry is None else entry.evidence
    unknown = unknown_words(result)
    axes = list((result.axes or {}).items())[:_MOST_NAMED] if has_named_axes(result.axes or {}) else []
    extracted = list(result.extracted.items())[:_MOST_NAMED]
    known = result.account if result.account is not None or evidence is None else find_known(evidence)
    document: Document = {"outcome": result.outcome, "number": result.attempt + 1, "facts": _list_facts(result, entry)}
    document |= _drop_empty(
        {
            "remark": write_block(case_remark(result) or "", 3000),
            "unknown": write_label(unknown[0], 400) if unknown is not None else "",
            "axes": [[write_label(name_axis(name), 80), show_number(axis.score)] for name, axis in axes],
            "extracted": [[write_label(name, 80), write_pretty(value, 1000)] for name, value in extracted],
            "known": write_known(known) if known is not None else None,
        }
    )
    with_ranges = result if evidence is None else add_ranges(result, evidence)
    marks = _list_marks(with_ranges, evidence)
    document["assertions"] = [_write_assertion(entry, evidence) for entry in with_ranges.assertions]
    if evidence is None:
        document["no_timeline"] = "The conversation is not part of this report."
    elif not with_evidence:
        document["no_timeline"] = "The conversation was left out to keep this file small. Those of cases that did not pass go in first."
    else:
        document["timeline"] = [*_list_unrecorded_input(result.case, evidence), *build_timeline(evidence, marks)]
        if (systems := write_systems(evidence.state)) is not None:
            document["systems"] = systems
        document["rest"] = list_other_evidence(evidence, marks)
        listed: list[Json] = [pieces for step in document["timeline"] for pieces in step.get("marked", {}).values()]
        listed += [row[3] for row in document["rest"] if len(row) > 3]
        marked: set[int] = set()
        for piece in (piece for pieces in listed for piece in pieces if not isinstance(piece, str)):
            new = [number for number in piece["of"] if number not in marked]
            marked.update(new)
            if new:
                piece["first"] = new
        for number, assertion in enumerate(document["assertions"], 1):
            if number in marked:
                assertion["marked"] = True
    _say_once(document, result)
    return document


def _list_unrecorded_input(case: Case, evidence: Evidence) -> list[Document]:
    """Return what was sent to an agent that did not answer, as a step, if the evidence lacks it."""
    agent_input = case.input if case.input is not None else case.turns[0].input if case.turns else None
    if agent_input is None or not evidence.error or evidence.input is not None or evidence.turns:
        return []
    return [{"kind": "user", "text": write_block(agent_input)}]


def _say_once(document: Document, result: CaseResult) -> None:
    """Leave the reason of the whole attempt, which is shown above, out of its timeline and of the assertions that have no other."""
    for step in document.get("timeline", ()):
        if step["kind"] == "broken" and step["text"] == write_block(result.reason or ""):
            step["text"] = ""
    for assertion, entry in zip(document["assertions"], result.assertions, strict=True):
        if result.reason and entry.outcome == "error" and entry.verdict.reason == result.reason:
            assertion.pop("notes", None)
            assertion.pop("reason", None)
            assertion["undecided"] = True


def _list_marks(result: CaseResult, evidence: Evidence | None) -> Marks:
    """Return the ranges of the verdicts of an attempt, by place in the run."""
    marks: dict[str, list[Mark]] = {}
    for number, entry in enumerate(result.assertions, 1):
        for text_range in entry.ranges:
            path = _rebase_pointer(text_range.path, entry.assertion, evidence)
            marks.setdefault(path, []).append(Mark(text_range.start, text_range.end, number, entry.outcome == "fail"))
    return marks


def write_known(known: Known) -> Document:
    """Return the coverage of the evidence: reader, and each part with name, status and reason."""
    parts = [
        [PART_NAMES[part], state.status, *([] if state.why is None else [write_label(state.why, 400)])]
        for part, state in known.parts.items()
    ]
    notes = [write_label(note, 400) for note in known.notes[:_MOST_NAMED]]
    return {"reader": write_label(known.reader), "parts": parts, **({"notes": notes} if notes else {})}


def _list_facts(result: CaseResult, entry: RunEntry | None) -> list[list[str]]:
    """Return facts of an attempt as names and values."""
    took = entry.find_agent_ms() if entry is not None else None
    # The duration has its own fact.
    observed = msgspec.structs.replace(entry.evidence, duration_ms=None) if entry is not None and entry.evidence is not None else None
    facts = {
        "score": f"{show_number(result.score)} ({result.verdict})" if result.verdict is not None and result.score is not None else "",
        "cost": write_label(price_words(result.cost), 300) if result.cost is not None else "",
        "evidence": write_label(evidence_place(result.source) or "", 300),
        "started": write_label(entry.started_at, 40) if entry is not None else "",
        "took": duration_words(took) if took is not None else "",
        "agent": " · ".join(list_facts(observed)) if observed is not None else "",
        "user": write_label(describe_user(result.simulated_user), 400) if result.simulated_user is not None else "",
        "clock": write_label(result.now or "", 40),
    }
    return [[name, text] for name, text in facts.items() if text]


def _write_assertion(entry: AssertionResult, evidence: Evidence | None) -> Document:
    assertion, verdict = entry.assertion, entry.verdict.with_words()
    place = origin_place(assertion.origin)
    explained = explain_in_rows(verdict)
    more_pointers = len(verdict.pointers) - _MOST_POINTERS
    document = {
        "outcome": verdict.outcome,
        "title": write_label(assertion_title(assertion), 300),
        "check": write_label(assertion.check, 80),
    }
    return document | _drop_empty(
        {
            "notes": write_label(assertion_notes(assertion, verdict), 200),
            "place": write_label(place or "", 300),
            "path": write_label(assertion.origin.path, 200) if place is not None else "",
            "comparisons": explained.rows,
            "reason": write_block(explained.reason, 3000),
            "details": write_pretty(explained.rest) if explained.rest else "",
            "votes": list_votes(verdict),
            "at": [write_label(_rebase_pointer(pointer, assertion, evidence), 200) for pointer in verdict.pointers[:_MOST_POINTERS]],
            "more_at": more_pointers if more_pointers > 0 else None,
        }
    )


def _rebase_pointer(pointer: str, assertion: Assertion, evidence: Evidence | None) -> str:
    """Return a pointer of a claim about one turn, relative to the run."""
    if assertion.turn is None or evidence is None or not evidence.turns or not pointer.startswith("$."):
        return pointer
    # Fields that a turn does not have (state, context) belong to the run.
    field = pointer[2:].replace("[", ".").split(".", 1)[0]
    return f"$.turns[{assertion.turn}]{pointer[1:]}" if field in _OF_A_TURN else pointer
