"""The result of one message to an agent, as text and data, with how to record what is missing."""

from __future__ import annotations

import msgspec

from proctor.evidence.unknowns.account import find_known, write_known
from proctor.model.account import PART_NAMES, Known, Part
from proctor.model.evidence import Evidence, Json
from proctor.report.blocks.evidence_text import EvidencePainter
from proctor.report.words.neutral import to_one_line
from proctor.report.words.remedies import describe_model_remedy, describe_remedy
from proctor.report.words.style import Style, pad, wrap

SCHEMA = "proctor.try/1"
_ALWAYS_SHOWN: tuple[Part, ...] = ("tool_calls", "tool_arguments", "tool_results", "answer", "usage")
"""Parts that are always listed; others only if they are unknown."""
MODEL = "the model"
_PAGES = {
    "callable": "docs/how-to/test-a-python-function.md",
    "http": "docs/how-to/test-an-http-agent.md",
    "command": "docs/how-to/test-a-command.md",
    "n8n": "docs/how-to/test-n8n.md",
    "flowise": "docs/how-to/test-flowise.md",
    "mcp_agent": "docs/how-to/test-an-mcp-agent.md",
}


class NotRecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One unknown part of an exchange."""

    part: str
    why: str
    how: str | None = None
    """How to record it."""


def list_not_recorded(evidence: Evidence, kind: str) -> list[NotRecorded]:
    """Return the unknown parts of an exchange with this kind of target, and how to record them."""
    known = find_known(evidence, kind)
    unknown = evidence.account.unknown if evidence.account is not None else {}
    found: list[NotRecorded] = []
    for part, state in known.parts.items():
        if not state.is_unknown or (part not in _ALWAYS_SHOWN and part not in unknown):
            continue
        # If calls are unknown, arguments and results need no line.
        if part in ("tool_arguments", "tool_results") and known.parts["tool_calls"].is_unknown:
            continue
        # No other recording would show what an unfinished run left open.
        is_open = part in unknown and unknown[part] == unknown.get("answer")
        how = None if is_open else describe_remedy(part, kind, known.reader)
        found.append(NotRecorded(part=PART_NAMES[part], why=state.why or "not recorded", how=how))
    if evidence.model is None and not (evidence.metadata.get("model") or unknown.get("answer")):
        how = describe_model_remedy(kind, known.reader)
        found.append(NotRecorded(part=MODEL, why="not recorded in this evidence", how=how))
    return found


def paint_tried(title: str, evidence: Evidence | None, kind: str, *, error: str | None = None, style: Style, width: int = 100) -> list[str]:
    """Return the lines that `proctor try` prints."""
    painter = EvidencePainter(style, width)
    lines = [style.paint(to_one_line(title, 300), "bold")]
    if evidence is not None:
        # The error is shown once, at the end.
        shown = evidence if error is None else msgspec.structs.replace(evidence, error=None)
        lines += ["", *painter.paint_rows(shown)]
        if evidence.duration_ms is not None:
            lines += painter.paint_row("time", f"{evidence.duration_ms:,.0f} ms")
    if error is not None:
        lines += ["", *painter.paint_row("error", to_one_line(error, 2_000))]
    missing = list_not_recorded(evidence, kind) if evidence is not None and error is None else []
    if missing:
        lines += ["", style.paint("Not recorded", "yellow")]
        lines += [line for one in missing for line in _paint_missing(one, width)]
        if kind in _PAGES:
            lines.append(f"  more: {_PAGES[kind]}")
    return lines


def _paint_missing(one: NotRecorded, width: int) -> list[str]:
    name_width = max(map(len, PART_NAMES.values()))
    texts = [one.why, *([f"→ {one.how}"] if one.how else [])]
    rows = [line for text in texts for line in wrap(to_one_line(text, 400), max(20, width - name_width - 4))]
    return [f"  {pad(one.part if number == 0 else '', name_width)}  {row}" for number, row in enumerate(rows)]


def write_tried(
    target: str, kind: str, message: str, evidence: Evidence | None, *, error: str | None = None, code: str | None = None
) -> dict[str, Json]:
    """Return the same as data."""
    known: Known | None = find_known(evidence, kind) if evidence is not None else None
    return {
        "schema": SCHEMA,
        "target": target,
        "type": kind,
        "input": message,
        "evidence": None if evidence is None else msgspec.to_builtins(evidence),
        "account": None if known is None else write_known(known),
        "not_recorded": [] if evidence is None or error is not None else msgspec.to_builtins(list_not_recorded(evidence, kind)),
        "error": error,
        "code": code,
    }
