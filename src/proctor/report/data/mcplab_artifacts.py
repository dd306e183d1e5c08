"""A run as MCPLab's result files: `results.json`, `trace.jsonl`, `summary.md` and `report.html`.

Shapes, metrics and messages are MCPLab's: an attempt with an error counts as failed, pass rates are shares of attempts. Expected and actual
values are added to a check as `detail`. An attempt with an error keeps its answer and calls.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from proctor.model.case import Assertion, Case
from proctor.model.cuts import RESULT_LIMIT, cut_text
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.json_values import encode_any_json, to_whole_number, to_whole_numbers, write_document
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.model.show import show
from proctor.model.stamps import stamp_moment
from proctor.model.typed import convert_to
from proctor.model.verdict import Verdict
from proctor.report.document import model as doc
from proctor.report.document.html import write_html

_TYPES: Final = {
    "tool_not_called": "forbidden_tool",
    "tool_called": "required_tool",
    "tools_in_order": "tool_sequence",
    "tools_exactly": "tool_sequence",
    "tool_input_contains": "tool_input_contains",
    "tool_input_matches": "tool_input_regex",
    "tool_input_path": "tool_input_jsonpath",
    "response_matches": "response_regex",
    "judged": "agent_check",
}
_TEXT_RULES: Final = {
    "response_contains": "Contains",
    "response_not_contains": "Not-contains",
    "response_starts_with": "Starts-with",
    "response_ends_with": "Ends-with",
    "response_equals": "Equals",
}


def find_type(assertion: Assertion) -> str:
    """Return MCPLab's name of a check."""
    if assertion.check != "json_path":
        return _TYPES.get(assertion.check, assertion.check)
    spec: Json = assertion.spec
    return f"response_{assertion.rule.get('type') or ('jsonpath' if spec.exists else 'jsonpath_not_exists')}"


def explain_failure(assertion: Assertion, verdict: Verdict, evidence: Evidence | None) -> str:
    """Return why a check failed, in MCPLab's words or else ours."""
    spec: Json = assertion.spec
    observed = evidence or Evidence()
    match assertion.check:
        case "tool_not_called":
            return f"Forbidden tool used: {_find_tool(spec.name, observed)}"
        case "tool_called":
            return f"Required tool not used: {_find_tool(spec.name, observed)}"
        case "tools_in_order":
            return _explain_sequence([_find_tool(name, observed) for name in spec.names], [call.name for call in observed.tool_calls or ()])
        case "tools_exactly":
            return "Tool sequence did not match any allowed sequence"
        case "tool_input_contains" | "tool_input_matches" | "tool_input_path":
            return "Tool input assertion failed: " + _explain_input(assertion, verdict, observed)
        case "response_matches":
            return f"Invalid regex: {spec.pattern}" if verdict.code == "invalid_pattern" else f"Regex assertion failed: {spec.pattern}"
        case "json_path":
            if verdict.code == "not_json":
                return f"JSONPath assertion failed: invalid JSON for path {spec.path}"
            if not spec.exists:
                return f"JSONPath not-exists assertion failed: {spec.path}"
            compared = "" if spec.equals is msgspec.UNSET else "equals "
            return f"JSONPath {compared}assertion failed: {spec.path}"
        case check if check in _TEXT_RULES:
            return f"{_TEXT_RULES[check]} assertion failed: {spec.text}"
        case _:
            return verdict.reason


def _find_tool(name: str, evidence: Evidence) -> str:
    """Return the tool that a rule refers to."""
    # MCPLab reads `server:tool` as the part after the last colon, only if that is an available tool.
    tail = name.rpartition(":")[2]
    called = {call.name for call in evidence.tool_calls or ()}
    return tail if tail in called or tail in (evidence.available_tools or ()) else name


def _explain_sequence(required: Sequence[str], called: Sequence[str]) -> str:
    """Return why the tools were not called in order: the first mismatch."""
    place = 0
    for name in required:
        if name not in called[place:]:
            if name not in called:
                return f"Required tool in sequence not used: {name}"
            break
        place = called.index(name, place) + 1
    return f"Tool sequence order was not satisfied: {' -> '.join(required)}"


def _explain_input(assertion: Assertion, verdict: Verdict, evidence: Evidence) -> str:
    spec: Json = assertion.spec
    tool = _find_tool(spec.tool, evidence)
    if verdict.code == "invalid_pattern":
        return f"invalid regex {spec.pattern}"
    if not any(call.goes_by(spec.tool) or call.name == tool for call in evidence.tool_calls or ()):
        return f"tool not used: {tool}"
    if assertion.check == "tool_input_contains":
        expected = f"contains {spec.text}"
    elif assertion.check == "tool_input_matches":
        expected = f"regex {spec.pattern}"
    else:
        expected = f"JSONPath {spec.path} " + ("exists" if spec.equals is msgspec.UNSET else f"== {_write_value(spec.equals)}")
    return f"{tool} input did not match (expected: {expected})"


def _write_value(value: Json) -> str:
    """Return a value as JavaScript writes it."""
    if isinstance(value, str):
        return value
    return show(int(value) if isinstance(value, float) and value.is_integer() else value)


# --- A run as MCPLab's `trace.jsonl`, version 3: one line per attempt, with the whole conversation

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
    """Return the error of an attempt, if any."""
    if entry.evidence is not None and entry.evidence.error is not None:
        return entry.evidence.error
    if entry.evidence is None and entry.outcome == "error":
        return entry.reason or entry.code or "the attempt left nothing to look at"
    return None


def find_end(entry: RunEntry) -> str:
    """Return when an attempt ended, as far as its start is known."""
    return _move_moment(entry.started_at, entry.duration_ms or 0)


def _move_moment(moment: str, milliseconds: float) -> str:
    """Return a later moment; an unreadable one is unchanged."""
    try:
        start = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return stamp_moment(start + timedelta(milliseconds=milliseconds))


def trace_text(run_id: str, started_at: str, entries: Iterable[RunEntry], rows: Mapping[str, ArtifactRow]) -> str:
    """Return the whole file."""
    lines: list[Json] = [{"type": "trace_meta", "trace_version": TRACE_VERSION, "run_id": run_id, "ts": started_at}]
    lines += [_write_line(entry, rows[entry.case]) for entry in entries if entry.case in rows]
    return "".join(encode_any_json(line).decode() + "\n" for line in lines)


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
            # At the turn limit the answer is empty, not unknown.
            line["final_text"] = ""
    line["messages"] = [] if evidence is None else list(_iterate_messages(evidence, row, entry.started_at))
    durations = [call.duration_ms for call in calls if call.duration_ms is not None]
    line["metrics"] = {"tool_call_count": len(calls), "total_tool_duration_ms": round(sum(durations), 3)}
    return line


def _iterate_messages(evidence: Evidence, row: ArtifactRow, started_at: str) -> Iterator[dict[str, Json]]:
    recorded_calls = iter(_make_ids_unique(evidence.tool_calls or ()))
    stored: list[dict[str, Json]] = evidence.metadata.get("messages") or []
    first_user = True
    for place, message in enumerate(stored):
        at = message.get("ts") or started_at
        if message["role"] == "user":
            attachments = row.attachments if first_user else ()
            content = [_write_text(message.get("text", "")), *map(_write_file, attachments)]
            first_user = False
            yield {"role": "user", "ts": at, "content": content}
        elif message["role"] == "assistant":
            requested = message.get("tool_calls") or ()
            # `requested` comes first: when it ends, `zip` stops without taking a call of the next message.
            calls = [call for _, call in zip(requested, recorded_calls, strict=False)]
            text = message.get("text", "")
            if (requested and not calls) or not (text or calls):
                continue  # it failed before any call, or there is no text
            usage = {} if message.get("usage") is None else {"usage": _write_usage(message["usage"])}
            yield {"role": "assistant", "ts": at, **usage, "content": [*([_write_text(text)] if text else []), *map(_use, calls)]}
            if calls:
                # Results follow the message that requested them, in order.
                answers = [each for each in stored[place + 1 : place + 1 + len(calls)] if each["role"] == "tool"]
                ends = [each.get("ts") or at for each in answers] + [at] * (len(calls) - len(answers))
                results = [_write_result(call, end) for call, end in zip(calls, ends, strict=True)]
                yield {"role": "tool", "ts": ends[-1], "content": results}


def _write_usage(usage: Mapping[str, Json]) -> dict[str, Json]:
    spent = convert_to(usage, Usage)
    return {"input_tokens": spent.input_tokens or 0, "output_tokens": spent.output_tokens or 0, "total_tokens": spent.total() or 0}


def _make_ids_unique(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return calls with unique ids: some models restart their count in every reply."""
    used_ids: set[str] = set()
    unique_calls: list[ToolCall] = []
    for number, call in enumerate(calls):
        name = call.id or f"call-{number}"
        while name in used_ids:
            name = f"{call.id or 'call'}-{number}"
            number += len(calls)
        used_ids.add(name)
        unique_calls.append(msgspec.structs.replace(call, id=name))
    return unique_calls


def _write_text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def _write_file(attachment: Mapping[str, Json]) -> dict[str, Json]:
    fields = {key: attachment[key] for key in ("media_type", "data", "url", "name") if attachment.get(key) is not None}
    return {"type": attachment.get("type", "document"), **fields}


def _use(call: ToolCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments, "server": call.server or ""}


def _write_result(call: ToolCall, end: str) -> dict[str, Json]:
    raised = call.failed() and call.failure_kind() != "content-error"
    text = encode_any_json({"error": call.failure()} if raised else call.result).decode()
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


_HALVES = re.compile("[\ud800-\udfff]")
_STATUS: Final = {"pass": "passed", "fail": "failed", "error": "not_evaluated", "skip": "not_applicable"}


class MadeWith(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a run, which it does not contain itself."""

    rows: tuple[ArtifactRow, ...]
    config_hash: str
    version: str
    note: str = ""
    stopped: bool = False
    """Whether it ended early."""


def artifact_texts(run: RunResult, entries: Iterable[RunEntry], made_with: MadeWith) -> dict[str, str]:
    """Return the files by name."""
    order = {row.case: number for number, row in enumerate(made_with.rows)}
    # Cases that were not run (a browser agent) have no row in the original.
    driven = (entry for entry in entries if entry.case in order and entry.outcome != "skip")
    entries = sorted(driven, key=lambda entry: (order[entry.case], entry.attempt))
    rows = {row.case: row for row in made_with.rows}
    results = write_results(run, entries, made_with)
    return {
        "results.json": write_document(to_whole_numbers(results)).decode(),
        "trace.jsonl": trace_text(run.run_id, run.started_at, entries, rows),
        # As JavaScript writes lone surrogates.
        "summary.md": _HALVES.sub("\ufffd", write_summary_text(results)),
        "report.html": _HALVES.sub("\ufffd", write_html(build_report(results))),
    }


def write_results(run: RunResult, entries: Sequence[RunEntry], made_with: MadeWith) -> dict[str, Json]:
    """Return the document `results.json`."""
    cases = {result.case.id: result.case for result in run.cases}
    by_case: dict[str, list[RunEntry]] = {}
    for entry in entries:
        by_case.setdefault(entry.case, []).append(entry)
    rows = [row for row in made_with.rows if row.case in by_case]
    scenarios = [_write_scenario(row, cases.get(row.case) or Case(id=row.case), by_case[row.case]) for row in rows]
    return {"metadata": _write_metadata(run, entries, made_with), "summary": _write_summary(scenarios, entries), "scenarios": scenarios}


def _write_metadata(run: RunResult, entries: Sequence[RunEntry], made_with: MadeWith) -> dict[str, Json]:
    versions: dict[str, Json] = {}
    for entry in entries:
        for server in (entry.evidence.metadata.get("servers") if entry.evidence is not None else None) or ():
            versions[server["id"]] = server.get("version") or versions.get(server["id"])
    durations = [duration for entry in entries for duration in _list_durations(entry)]
    metadata: dict[str, Json] = {
        "run_id": run.run_id,
        "timestamp": max((find_end(entry) for entry in entries), default=run.started_at),
        "config_hash": made_with.config_hash,
        "cli_version": made_with.version,
        "mcp_server_versions": versions,
        "config_name": run.suite_name,
        "total_duration_ms": round(sum(entry.duration_ms or 0 for entry in entries), 3),
        "total_tool_duration_ms": round(sum(durations), 3),
        "execution_source": "mcplab",
        "run_note": made_with.note or None,
        "config_path": run.suite_path,
        "execution_status": "stopped" if made_with.stopped else None,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _write_summary(scenarios: Sequence[Mapping[str, Json]], entries: Sequence[RunEntry]) -> dict[str, Json]:
    total = len(entries)
    durations = [duration for entry in entries for duration in _list_durations(entry)]
    outcomes = Counter(find_outcome(entry) for entry in entries)
    return {
        "total_scenarios": len(scenarios),
        "total_runs": total,
        "pass_rate": sum(entry.outcome == "pass" for entry in entries) / total if total else 0,
        "avg_tool_calls_per_run": sum(len(_list_calls(entry)) for entry in entries) / total if total else 0,
        "avg_tool_latency_ms": math.fsum(durations) / len(durations) if durations else None,
        "outcomes": {word: outcomes[word] for word in ("passed", "failed", "incomplete", "error")},
    }


def _write_scenario(row: ArtifactRow, case: Case, entries: Sequence[RunEntry]) -> dict[str, Json]:
    runs = [_run(case, entry) for entry in entries]
    frequency: Counter[str] = Counter()
    for run in runs:
        frequency.update(run["tool_usage"])
    scenario: dict[str, Json] = {"scenario_id": row.scenario, "agent": row.agent}
    fields = {"scenario_name": case.name or None, "provider": row.provider, "model": row.model, "eval": row.rules or None}
    scenario |= {key: value for key, value in fields.items() if value is not None}
    constraints = row.rules.get("tool_constraints")
    if constraints:
        scenario["tool_constraints_stats"] = {
            kind: {tool: sum(_has_used(tool, entry) for entry in entries) for tool in constraints.get(f"{kind}_tools", ())}
            for kind in ("required", "forbidden")
        }
    return {
        **scenario,
        "runs": runs,
        "pass_rate": sum(entry.outcome == "pass" for entry in entries) / len(entries) if entries else 0,
        "distinct_sequences": dict(Counter(encode_any_json(run["tool_sequence"]).decode() for run in runs)),
        "tool_usage_frequency": dict(frequency),
        "extracted_values": _count_histograms(entries),
        "last_final_answer": next((run["final_text"] for run in reversed(runs) if run["final_text"]), ""),
    }


def _run(case: Case, entry: RunEntry) -> dict[str, Json]:
    calls = _list_calls(entry)
    names = [call.name for call in calls]
    error = find_error(entry)
    checks = [_check(assertion, verdict, entry.evidence) for assertion, verdict in zip(case.assertions, entry.verdicts, strict=False)]
    failures = [check["reason"] for check in checks if check["status"] == "failed"]
    if error is not None:
        failures.insert(0, f"Scenario error: {error}")
    request_id = entry.evidence.metadata.get("request_id") if entry.evidence is not None else None
    return {
        "run_index": entry.attempt,
        **({"request_id": request_id} if request_id else {}),
        "pass": entry.outcome == "pass",
        "outcome": find_outcome(entry),
        **({"error": error} if error is not None else {}),
        "failures": failures,
        "check_results": checks,
        "tool_calls": names,
        "tool_call_count": len(names),
        "tool_sequence": names,
        "tool_usage": dict(Counter(names)),
        "tool_durations_ms": _list_durations(entry),
        "run_duration_ms": entry.duration_ms,
        "final_text": (entry.evidence.text if entry.evidence is not None else None) or "",
        "extracted": entry.extracted,
    }


def _check(assertion: Assertion, verdict: Verdict, evidence: Evidence | None) -> dict[str, Json]:
    # Unrecorded parts were not checked.
    status = "not_evaluated" if verdict.code == "missing_evidence" else _STATUS[verdict.outcome]
    check: dict[str, Json] = {"type": find_type(assertion), "label": assertion.label, "status": status}
    if status == "failed":
        check |= {"reason": explain_failure(assertion, verdict, evidence), "detail": verdict.reason}
    elif verdict.outcome != "pass" or assertion.check == "judged":
        # Only a judge explains a pass.
        check["reason"] = verdict.reason
    if verdict.details:
        check["metadata"] = verdict.details
    return check


def _list_calls(entry: RunEntry) -> tuple[ToolCall, ...]:
    return (entry.evidence.tool_calls if entry.evidence is not None else None) or ()


def _list_durations(entry: RunEntry) -> list[float]:
    return [call.duration_ms for call in _list_calls(entry) if call.duration_ms is not None]


def _has_used(tool: str, entry: RunEntry) -> bool:
    """Return whether the attempt called the tool, by its name or as `server:tool`."""
    return any(call.goes_by(tool) or call.name == tool.rpartition(":")[2] for call in _list_calls(entry))


def _count_histograms(entries: Sequence[RunEntry]) -> dict[str, dict[str, int]]:
    histograms: dict[str, dict[str, int]] = {}
    for entry in entries:
        for name, value in entry.extracted.items():
            text = value if isinstance(value, str) else encode_any_json(to_whole_number(value)).decode()
            counts = histograms.setdefault(name, {})
            counts[text] = counts.get(text, 0) + 1
    return histograms


def write_summary_text(results: Mapping[str, Json]) -> str:
    """Return the text of `summary.md`, which ends without a line break."""
    metadata, summary = results["metadata"], results["summary"]
    lines = ["# MCPLab run summary", "", f"- Run ID: {metadata['run_id']}", f"- Timestamp: {metadata['timestamp']}"]
    if "run_note" in metadata:
        lines.append(f"- Run note: {_write_cell(metadata['run_note'])}")
    lines += [f"- Config hash: {metadata['config_hash']}", f"- CLI version: {metadata['cli_version']}", "- MCP servers:"]
    lines += [
        f"  - {_write_cell(server)}: {_write_cell(version or 'unknown')}" for server, version in metadata["mcp_server_versions"].items()
    ]
    lines += [
        f"- Total scenarios: {summary['total_scenarios']}",
        f"- Total runs: {summary['total_runs']}",
        f"- Pass rate: {summary['pass_rate'] * 100:.1f}%",
        "",
        "| Scenario | Agent | Runs | Pass rate | Distinct sequences | Tool calls |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(map(_write_cell, _list_cells(row)))} |" for row in results["scenarios"]]
    return "\n".join(lines)


def _write_cell(text: str) -> str:
    """Return text that stays in its cell."""
    flat = " ".join(str(text).split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


# MCPLab's `report.html`: the scenarios of a run on one page. It shows the same as the original.

_PERCENT: Final = "{:.1%}".format


def build_report(results: Mapping[str, Json]) -> doc.Document:
    """Return the page of a `results.json`."""
    metadata, summary, scenarios = results["metadata"], results["summary"], results["scenarios"]
    latency = summary["avg_tool_latency_ms"]
    facts: dict[str, str] = {"Run ID": metadata["run_id"], "Timestamp": metadata["timestamp"]}
    facts |= {"Run note": metadata["run_note"]} if "run_note" in metadata else {}
    facts |= {"Config hash": metadata["config_hash"], "CLI version": metadata["cli_version"]}
    facts |= {f"MCP server {server}": version or "unknown" for server, version in metadata["mcp_server_versions"].items()}
    tiles = {
        "Scenarios": str(summary["total_scenarios"]),
        "Runs": str(summary["total_runs"]),
        "Pass rate": _PERCENT(summary["pass_rate"]),
        "Tool calls per run": f"{summary['avg_tool_calls_per_run']:.2f}",
        "Tool latency": "none" if latency is None else f"{latency:.0f} ms",
    }
    names = ("Scenario", "Agent", "Runs", "Pass rate", "Distinct sequences", "Tool calls")
    columns = (*map(doc.Column, names[:2]), *(doc.Column(name, number=True) for name in names[2:]))
    blocks: list[doc.Block] = [_make_facts(facts), _make_facts(tiles)]
    for state in ("fail", "mixed", "pass"):
        rows = tuple(doc.Row(tuple((doc.Text(cell),) for cell in _list_cells(row))) for row in scenarios if _find_state(row) == state)
        blocks += [doc.Section((state,), (doc.Table(columns, rows),))] if rows else []
    blocks += map(_make_section, scenarios)
    tone = "pass" if summary["pass_rate"] == 1 else "fail"
    return doc.Document(name="MCPLab run report", verdict=(tone, tone), headline="", blocks=tuple(blocks))


def _make_section(row: Mapping[str, Json]) -> doc.Section:
    runs = len(row["runs"])
    counts: dict[str, Mapping[str, Json]] = {"Distinct sequences": row["distinct_sequences"]}
    for kind, used in row.get("tool_constraints_stats", {}).items():
        counts[f"{kind.capitalize()} tools"] = {tool: f"{count}/{runs}" for tool, count in used.items()}
    counts |= {"Tool calls": row["tool_usage_frequency"]}
    counts |= {f"Captured {name}": values for name, values in row["extracted_values"].items()}
    items = [
        doc.Item((title,), (doc.Listing(tuple((doc.Text(str(name), "code"), f" {count}") for name, count in listed.items())),))
        for title, listed in counts.items()
        if listed
    ]
    answer = doc.Item(("Last answer",), (doc.Paragraph((doc.Value(row["last_final_answer"]),)),))
    title = " · ".join(filter(None, (row["scenario_id"], row.get("scenario_name"), row["agent"])))
    return doc.Section((doc.Text(title),), (doc.Items((*items, answer)),))


def _make_facts(rows: Mapping[str, str]) -> doc.Facts:
    return doc.Facts(tuple((name, (doc.Text(value),)) for name, value in rows.items()))


def _find_state(row: Mapping[str, Json]) -> str:
    """Return whether every attempt passed, none, or some."""
    return "pass" if row["pass_rate"] == 1 else "fail" if row["pass_rate"] == 0 else "mixed"


def _list_cells(row: Mapping[str, Json]) -> list[str]:
    """Return the cells of a scenario in a table."""
    counts = (len(row["runs"]), _PERCENT(row["pass_rate"]), len(row["distinct_sequences"]), sum(row["tool_usage_frequency"].values()))
    return [row["scenario_id"], row["agent"], *map(str, counts)]
