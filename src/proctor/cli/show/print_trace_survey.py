"""Shows `proctor describe trace FILE` and `proctor describe evidence FILE`."""

from __future__ import annotations

import shutil

import msgspec

from proctor.actions.checking.describe_trace import FileDescription, describe_trace
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import wants_colour
from proctor.cli.signals.exit_codes import Exit
from proctor.model.json_values import encode_strangers
from proctor.report.blocks.evidence_text import TracePainter, counts_document, record_document
from proctor.report.words.style import Style
from proctor.report.words.wording import count_noun

MOST_LOGGED = 2
"""Records of a log that are shown."""
MOST_SHOWN = 20
"""Records shown on a terminal; JSON has more."""


def describe_file(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Print the content of a file and what was not recognised; returns the exit code."""
    found = describe_trace(path, format=evidence_format)
    if as_json:
        output.write(msgspec.json.format(encode_strangers(_make_document(found)), indent=2) + b"\n")
    else:
        output.write_text(_write_text(found, output))
    return Exit.USAGE if found.unreadable and all(record.known is None for record in found.records) else Exit.PASSED


def describe_log(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Print what was read from a log, what is unknown, and a proposed mapping; returns the exit code."""
    from proctor.actions.checking.describe_evidence import describe_evidence  # rarely needed

    found = describe_evidence(path, format=evidence_format)
    if as_json:
        proposed = {"map": found.map, "yaml": found.yaml} if found.map is not None else None
        output.write(msgspec.json.format(encode_strangers({**_make_document(found.read), "proposed": proposed}), indent=2) + b"\n")
        return Exit.PASSED
    records, read = found.read.records, sum(record.known is not None for record in found.read.records)
    shown = [msgspec.structs.replace(record, error=record.error and record.error.split("\n")[0]) for record in records[:MOST_LOGGED]]
    output.write_text(_write_text(msgspec.structs.replace(found.read, records=tuple(shown), more=0), output))
    more = found.read.more
    output.write_text(f"\n{read} of the {'first ' if more else ''}{count_noun(len(records), 'record')} can be read\n")
    if found.map is not None:
        output.write_text(
            f"\nA proposed mapping, with a sample value for each path; write it in the suite or in proctor.yaml:\n\n{found.yaml}"
        )
    elif read < len(records):
        output.write_text("\nNo mapping can be proposed; see docs/how-to/your-own-log.md to write one.\n")
    return Exit.PASSED


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
