"""A run as MCPLab's `trace.jsonl`, version 3: one line per attempt, with the whole conversation.

Differences from the original, all of them so that nothing is lost: an assistant's text is not cut; an attempt that ended in an error keeps
its messages; a result that says `isError` stays what the server said. Times inside a conversation were not taken one by one, so
messages carry the start of the attempt, and only tool results their duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.run import RunEntry

TRACE_VERSION: Final = 3
_RESULT_LIMIT: Final = 12_000


class ArtifactRow(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario with one agent, and the case it was run as."""

    case: str
    scenario: str
    agent: str
    provider: str | None = None
    model: str | None = None
    rules: dict[str, Json] = {}
    """The `eval` block."""
    attachments: tuple[dict[str, Json], ...] = ()


def outcome_of(entry: RunEntry) -> str:
    """The outcome in MCPLab's words: `error`, else `failed`, else `incomplete`, else `passed`."""
    if error_of(entry) is not None:
        return "error"
    if entry.outcome in ("fail", "pass"):
        return "failed" if entry.outcome == "fail" else "passed"
    return "failed" if any(verdict.outcome == "fail" for verdict in entry.verdicts) else "incomplete"


def error_of(entry: RunEntry) -> str | None:
    """Why an attempt broke off, if it did."""
    if entry.evidence is not None and entry.evidence.error is not None:
        return entry.evidence.error
    if entry.evidence is None and entry.outcome == "error":
        return entry.reason or entry.code or "the attempt left nothing to look at"
    return None


def ended_at(entry: RunEntry) -> str:
    """When an attempt ended, as far as its start is known."""
    try:
        start = datetime.fromisoformat(entry.started_at)
    except ValueError:
        return entry.started_at
    return (start + timedelta(milliseconds=entry.duration_ms or 0)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trace_text(run_id: str, started_at: str, entries: Iterable[RunEntry], rows: Mapping[str, ArtifactRow]) -> str:
    """The whole file."""
    lines: list[Json] = [{"type": "trace_meta", "trace_version": TRACE_VERSION, "run_id": run_id, "ts": started_at}]
    lines += [_line(entry, rows[entry.case]) for entry in entries if entry.case in rows]
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def _line(entry: RunEntry, row: ArtifactRow) -> dict[str, Json]:
    evidence = entry.evidence
    calls = (evidence.tool_calls if evidence is not None else None) or ()
    line: dict[str, Json] = {
        "type": "scenario_run",
        "trace_version": TRACE_VERSION,
        "run_index": entry.attempt,
        "request_id": evidence.metadata.get("request_id", "") if evidence is not None else "",
        "scenario_id": row.scenario,
        "agent": row.agent,
        "provider": row.provider,
        "model": row.model,
        "ts_start": entry.started_at,
        "ts_end": ended_at(entry),
        "pass": entry.outcome == "pass",
        "outcome": outcome_of(entry),
    }
    error = error_of(entry)
    if error is not None:
        line["error"] = error
    line["messages"] = [] if evidence is None else list(_messages(evidence, row, entry.started_at))
    durations = [call.duration_ms for call in calls if call.duration_ms is not None]
    line["metrics"] = {"tool_call_count": len(calls), "total_tool_duration_ms": round(sum(durations), 3)}
    return line


def _messages(evidence: Evidence, row: ArtifactRow, at: str) -> Iterator[dict[str, Json]]:
    made = iter(_unique_ids(evidence.tool_calls or ()))
    kept: list[dict[str, Json]] = evidence.metadata.get("messages") or []
    first_user = True
    answered = False
    for message in kept:
        if message["role"] == "user":
            content = [_text(message.get("text", ""))] + ([_file(each) for each in row.attachments] if first_user else [])
            first_user = False
            yield {"role": "user", "ts": at, "content": content}
        elif message["role"] == "assistant":
            wanted = message.get("tool_calls") or ()
            calls = [call for _, call in zip(wanted, made, strict=False)]
            if wanted and not calls:
                continue  # it broke off before any of them was made: neither calls nor an answer
            answered = not calls
            text = message.get("text", "")
            yield {"role": "assistant", "ts": at, "content": [*([_text(text)] if text or not calls else []), *map(_use, calls)]}
            if calls:
                yield {"role": "tool", "ts": at, "content": [_result(call, at) for call in calls]}
    if not answered and evidence.text is not None:
        # The turn limit: the answer is empty, which is something else than not known.
        yield {"role": "assistant", "ts": at, "content": [_text(evidence.text)]}


def _unique_ids(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Calls whose results can be found by id: some models count anew in every reply."""
    taken: set[str] = set()
    found: list[ToolCall] = []
    for number, call in enumerate(calls):
        name = call.id or f"call-{number}"
        while name in taken:
            name = f"{call.id or 'call'}-{number}"
            number += len(calls)
        taken.add(name)
        found.append(msgspec.structs.replace(call, id=name))
    return found


def _text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def _file(attachment: Mapping[str, Json]) -> dict[str, Json]:
    kept = {key: attachment[key] for key in ("media_type", "data", "url", "name") if attachment.get(key) is not None}
    return {"type": attachment.get("type", "document"), **kept}


def _use(call: ToolCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments, "server": call.server or ""}


def _result(call: ToolCall, at: str) -> dict[str, Json]:
    raised = call.failed() and call.failure_kind() != "content-error"
    text = msgspec.json.encode({"error": call.failure()} if raised else call.result).decode()
    return {
        "type": "tool_result",
        "tool_use_id": call.id,
        "name": call.name,
        "server": call.server or "",
        "content": [_text(text if len(text) <= _RESULT_LIMIT else text[:_RESULT_LIMIT] + "...")],
        "is_error": raised,
        "duration_ms": call.duration_ms or 0,
        "ts_start": at,
        "ts_end": at,
    }
