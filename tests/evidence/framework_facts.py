"""Compares recordings of real frameworks with what really happened in them.

`tests/frameworks` made the recordings and their truth; a truth only claims what the trace carries. Each fact has a kind; `differing`
returns the kinds that are read differently, with the values found.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from proctor.evidence.recognise import read_value
from proctor.model.evidence import Evidence, ToolCall

FOLDER = Path(__file__).parent / "frameworks"


def truths() -> dict[str, dict[str, Any]]:
    """Every recorded combination with its truth, by name."""
    found: dict[str, dict[str, Any]] = {}
    for file in ("truth.json", "truth-js.json"):
        found.update(msgspec.json.decode((FOLDER / file).read_bytes()))
    return found


def evidence_of(name: str) -> dict[str, Evidence]:
    """The evidence in a recording, by trace id."""
    document = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    return {str(evidence.metadata.get("trace_id")): evidence for evidence in read_value(document, None)}


def runs_of(entry: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every run of a combination: trace id and truth."""
    for part in ("traces", "plain", "apart"):
        yield from entry.get(part, {}).items()


def differing(truth: dict[str, Any], evidence: Evidence) -> Iterator[tuple[str, object, object]]:
    """The facts that are read differently: kind, expected value, found value."""
    yield from _differing_calls(truth, evidence)
    for kind, wanted, found in (
        ("input", truth.get("input"), evidence.input),
        ("answer", truth.get("text"), (evidence.text or "").strip()),
        ("usage", truth.get("usage"), [evidence.usage.input_tokens, evidence.usage.output_tokens] if evidence.usage else None),
    ):
        if wanted is not None and wanted != found:
            yield kind, wanted, found
    if "turns" in truth:
        extra = truth.get("beside", [])
        turns = [
            {"input": t.input, "text": (t.text or "").strip(), "calls": [c.name for c in t.tool_calls or () if c.name not in extra]}
            for t in evidence.turns or ()
        ]
        if turns != truth["turns"]:
            yield "turns", truth["turns"], turns
    if "agent" in truth and truth["agent"] not in [node.name for node in evidence.nodes or ()]:
        yield "agent", truth["agent"], [node.name for node in evidence.nodes or ()][:6]


def _differing_calls(truth: dict[str, Any], evidence: Evidence) -> Iterator[tuple[str, object, object]]:
    unknown = evidence.account.unknown if evidence.account is not None else {}
    # A finish reason that excludes tools, or spans of all tools, are enough: only known calls of a run that made others are wrong.
    is_known = evidence.tool_calls is not None and "tool_calls" not in unknown
    if truth.get("hidden") and is_known and bool(evidence.tool_calls) == (truth["scenario"] == "plain"):
        yield "hidden", "tool calls unknown", [call.name for call in evidence.tool_calls]
    if "calls" not in truth:
        return
    calls = [call for call in evidence.tool_calls or () if call.name not in truth.get("beside", [])]
    names, wanted = [call.name for call in calls], [call["name"] for call in truth["calls"]]
    if (sorted(names) != sorted(wanted)) if truth.get("unordered") else (names != wanted):
        yield "calls", wanted, names
        return
    if not wanted and evidence.tool_calls is None:
        yield "none", "known to be none", unknown.get("tool_calls")
    left = list(calls)
    for want in truth["calls"]:
        fitting = sorted((c for c in left if c.name == want["name"]), key=lambda c: c.arguments != want.get("arguments"))
        left.remove(fitting[0])
        yield from _differing_call(want, fitting[0])


def _differing_call(want: dict[str, Any], call: ToolCall) -> Iterator[tuple[str, object, object]]:
    if "arguments" in want and call.arguments != want["arguments"]:
        yield "arguments", want["arguments"], call.arguments
    if "result" in want and not _same_result(want["result"], call.result):
        yield "results", want["result"], call.result
    if "failed" in want and call.failed() != want["failed"]:
        yield "errors", want["failed"], call.failure()
    if want.get("timed") and not (call.duration_ms or 0) > 1:
        yield "durations", "> 1 ms", call.duration_ms


def _same_result(wanted: Any, found: Any) -> bool:
    """Whether a result is the same but for one wrapping that a framework records, or the way Python writes it."""
    if isinstance(found, str):
        for read in (json.loads, ast.literal_eval):
            try:
                return bool(read(found) == wanted)
            except (ValueError, SyntaxError):
                pass
    if isinstance(found, dict) and len(found) == 1 and next(iter(found)) in ("result", "output", "results", "outputs"):
        return _same_result(wanted, next(iter(found.values())))
    if isinstance(found, dict) and found.get("type") == "text" and "text" in found:
        return _same_result(wanted, found["text"])
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        inner = found[0]
        if "json" in inner:
            return _same_result(wanted, inner["json"])
        if "text" in inner and "title" not in inner:
            return _same_result(wanted, inner["text"])
    return bool(found == wanted)
