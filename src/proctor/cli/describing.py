"""Shows `proctor describe trace FILE`."""

from __future__ import annotations

import shutil

import msgspec

from proctor.actions.describe_trace import FileDescription, describe_trace
from proctor.cli.exits import Exit
from proctor.cli.output import Output
from proctor.cli.renderers import wants_colour
from proctor.model.json_values import encode_strangers
from proctor.report.style import Style
from proctor.report.trace_text import TracePainter, counts_document, record_document

MOST_SHOWN = 20
"""How many records are shown on a terminal; JSON has more."""


def describe_file(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Write what is in a file and what was understood of it; returns the exit code."""
    found = describe_trace(path, format=evidence_format)
    if as_json:
        output.write(msgspec.json.format(encode_strangers(_make_document(found)), indent=2) + b"\n")
    else:
        output.write_text(_write_text(found, output))
    return Exit.USAGE if found.unreadable and all(record.known is None for record in found.records) else Exit.PASSED


def _make_document(found: FileDescription) -> dict[str, object]:
    return {
        "file": found.file,
        "records": [record_document(one.source, one.known, one.evidence, one.trace, one.error) for one in found.records],
        "more": found.more,
        "unreadable": found.unreadable,
        "not_understood": counts_document(found.not_understood),
    }


def _write_text(found: FileDescription, output: Output) -> str:
    width = shutil.get_terminal_size((100, 24)).columns if output.is_terminal else 100
    painter = TracePainter(Style(colour=wants_colour(output, no_color=False)), max(60, min(width, 120)))
    blocks: list[list[str]] = []
    for one in found.records[:MOST_SHOWN]:
        if one.known is None or one.evidence is None:
            blocks.append(painter.paint_unreadable(one.source, one.error or "unreadable"))
        else:
            blocks.append(painter.paint_record(one.source, one.known, one.evidence, one.trace))
    more = len(found.records) - MOST_SHOWN + found.more
    if more > 0:
        blocks.append([f"… and {more:,} more records; `--format json` has {'more' if found.more else 'them all'}"])
    if len(found.records) > 1:
        blocks.append(painter.paint_unused_attributes(found.not_understood))
    if not found.records:
        blocks.append(["nothing is recorded here"])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
