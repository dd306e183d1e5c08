"""One case in full, as the page draws it when it is opened: every attempt with its facts, its assertions and its timeline."""

from __future__ import annotations

from proctor.evidence.unknowns.account import find_known
from proctor.model.account import PART_NAMES, Known
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_number
from proctor.model.result import AssertionResult, CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.report.blocks.marked_text import Mark, Marks
from proctor.report.html.comparisons import explain_in_rows
from proctor.report.html.systems import write_systems
from proctor.report.html.timeline import build_timeline, list_facts, list_other_evidence
from proctor.report.words.detail_rows import find_part
from proctor.report.words.html_text import duration_words, list_tag_pairs, write_block, write_label, write_pretty
from proctor.report.words.ranges import add_ranges
from proctor.report.words.simulated_users import describe_user
from proctor.report.words.tallies import has_named_axes, name_axis
from proctor.report.words.wording import (
    assertion_notes,
    assertion_title,
    case_remark,
    evidence_place,
    number_words,
    origin_place,
    price_words,
    unknown_words,
)

_MOST_VOTES = 20


def list_votes(verdict: Verdict) -> list[Json]:
    """Return the answers of a judge: `outcome` of each, `who`, `score` and `reason` as far as they are known."""
    samples = verdict.details.get("samples")
    rows: list[Json] = [_write_vote(sample) for sample in samples[:_MOST_VOTES]] if isinstance(samples, (list, tuple)) else []
    return [row for row in rows if row]


def _write_vote(sample: Json) -> dict[str, Json]:
    said, code = find_part(sample, "passed"), find_part(sample, "code")
    if not isinstance(said, bool) and code is None:
        return {}
    vote: dict[str, Json] = {"outcome": "error" if not isinstance(said, bool) else "pass" if said else "fail"}
    model, score, reason = (find_part(sample, name) for name in ("model", "score", "reason"))
    if isinstance(model, str) and model:
        vote["who"] = write_label(model, 80)
    if is_number(score):
        vote["score"] = number_words(score)
    if isinstance(reason, str) and reason:
        vote["reason"] = write_block(reason, 2000)
    return vote


Document = dict[str, Json]

_MOST_POINTERS = 12
"""Places in the evidence that one verdict links to."""
_MOST_NAMED = 40
"""Tags and axes shown of one case."""
_OF_A_TURN = ("text", "body", "tool_calls", "nodes", "http_status", "duration_ms", "usage", "input")
"""What a claim about one turn sees of that turn; its pointers begin there."""


def write_case(case: Case) -> Document:
    """Return what all attempts of a case share."""
    document: Document = {}
    if case.description:
        document["about"] = write_block(case.description, 2000)
    place = origin_place(case.origin)
    if place is not None:
        document["place"] = write_label(place, 300)
    if case.tags:
        document["tags"] = list_tag_pairs(case.tags)[:_MOST_NAMED]
    return document


def write_attempt(result: CaseResult, entry: RunEntry | None, *, with_evidence: bool) -> Document:
    """Return one attempt."""
    evidence = None if entry is None else entry.evidence
    document: Document = {"outcome": result.outcome, "number": result.attempt + 1, "facts": _list_facts(result, entry)}
    remark = case_remark(result)
    if remark is not None:
        document["remark"] = write_block(remark, 3000)
    unknown = unknown_words(result)
    if unknown is not None:
        document["unknown"] = write_label(unknown[0], 400)
    if result.axes and has_named_axes(result.axes):
        axes = list(result.axes.items())[:_MOST_NAMED]
        document["axes"] = [[write_label(name_axis(name), 80), number_words(axis.score)] for name, axis in axes]
    if result.extracted:
        extracted = list(result.extracted.items())[:_MOST_NAMED]
        document["extracted"] = [[write_label(name, 80), write_pretty(value, 1000)] for name, value in extracted]
    known = result.account if result.account is not None or evidence is None else find_known(evidence)
    if known is not None:
        document["known"] = write_known(known)
    shown = result if evidence is None else add_ranges(result, evidence)
    marks = _list_marks(shown, evidence)
    document["assertions"] = [_write_assertion(entry, evidence) for entry in shown.assertions]
    if evidence is None:
        document["no_timeline"] = "The conversation is not part of this report."
    elif not with_evidence:
        document["no_timeline"] = "The conversation was left out to keep this file small. Those of cases that did not pass go in first."
    else:
        document["timeline"] = build_timeline(evidence, marks)
        if (systems := write_systems(evidence.state)) is not None:
            document["systems"] = systems
        document["rest"] = list_other_evidence(evidence, marks)
        _name_first_pieces(document)
    return document


def _list_marks(result: CaseResult, evidence: Evidence | None) -> Marks:
    """Return the characters that the verdicts of an attempt are about, by their place in the whole run."""
    marks: dict[str, list[Mark]] = {}
    for number, entry in enumerate(result.assertions, 1):
        for one in entry.ranges:
            path = _rebase_pointer(one.path, entry.assertion, evidence)
            marks.setdefault(path, []).append(Mark(one.start, one.end, number, entry.outcome == "fail"))
    return marks


def _name_first_pieces(document: Document) -> None:
    """Let the first marked piece of each assertion be found from there (`first`), and say which assertions have one (`marked`)."""
    listed: list[Json] = [pieces for step in document["timeline"] for pieces in step.get("marked", {}).values()]
    listed += [row[3] for row in document["rest"] if len(row) > 3]
    seen: set[int] = set()
    for piece in (piece for pieces in listed for piece in pieces if not isinstance(piece, str)):
        new = [number for number in piece["of"] if number not in seen]
        seen.update(new)
        if new:
            piece["first"] = new
    for number, assertion in enumerate(document["assertions"], 1):
        if number in seen:
            assertion["marked"] = True


def write_known(known: Known) -> Document:
    """Return what was known of the evidence: who read it, and each part with its name, status and why."""
    parts = [
        [PART_NAMES[part], state.status, *([] if state.why is None else [write_label(state.why, 400)])]
        for part, state in known.parts.items()
    ]
    document: Document = {"reader": write_label(known.reader), "parts": parts}
    if known.notes:
        document["notes"] = [write_label(note, 400) for note in known.notes[:_MOST_NAMED]]
    return document


def _list_facts(result: CaseResult, entry: RunEntry | None) -> list[list[str]]:
    """Name and value of what is known about an attempt beside its assertions."""
    known: list[list[str]] = []
    if result.verdict is not None and result.score is not None:
        known.append(["score", f"{number_words(result.score)} ({result.verdict})"])
    if result.cost is not None:
        known.append(["cost", write_label(price_words(result.cost), 300)])
    place = evidence_place(result.source)
    if place is not None:
        known.append(["evidence", write_label(place, 300)])
    if entry is not None:
        if entry.started_at:
            known.append(["started", write_label(entry.started_at, 40)])
        took = entry.find_agent_ms()
        if took is not None:
            known.append(["took", duration_words(took)])
        if entry.evidence is not None:
            known.append(["agent", " · ".join(list_facts(entry.evidence))])
    if result.simulated_user is not None:
        known.append(["user", write_label(describe_user(result.simulated_user), 400)])
    if result.now is not None:
        known.append(["clock", write_label(result.now, 40)])
    return [fact for fact in known if fact[1]]


def _write_assertion(entry: AssertionResult, evidence: Evidence | None) -> Document:
    assertion, verdict = entry.assertion, entry.verdict.with_words()
    document: Document = {
        "outcome": verdict.outcome,
        "title": write_label(assertion_title(assertion), 300),
        "check": write_label(assertion.check, 80),
    }
    notes = assertion_notes(assertion, verdict)
    if notes:
        document["notes"] = write_label(notes, 200)
    place = origin_place(assertion.origin)
    if place is not None:
        document["place"] = write_label(place, 300)
        document["path"] = write_label(assertion.origin.path, 200)
    told = explain_in_rows(verdict)
    if told.rows:
        document["comparisons"] = told.rows
    if told.reason:
        document["reason"] = write_block(told.reason, 3000)
    if told.rest:
        document["details"] = write_pretty(told.rest)
    votes = list_votes(verdict)
    if votes:
        document["votes"] = votes
    if verdict.pointers:
        document["at"] = [write_label(_rebase_pointer(pointer, assertion, evidence), 200) for pointer in verdict.pointers[:_MOST_POINTERS]]
        if len(verdict.pointers) > _MOST_POINTERS:
            document["more_at"] = len(verdict.pointers) - _MOST_POINTERS
    return document


def _rebase_pointer(pointer: str, assertion: Assertion, evidence: Evidence | None) -> str:
    """Return a pointer of a claim about one turn, as seen from the whole run."""
    if assertion.turn is None or evidence is None or not evidence.turns or not pointer.startswith("$."):
        return pointer
    # What a turn does not have itself (the state, the context) is the run's, and its pointer stays as it is.
    field = pointer[2:].replace("[", ".").split(".", 1)[0]
    return f"$.turns[{assertion.turn}]{pointer[1:]}" if field in _OF_A_TURN else pointer
