"""A run as the files MCPLab leaves behind: `results.json`, `trace.jsonl`, `summary.md` and `report.html.report`, for whoever reads those.

Shapes, metrics and the words of a failed check are MCPLab's: an attempt that ended in an error counts as failed, pass rates are shares of
attempts. What was expected and what was found stands beside a check as `detail`. An attempt that errored keeps its answer and its calls.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import encode_strangers, to_whole_number, to_whole_numbers, write_document
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.report.data.mcplab_trace import ArtifactRow, find_end, find_error, find_outcome, trace_text
from proctor.report.html.mcplab import report_page
from proctor.report.words.mcplab import explain_failure, find_type

__all__ = ["ArtifactRow", "MadeWith", "artifact_texts", "write_results", "write_summary_text"]

_HALVES = re.compile("[\ud800-\udfff]")
_STATUS: Final = {"pass": "passed", "fail": "failed", "error": "not_evaluated", "skip": "not_applicable"}


class MadeWith(msgspec.Struct, frozen=True, kw_only=True):
    """What the run itself does not tell: what it was made of."""

    rows: tuple[ArtifactRow, ...]
    config_hash: str
    version: str
    note: str = ""
    stopped: bool = False
    """Whether it ended before everything was run."""


def artifact_texts(run: RunResult, entries: Iterable[RunEntry], made_with: MadeWith) -> dict[str, str]:
    """Return the files by name."""
    order = {row.case: number for number, row in enumerate(made_with.rows)}
    # What was never driven (a browser agent) is no run: the original has no row for it.
    driven = (entry for entry in entries if entry.case in order and entry.outcome != "skip")
    kept = sorted(driven, key=lambda entry: (order[entry.case], entry.attempt))
    rows = {row.case: row for row in made_with.rows}
    results = write_results(run, kept, made_with)
    return {
        "results.json": write_document(to_whole_numbers(results)).decode(),
        "trace.jsonl": trace_text(run.run_id, run.started_at, kept, rows),
        # As JavaScript writes half a character where it cannot be escaped.
        "summary.md": _HALVES.sub("\ufffd", write_summary_text(results)),
        "report.html.report": _HALVES.sub("\ufffd", report_page(results)),
    }


def write_results(run: RunResult, entries: Sequence[RunEntry], made_with: MadeWith) -> dict[str, Json]:
    """Return the document `results.json`."""
    cases = {result.case.id: result.case for result in run.cases}
    by_case: dict[str, list[RunEntry]] = {}
    for entry in entries:
        by_case.setdefault(entry.case, []).append(entry)
    rows = [row for row in made_with.rows if row.case in by_case]
    scenarios = [_write_scenario(row, cases.get(row.case) or Case(id=row.case), by_case[row.case]) for row in rows]
    return {
        "metadata": _write_metadata(run, entries, made_with),
        "summary": _write_summary(scenarios, entries),
        "scenarios": scenarios,
    }


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
    }
    if made_with.note:
        metadata["run_note"] = made_with.note
    if run.suite_path is not None:
        metadata["config_path"] = run.suite_path
    if made_with.stopped:
        metadata["execution_status"] = "stopped"
    return metadata


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
    found: dict[str, Json] = {"scenario_id": row.scenario, "agent": row.agent}
    named = {"scenario_name": case.name or None, "provider": row.provider, "model": row.model, "eval": row.rules or None}
    found |= {key: value for key, value in named.items() if value is not None}
    constraints = row.rules.get("tool_constraints")
    if constraints:
        found["tool_constraints_stats"] = {
            kind: {tool: sum(_has_used(tool, entry) for entry in entries) for tool in constraints.get(f"{kind}_tools", ())}
            for kind in ("required", "forbidden")
        }
    return {
        **found,
        "runs": runs,
        "pass_rate": sum(entry.outcome == "pass" for entry in entries) / len(entries) if entries else 0,
        "distinct_sequences": dict(Counter(encode_strangers(run["tool_sequence"]).decode() for run in runs)),
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
    run: dict[str, Json] = {"run_index": entry.attempt}
    request_id = entry.evidence.metadata.get("request_id") if entry.evidence is not None else None
    if request_id:
        run["request_id"] = request_id
    run |= {"pass": entry.outcome == "pass", "outcome": find_outcome(entry)}
    if error is not None:
        run["error"] = error
    return run | {
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
    # What was not recorded was not looked at, whatever that means for the outcome.
    status = "not_evaluated" if verdict.code == "missing_evidence" else _STATUS[verdict.outcome]
    check: dict[str, Json] = {"type": find_type(assertion), "label": assertion.label, "status": status}
    if status == "failed":
        check |= {"reason": explain_failure(assertion, verdict, evidence), "detail": verdict.reason}
    elif verdict.outcome != "pass" or assertion.check == "judged":
        # Only a judge says why something passed.
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
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        for name, value in entry.extracted.items():
            word = value if isinstance(value, str) else encode_strangers(to_whole_number(value)).decode()
            counts = found.setdefault(name, {})
            counts[word] = counts.get(word, 0) + 1
    return found


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
    for row in results["scenarios"]:
        counts = (len(row["runs"]), f"{row['pass_rate'] * 100:.1f}%", len(row["distinct_sequences"]))
        cells = (_write_cell(row["scenario_id"]), _write_cell(row["agent"]), *counts, sum(row["tool_usage_frequency"].values()))
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _write_cell(text: str) -> str:
    """Return text that stays in its cell and is read as text."""
    flat = " ".join(str(text).split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
