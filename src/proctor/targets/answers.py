"""Turns an HTTP answer into evidence.

What is no answer at all is an error (`no_answer.py`), unless the case claims the status: then the text of such an exchange is unknown.
What is known of an answer, and what could be more than one thing, stands in its account (`answer_account.py`).

The text is looked up by the configured path, else by the usual keys, else it is the whole answer. Status, time and tokens are those of the
exchange. A trace inside the answer is read too (`inner_traces.py`). Without one, tools were seen only if the answer lists `tool_calls`.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.retry_after import read_retry_after_s
from proctor.errors import EvidenceError
from proctor.evidence import mibo
from proctor.evidence.mapping.read import Mapping
from proctor.evidence.messages.formats import MESSAGE_FORMATS
from proctor.evidence.plain.record import read_plain
from proctor.evidence.reading import read_document
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.paths.dotted import find_dotted
from proctor.targets.answer_account import said_nothing, with_account
from proctor.targets.faults import TargetFault
from proctor.targets.inner_traces import trace_in
from proctor.targets.lost_messages import mark_lone_answer, mark_lost_answer
from proctor.targets.no_answer import (
    NoAnswer,
    fault_of,
    make_unanswered,
    refuse_body,
    refuse_empty,
    refuse_envelope,
    refuse_path,
    refuse_status,
)
from proctor.targets.told_messages import read_told_messages
from proctor.targets.wire import HttpAnswer

_RETRY_STATUSES = (429, 503)
_ANSWERED = (200, 201)


def evidence_of(
    answer: HttpAnswer,
    *,
    response_path: str | None = None,
    format: str | None = None,
    mapping: Mapping | None = None,
    status_claimed: bool = False,
) -> Evidence:
    """Return one answer as evidence. `format` names how it is written, `mapping` where its parts are; without both it is recognised.

    Raises `TargetFault` for what is no answer, unless the case claims the status that came (`status_claimed`).
    """
    lacking = refuse_body(answer) or refuse_envelope(answer, response_path) or refuse_path(answer, response_path)
    if not status_claimed and (refusal := refuse_status(answer) or lacking) is not None:
        raise fault_of(refusal, answer)
    if lacking is not None:
        return _evidence_without_answer(answer, lacking)
    notes: list[str] = []
    spoken = as_text(find_dotted(answer.body, response_path)) if response_path is not None else None
    # A refusal that is claimed may say that it is one.
    weigh = not status_claimed or answer.status in _ANSWERED
    mapped = mapping is not None and answer.body is not None and answer.status < 400
    evidence = mapping.read(answer.body) if mapping is not None and mapped else _read(answer, format, notes, weigh)
    evidence = msgspec.structs.replace(
        evidence,
        text=spoken if spoken is not None else evidence.text,
        # Checks on fields are about the answer itself, whatever a trace in it says.
        body=answer.body if answer.body is not None and (not mapped or evidence.body is None) else evidence.body,
        http_status=answer.status,
        duration_ms=answer.duration_ms if not mapped or evidence.duration_ms is None else evidence.duration_ms,
        metadata={**evidence.metadata, **_make_metadata(answer, notes)},
    )
    evidence = with_account(evidence, answer, response_path=response_path, format=format, status_claimed=status_claimed)
    if said_nothing(evidence):
        lacking = refuse_empty(answer, "a text with nothing in it")
        if not status_claimed:
            raise fault_of(lacking, answer)
        return _evidence_without_answer(answer, lacking)
    return evidence


def _evidence_without_answer(answer: HttpAnswer, lacking: NoAnswer) -> Evidence:
    evidence = make_unanswered(
        answer, lacking.reason, body=answer.body if lacking.keeps_body else None, metadata=_make_metadata(answer, [lacking.reason])
    )
    return evidence


def _read(answer: HttpAnswer, format: str | None, notes: list[str], weigh: bool) -> Evidence:
    if format is not None and answer.status >= 400:
        return _read_as_plain(answer, weigh)  # what tells of an error is seldom in the format of an answer
    if format is not None:
        if answer.body is None:
            raise TargetFault("bad_answer", f"the answer is not JSON, expected the format {format!r}: {show(answer.text)}")
        try:
            found = read_document(_wrap_body(answer.body, format), format=format)
        except EvidenceError as error:
            raise TargetFault("bad_answer", f"the answer is not of the format {format!r}: {error.message}") from None
        if len(found) != 1:
            raise TargetFault("bad_answer", f"the answer holds {len(found)} runs, expected one")
        if _says_nothing(found[0]):
            raise TargetFault("bad_answer", f"the answer is not of the format {format!r}: nothing of it is there: {show(answer.body)}")
        return mark_lone_answer(found[0]) if format in MESSAGE_FORMATS else found[0]
    try:
        told = read_told_messages(answer.body) if answer.status < 400 else None
    except EvidenceError as error:
        notes.append(f"messages in the answer cannot be read: {error.message}")
        return _without_trace(answer, weigh)
    if told is not None:
        return mark_lost_answer(mark_lone_answer(told))
    try:
        traces = trace_in(answer.body)
    except EvidenceError as error:
        notes.append(f"a trace in the answer cannot be read: {error.message}")
        return _without_trace(answer, weigh)
    if traces is None:
        return _read_as_plain(answer, weigh)
    if len(traces) != 1:
        notes.append(f"the answer holds {len(traces)} traces, expected one")
        return _without_trace(answer, weigh)
    return traces[0]


def _wrap_body(body: Json, format: str) -> Json:
    """Return the body as a document of this format: the answer of a Mibo agent is what its trace body has under `data`."""
    return {"data": body} if format == "mibo" and not mibo.sniff(body) else body


def _says_nothing(evidence: Evidence) -> bool:
    """Return whether a reader found neither words nor actions, which means that the document is of another kind."""
    return evidence.text is None and not (evidence.tool_calls or evidence.nodes or evidence.turns or evidence.state)


def _without_trace(answer: HttpAnswer, weigh: bool) -> Evidence:
    """Return what the answer says where the trace in it cannot be used, so that what was done is unknown."""
    return msgspec.structs.replace(_read_as_plain(answer, weigh), tool_calls=None, nodes=None)


def _read_as_plain(answer: HttpAnswer, weigh: bool) -> Evidence:
    if answer.body is None:
        return read_plain({"text": answer.text or ""})
    evidence = read_plain({"body": answer.body}, check_ending=weigh)
    # Beside the text, as the usage is.
    model: Json = answer.body.get("model") if isinstance(answer.body, dict) else None
    return msgspec.structs.replace(evidence, model=model) if isinstance(model, str) and evidence.model is None else evidence


def _make_metadata(answer: HttpAnswer, notes: list[str]) -> dict[str, Json]:
    noted: dict[str, Json] = {"notes": notes} if notes else {}
    wait = read_retry_after_s(answer.headers) if answer.status in _RETRY_STATUSES else None
    if wait is not None:
        noted["retry_after_s"] = wait
    return noted
