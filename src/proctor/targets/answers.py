"""What an HTTP answer shows.

The text is looked up by the configured path, else by the usual keys, else it is the whole answer. Status, time and tokens are those of the
exchange. A trace inside the answer is read too: spans, OTLP, an n8n execution, a Flowise prediction, a map or list of nodes, or
members that have an `output` (each of them is a node). Without any of these, tools were seen only if the answer lists `tool_calls`.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence import flowise, mibo, n8n, otlp
from proctor.evidence.plain import read_plain
from proctor.evidence.reading import read_document
from proctor.evidence.shape import dict_of, list_of
from proctor.evidence.text import as_text
from proctor.model.evidence import Evidence, Json
from proctor.model.missing import MISSING
from proctor.model.show import show
from proctor.paths.dotted import find_dotted
from proctor.targets.faults import TargetFault
from proctor.targets.wire import HttpAnswer

_RETRY_STATUSES = (429, 503)


def evidence_of(answer: HttpAnswer, *, response_path: str | None = None, format: str | None = None) -> Evidence:
    """One answer as evidence; `format` names how it is written, otherwise it is recognised. Raises `TargetFault`."""
    notes: list[str] = []
    spoken: str | None = None
    if response_path is not None:
        found = find_dotted(answer.body, response_path)
        if found is MISSING or found is None:
            notes.append(f"response_path {response_path!r} is not in the answer")
        else:
            spoken = as_text(found)
    evidence = _read(answer, format, notes)
    metadata = {**evidence.metadata, **_noted(answer, notes)}
    return msgspec.structs.replace(
        evidence,
        text=spoken if spoken is not None else evidence.text,
        # Checks on fields are about the answer itself, whatever a trace in it says.
        body=answer.body if answer.body is not None else evidence.body,
        http_status=answer.status,
        duration_ms=answer.duration_ms,
        metadata=metadata,
    )


def trace_in(body: Json) -> list[Evidence] | None:
    """The trace that an answer carries, if it carries one. Raises `EvidenceError` for a broken one."""
    if not isinstance(body, dict):
        return None
    if n8n.has_run_data(body) or flowise.sniff(body) or otlp.sniff(body) or (mibo.sniff(body) and "spans" in body):
        return read_document(body)
    if mibo.sniff(body) and _has_nodes(body):
        return mibo.read(body)
    return mibo.read({"data": body}) if _has_nodes({"data": body}) else None


def _has_nodes(document: dict[str, Any]) -> bool:
    data = dict_of(document.get("data"))
    members = data.values() if not list_of(data.get("nodes")) else list_of(data.get("nodes"))
    inner = dict_of(data.get("data")).values()
    return any(isinstance(node, dict) and ("output" in node or "nodeName" in node) for node in (*members, *inner))


def _read(answer: HttpAnswer, format: str | None, notes: list[str]) -> Evidence:
    if format is not None and answer.status >= 400:
        return _plain(answer)  # what tells of an error is seldom in the format of an answer
    if format is not None:
        if answer.body is None:
            raise TargetFault("bad_answer", f"the answer is not JSON, expected the format {format!r}: {show(answer.text)}")
        try:
            found = read_document(answer.body, format=format)
        except EvidenceError as error:
            raise TargetFault("bad_answer", f"the answer is not of the format {format!r}: {error.message}") from None
        if len(found) != 1:
            raise TargetFault("bad_answer", f"the answer holds {len(found)} runs, expected one")
        return found[0]
    try:
        traces = trace_in(answer.body)
    except EvidenceError as error:
        notes.append(f"a trace in the answer cannot be read: {error.message}")
        traces = None
    return traces[0] if traces is not None and len(traces) == 1 else _plain(answer)


def _plain(answer: HttpAnswer) -> Evidence:
    if answer.body is None:
        return read_plain({"text": answer.text or ""})
    return read_plain({"body": answer.body})


def _noted(answer: HttpAnswer, notes: list[str]) -> dict[str, Json]:
    noted: dict[str, Json] = {"notes": notes} if notes else {}
    wait = _retry_after_s(answer.headers) if answer.status in _RETRY_STATUSES else None
    if wait is not None:
        noted["retry_after_s"] = wait
    return noted


def _retry_after_s(headers: dict[str, str]) -> float | None:
    """How long the agent asks to be left alone: seconds, or the time until a date, by its own clock."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        return max(0.0, (parsedate_to_datetime(asked) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None
