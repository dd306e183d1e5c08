"""One case in full, as the page draws it when it is opened: every attempt with its facts, its assertions and its timeline."""

from __future__ import annotations

from proctor.evidence.account import known_of
from proctor.model.account import PART_NAMES, Known
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence, Json
from proctor.model.result import AssertionResult, CaseResult
from proctor.model.run import RunEntry
from proctor.report.html_comparisons import told
from proctor.report.html_text import block, duration_words, label, pretty, tag_pairs
from proctor.report.html_timeline import facts, other_evidence, timeline
from proctor.report.tallies import axis_name, named_axes
from proctor.report.wording import assertion_notes, assertion_title, case_remark, evidence_place, number_words, origin_place, unknown_words

Document = dict[str, Json]

NO_EVIDENCE = "The conversation is not part of this report."
LEFT_OUT = "The conversation was left out to keep this file small. Those of cases that did not pass go in first."

_MOST_POINTERS = 12
_MOST_NAMED = 40
_OF_A_TURN = ("text", "body", "tool_calls", "nodes", "http_status", "duration_ms", "usage", "input")
"""What a claim about one turn sees of that turn; its pointers begin there."""


def case_document(case: Case) -> Document:
    """What all attempts of a case share."""
    document: Document = {}
    if case.description:
        document["about"] = block(case.description, 2000)
    place = origin_place(case.origin)
    if place is not None:
        document["place"] = label(place, 300)
    if case.tags:
        document["tags"] = tag_pairs(case.tags)[:_MOST_NAMED]
    return document


def attempt_document(result: CaseResult, entry: RunEntry | None, *, with_evidence: bool) -> Document:
    """One attempt."""
    evidence = None if entry is None else entry.evidence
    document: Document = {"outcome": result.outcome, "number": result.attempt + 1, "facts": _facts(result, entry)}
    remark = case_remark(result)
    if remark is not None:
        document["remark"] = block(remark, 3000)
    unknown = unknown_words(result)
    if unknown is not None:
        document["unknown"] = label(unknown[0], 400)
    if result.axes and named_axes(result.axes):
        axes = list(result.axes.items())[:_MOST_NAMED]
        document["axes"] = [[label(axis_name(name), 80), number_words(axis.score)] for name, axis in axes]
    if result.extracted:
        extracted = list(result.extracted.items())[:_MOST_NAMED]
        document["extracted"] = [[label(name, 80), pretty(value, 1000)] for name, value in extracted]
    known = result.account if result.account is not None or evidence is None else known_of(evidence)
    if known is not None:
        document["known"] = known_document(known)
    document["assertions"] = [_assertion_document(entry, evidence) for entry in result.assertions]
    if evidence is None:
        document["no_timeline"] = NO_EVIDENCE
    elif not with_evidence:
        document["no_timeline"] = LEFT_OUT
    else:
        document["timeline"] = timeline(evidence)
        document["rest"] = other_evidence(evidence)
    return document


def known_document(known: Known) -> Document:
    """What was known of the evidence: who read it, and each part with its name, status and why."""
    parts = [
        [PART_NAMES[part], state.status, *([] if state.why is None else [label(state.why, 400)])] for part, state in known.parts.items()
    ]
    document: Document = {"reader": label(known.reader), "parts": parts}
    if known.notes:
        document["notes"] = [label(note, 400) for note in known.notes[:_MOST_NAMED]]
    return document


def _facts(result: CaseResult, entry: RunEntry | None) -> list[list[str]]:
    """Name and value of what is known about an attempt beside its assertions."""
    known: list[list[str]] = []
    if result.verdict is not None and result.score is not None:
        known.append(["score", f"{number_words(result.score)} ({result.verdict})"])
    place = evidence_place(result.source)
    if place is not None:
        known.append(["evidence", label(place, 300)])
    if entry is not None:
        if entry.started_at:
            known.append(["started", label(entry.started_at, 40)])
        if entry.duration_ms is not None:
            known.append(["took", duration_words(entry.duration_ms)])
        if entry.evidence is not None:
            known.append(["agent", " · ".join(facts(entry.evidence))])
    if result.now is not None:
        known.append(["clock", label(result.now, 40)])
    return [fact for fact in known if fact[1]]


def _assertion_document(entry: AssertionResult, evidence: Evidence | None) -> Document:
    assertion, verdict = entry.assertion, entry.verdict.told()
    document: Document = {"outcome": verdict.outcome, "title": label(assertion_title(assertion), 300), "check": label(assertion.check, 80)}
    notes = assertion_notes(assertion, verdict)
    if notes:
        document["notes"] = label(notes, 200)
    place = origin_place(assertion.origin)
    if place is not None:
        document["place"] = label(place, 300)
        document["path"] = label(assertion.origin.path, 200)
    words = told(verdict)
    if words.rows:
        document["comparisons"] = words.rows
    if words.reason:
        document["reason"] = block(words.reason, 3000)
    if words.rest:
        document["details"] = pretty(words.rest)
    if verdict.pointers:
        document["at"] = [label(_rebased(pointer, assertion, evidence), 200) for pointer in verdict.pointers[:_MOST_POINTERS]]
        if len(verdict.pointers) > _MOST_POINTERS:
            document["more_at"] = len(verdict.pointers) - _MOST_POINTERS
    return document


def _rebased(pointer: str, assertion: Assertion, evidence: Evidence | None) -> str:
    """A pointer of a claim about one turn, as seen from the whole run."""
    if assertion.turn is None or evidence is None or not evidence.turns or not pointer.startswith("$."):
        return pointer
    field = pointer[2:].replace("[", ".").split(".", 1)[0]
    return f"$.turns[{assertion.turn}]{pointer[1:]}" if field in _OF_A_TURN else pointer
