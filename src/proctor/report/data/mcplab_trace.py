"""A run as MCPLab's `trace.jsonl`, version 3: one line per attempt, with the whole conversation.

Differences from the original, all of them so that nothing is lost: an assistant's text is not cut; an attempt that ended in an error keeps
its messages, and says `final_text` where its answer is known to be empty; a result that says `isError` stays what the server said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from proctor.model.cuts import RESULT_LIMIT, cut_text
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.json_values import encode_strangers
from proctor.model.run import RunEntry
from proctor.model.stamps import stamp_moment
from proctor.model.typed import convert_to

TRACE_VERSION: Final = 3
"""The version of MCPLab's trace that is written."""


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


def find_outcome(entry: RunEntry) -> str:
    """Return the outcome in MCPLab's words: `error`, else `failed`, else `incomplete`, else `passed`."""
    if find_error(entry) is not None:
        return "error"
    if entry.outcome in ("fail", "pass"):
        return "failed" if entry.outcome == "fail" else "passed"
    return "failed" if any(verdict.outcome == "fail" for verdict in entry.verdicts) else "incomplete"


def find_error(entry: RunEntry) -> str | None:
    """Return why an attempt broke off, if it did."""
    if entry.evidence is not None and entry.evidence.error is not None:
        return entry.evidence.error
    if entry.evidence is None and entry.outcome == "error":
        return entry.reason or entry.code or "the attempt left nothing to look at"
    return None


def find_end(entry: RunEntry) -> str:
    """Return when an attempt ended, as far as its start is known."""
    return _move_moment(entry.started_at, entry.duration_ms or 0)


def _move_moment(moment: str, milliseconds: float) -> str:
    """Return a moment, so much later; one that cannot be read stays what it is."""
    try:
        start = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return stamp_moment(start + timedelta(milliseconds=milliseconds))


def trace_text(run_id: str, started_at: str, entries: Iterable[RunEntry], rows: Mapping[str, ArtifactRow]) -> str:
    """Return the whole file."""
    lines: list[Json] = [{"type": "trace_meta", "trace_version": TRACE_VERSION, "run_id": run_id, "ts": started_at}]
    lines += [_write_line(entry, rows[entry.case]) for entry in entries if entry.case in rows]
    return "".join(encode_strangers(line).decode() + "\n" for line in lines)


def _write_line(entry: RunEntry, row: ArtifactRow) -> dict[str, Json]:
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
        "ts_end": find_end(entry),
        "pass": entry.outcome == "pass",
        "outcome": find_outcome(entry),
    }
    error = find_error(entry)
    if error is not None:
        line["error"] = error
        if evidence is not None and evidence.text == "":
            # The turn limit: the answer is empty, which is something else than unknown.
            line["final_text"] = ""
    line["messages"] = [] if evidence is None else list(_iterate_messages(evidence, row, entry.started_at))
    durations = [call.duration_ms for call in calls if call.duration_ms is not None]
    line["metrics"] = {"tool_call_count": len(calls), "total_tool_duration_ms": round(sum(durations), 3)}
    return line


def _iterate_messages(evidence: Evidence, row: ArtifactRow, started_at: str) -> Iterator[dict[str, Json]]:
    made = iter(_make_ids_unique(evidence.tool_calls or ()))
    kept: list[dict[str, Json]] = evidence.metadata.get("messages") or []
    first_user = True
    for place, message in enumerate(kept):
        at = message.get("ts") or started_at
        if message["role"] == "user":
            content = [_write_text(message.get("text", ""))] + ([_write_file(each) for each in row.attachments] if first_user else [])
            first_user = False
            yield {"role": "user", "ts": at, "content": content}
        elif message["role"] == "assistant":
            wanted = message.get("tool_calls") or ()
            # `wanted` stands first: `zip` ends on it without taking a call from `made` that belongs to the next message.
            calls = [call for _, call in zip(wanted, made, strict=False)]
            text = message.get("text", "")
            if (wanted and not calls) or not (text or calls):
                continue  # it broke off before any call was made, or nothing was said
            usage = {} if message.get("usage") is None else {"usage": _write_usage(message["usage"])}
            yield {"role": "assistant", "ts": at, **usage, "content": [*([_write_text(text)] if text else []), *map(_use, calls)]}
            if calls:
                # The results follow the message that asked for them, one for each call and in its order.
                answers = [each for each in kept[place + 1 : place + 1 + len(calls)] if each["role"] == "tool"]
                ends = [each.get("ts") or at for each in answers] + [at] * (len(calls) - len(answers))
                results = [_write_result(call, end) for call, end in zip(calls, ends, strict=True)]
                yield {"role": "tool", "ts": ends[-1], "content": results}


def _write_usage(usage: Mapping[str, Json]) -> dict[str, Json]:
    spent = convert_to(usage, Usage)
    return {"input_tokens": spent.input_tokens or 0, "output_tokens": spent.output_tokens or 0, "total_tokens": spent.total() or 0}


def _make_ids_unique(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return calls whose results can be found by id: some models count anew in every reply."""
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


def _write_text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def _write_file(attachment: Mapping[str, Json]) -> dict[str, Json]:
    kept = {key: attachment[key] for key in ("media_type", "data", "url", "name") if attachment.get(key) is not None}
    return {"type": attachment.get("type", "document"), **kept}


def _use(call: ToolCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments, "server": call.server or ""}


def _write_result(call: ToolCall, end: str) -> dict[str, Json]:
    raised = call.failed() and call.failure_kind() != "content-error"
    text = encode_strangers({"error": call.failure()} if raised else call.result).decode()
    return {
        "type": "tool_result",
        "tool_use_id": call.id,
        "name": call.name,
        "server": call.server or "",
        "content": [_write_text(cut_text(text, RESULT_LIMIT))],
        "is_error": raised,
        "duration_ms": call.duration_ms or 0,
        "ts_start": _move_moment(end, -(call.duration_ms or 0)),
        "ts_end": end,
    }
