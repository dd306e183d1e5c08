"""Turns an HTTP response into evidence.

A response without an answer is an error (`no_answer.py`), unless the case claims the status: then the answer of the exchange is unknown.
JSON is read by `json_answers.py`; `response_path` and `answer_format` override where the answer is and how it is written. Status and
duration are those of the exchange.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.http import read_retry_after_s
from proctor.errors import EvidenceError
from proctor.evidence import mibo
from proctor.evidence.mapping.read import Mapping
from proctor.evidence.messages.ai_sdk import complete_last_step
from proctor.evidence.messages.formats import MESSAGE_FORMATS
from proctor.evidence.plain.record import read_plain
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.paths.dotted import find_dotted
from proctor.targets.answers.account import AGENT_FAILED, add_account, is_blank, mark_empty_answer, mark_messages
from proctor.targets.answers.json_answers import read_messages, read_object, read_trace
from proctor.targets.answers.no_answer import (
    READER,
    NoAnswer,
    make_fault,
    make_unanswered,
    refuse_body,
    refuse_empty,
    refuse_failure,
    refuse_path,
    refuse_status,
)
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.wire import HttpAnswer

_RETRY_STATUSES = (429, 503)
_ANSWERED = (200, 201)
_UNFINISHED = {
    202: "the agent answered status 202: it accepted the request and may not have answered it yet",
    206: "the agent answered status 206: the answer is incomplete",
}


def evidence_of(
    answer: HttpAnswer,
    *,
    response_path: str | None = None,
    format: str | None = None,
    mapping: Mapping | None = None,
    status_claimed: bool = False,
) -> Evidence:
    """Return one answer as evidence. `format` is its format, `mapping` has the paths of its parts; without both it is recognised.

    Raises `TargetFault` for a response without an answer, unless the case claims the status that came (`status_claimed`).
    """
    missing = refuse_body(answer) or refuse_failure(answer, response_path) or refuse_path(answer, response_path)
    if not status_claimed and (refusal := refuse_status(answer) or missing) is not None:
        evidence = None
        if refusal.code == AGENT_FAILED and isinstance(answer.body, dict):
            evidence = read_object(answer.body, has_path=response_path is not None)
            evidence = msgspec.structs.replace(evidence, http_status=answer.status, duration_ms=answer.duration_ms)
            evidence = add_account(evidence, Unknowns(), READER)
        raise make_fault(refusal, answer, evidence)
    if missing is not None:
        return _make_unanswered(answer, missing)
    notes: list[str] = []
    text = as_text(find_dotted(answer.body, response_path)) if response_path is not None else None
    # A refusal that the case claims may report a failure.
    is_checked = not status_claimed or answer.status in _ANSWERED
    if mapping is not None and answer.body is not None and answer.status < 400:
        mapped = mapping.read(answer.body)
        evidence = msgspec.structs.replace(mapped, body=answer.body if mapped.body is None else mapped.body)
    else:
        evidence = _read(answer, format, notes, has_path=response_path is not None, is_checked=is_checked)
        # Checks on fields read the answer itself, even if it contains a trace.
        evidence = msgspec.structs.replace(evidence, body=answer.body if answer.body is not None else evidence.body, duration_ms=None)
    evidence = msgspec.structs.replace(
        evidence,
        text=text if text is not None else evidence.text,
        http_status=answer.status,
        duration_ms=answer.duration_ms if evidence.duration_ms is None else evidence.duration_ms,
        metadata={**evidence.metadata, **_make_metadata(answer, notes)},
    )
    evidence = with_account(evidence, answer, status_claimed=status_claimed)
    if is_blank(evidence):
        missing = refuse_empty(answer, "a text with nothing in it")
        if not status_claimed:
            raise make_fault(missing, answer)
        return _make_unanswered(answer, missing)
    return evidence


def with_account(evidence: Evidence, answer: HttpAnswer, *, status_claimed: bool = False) -> Evidence:
    """Return the evidence of an answer with the parts that the exchange leaves unknown."""
    unknowns = Unknowns()
    refusal = refuse_status(answer)
    if refusal is not None and evidence.tool_calls is None:
        # A refusal does not report earlier actions of the agent.
        unknowns.mark_parts(("tool_calls", "nodes"), refusal.reason)
    if evidence.nodes is None and answer.status in _UNFINISHED and not status_claimed:
        unknowns.mark_parts(("answer", "tool_calls"), _UNFINISHED[answer.status])
    for redirect in answer.redirects:
        unknowns.note(redirect)
    return mark_empty_answer(add_account(evidence, unknowns, READER))


def _make_unanswered(answer: HttpAnswer, missing: NoAnswer) -> Evidence:
    body = answer.body if missing.keeps_body else None
    return make_unanswered(answer, missing.reason, body=body, metadata=_make_metadata(answer, [missing.reason]))


def _read(answer: HttpAnswer, format: str | None, notes: list[str], *, has_path: bool, is_checked: bool) -> Evidence:
    # A body that reports an error is seldom in the format of an answer.
    if format is not None and answer.status < 400:
        return _read_format(answer, format)
    body, evidence, is_broken = complete_last_step(answer.body), None, False
    try:
        evidence = (read_messages(body, CALL_PARTS) if answer.status < 400 else None) or read_trace(body)
    except EvidenceError as error:
        notes.append(f"messages or a trace in the answer cannot be read: {error.message}")
        is_broken = True
    if evidence is not None:
        return evidence
    if not isinstance(body, dict):
        return read_plain({"text": answer.text or ""}) if body is None else Evidence(text=as_text(body), body=body)
    evidence = read_object(body, has_path=has_path, is_checked=is_checked)
    return msgspec.structs.replace(evidence, tool_calls=None) if is_broken else evidence


def _read_format(answer: HttpAnswer, format: str) -> Evidence:
    if answer.body is None:
        raise TargetFault("bad_answer", f"the answer is not JSON, expected the format {format!r}: {show(answer.text)}")
    # The answer of a Mibo agent is under `data` in its trace body.
    document: Json = {"data": answer.body} if format == "mibo" and not mibo.sniff(answer.body) else answer.body
    try:
        runs = read_document(document, format=format)
    except EvidenceError as error:
        raise TargetFault("bad_answer", f"the answer is not of the format {format!r}: {error.message}") from None
    if len(runs) != 1:
        raise TargetFault("bad_answer", f"the answer contains {len(runs)} runs, expected one")
    run = runs[0]
    if run.text is None and not (run.tool_calls or run.nodes or run.turns or run.state):
        raise TargetFault("bad_answer", f"the answer is not of the format {format!r}: nothing of it is there: {show(answer.body)}")
    return mark_messages(run, CALL_PARTS) if format in MESSAGE_FORMATS else run


def _make_metadata(answer: HttpAnswer, notes: list[str]) -> dict[str, Json]:
    noted: dict[str, Json] = {"notes": notes} if notes else {}
    wait = read_retry_after_s(answer.headers) if answer.status in _RETRY_STATUSES else None
    if wait is not None:
        noted["retry_after_s"] = wait
    return noted
