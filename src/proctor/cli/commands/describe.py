"""`proctor describe [KIND [NAME]]`, `proctor describe trace FILE`, `proctor describe evidence FILE`"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.actions.checking.describe_evidence import FileDescription, RecordDescription, describe_evidence
from proctor.actions.help.describe import ASSERTION_KEYS_NOTE, KINDS, describe
from proctor.actions.help.description import Description
from proctor.actions.workspace.custom_checks import find_registry
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import find_width, wants_colour
from proctor.errors import InputError
from proctor.evidence.traces.survey import Counted
from proctor.evidence.unknowns.account import write_known
from proctor.model.json_values import write_document
from proctor.report.blocks.evidence_text import EvidencePainter, title_record
from proctor.report.words.style import Style
from proctor.report.words.wording import count_noun

WIDTH = 100


def run(arguments: list[str]) -> int:
    """Describe what exists; returns the exit code."""
    parser = make_parser(
        "describe",
        "List checks, matchers, functions, formats, shapes of evidence, targets, models, the judge; with fields and examples. "
        "With trace FILE or evidence FILE: what was read from a file, what is unknown or was not recognised, and for a log in your own "
        "format a proposed mapping.",
        [
            "proctor describe",
            "proctor describe checks",
            "proctor describe check tool_called",
            "proctor describe target http",
            "proctor describe trace traces/support.json",
            "proctor describe evidence logs/agent.jsonl",
            "proctor describe schema > proctor.schema.json",
        ],
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help=", ".join((*KINDS, "schema", "trace")))
    parser.add_argument("name", metavar="NAME", nargs="?", help="one of them; after trace or evidence, a file of evidence")
    add_flags(parser, "--format")
    parser.add_argument("--evidence-format", metavar="NAME", help="for trace and evidence: how to read the file (default: auto-detect)")
    options = parser.parse_args(arguments)
    as_json = options.format == "json"
    with Output(None) as output:
        if options.kind == "trace" and options.name is None:
            raise InputError("describe trace: which file? `proctor describe trace FILE` takes evidence in any format")
        if options.kind == "trace" or (options.kind == "evidence" and options.name is not None and _is_file(options.name)):
            return describe_file(options.name, output=output, as_json=as_json, evidence_format=options.evidence_format)
        if options.kind is None:
            output.write_text(_write_kinds())
        elif options.kind == "schema":
            from proctor.formats.native.schema import build_native_schema  # only here

            output.write(write_document(build_native_schema(find_registry())))
        else:
            descriptions = describe(options.kind, options.name, registry=find_registry() if options.kind.startswith("check") else None)
            if as_json:
                output.write(write_document(descriptions))
            else:
                output.write_text(_write_found(descriptions, options.kind, options.name))
    return Exit.PASSED


def _is_file(name: str) -> bool:
    return name == "-" or Path(name).exists() or Path(name).suffix != "" or "/" in name


def _write_kinds() -> str:
    documents = {
        "schema": "the JSON Schema of the native format",
        "trace FILE": "what was read of a file of evidence, what is unknown, and for a log a proposed mapping",
    }
    kinds = {**{kind: summary for kind, (summary, _) in KINDS.items()}, **documents}
    return "".join(f"{kind:<13} {summary}\n" for kind, summary in kinds.items()) + "\n`proctor describe KIND [NAME]` shows details.\n"


def _write_found(descriptions: list[Description], kind: str, name: str | None) -> str:
    if name is not None:
        return _write_page(descriptions[0])
    # The judge has few parts, so all are shown.
    return "\n".join(map(_write_page, descriptions)) if kind == "judge" else _write_listing(descriptions)


def _write_listing(descriptions: list[Description]) -> str:
    width = max(len(entry.name) for entry in descriptions)
    lines: list[str] = []
    for entry in descriptions:
        lines += textwrap.wrap(entry.summary, WIDTH, initial_indent=f"{entry.name:<{width}}  ", subsequent_indent=" " * (width + 2))
    kind = descriptions[0].kind.removesuffix("s")
    return "\n".join(lines) + f"\n\n`proctor describe {kind} NAME` shows fields and an example.\n"


def _write_page(entry: Description) -> str:
    lines = [entry.name, "", *textwrap.wrap(entry.summary, WIDTH)]
    if entry.fields:
        lines += ["", "fields:"]
        for field in entry.fields:
            head = f"  {field.name}" + (f" ({field.kind.replace('`', '')})" if field.kind else "")
            head += ", required" if field.required else f", default {field.default}" if field.default is not None else ""
            lines += textwrap.wrap(head, WIDTH, subsequent_indent="    ")
            lines += textwrap.wrap(field.about, WIDTH, initial_indent="      ", subsequent_indent="      ")
    if entry.example:
        lines += ["", "example:", *(f"  {line}" for line in entry.example.splitlines())]
    for note in (*entry.notes, *((ASSERTION_KEYS_NOTE,) if entry.kind == "checks" else ())):
        lines += ["", *textwrap.wrap(note, WIDTH)]
    return "\n".join(lines) + "\n"


_COUNTED = ("conventions", "scopes", "kinds", "tools", "not_understood", "vocabularies")
"""Fields of the survey of a trace that are names with counts."""
MOST_SHOWN, MOST_UNREAD = 20, 2
"""Records shown on a terminal, and of a log that needs the proposed mapping; JSON has more."""


def describe_file(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Print what was read from a file, what is unknown, and a proposed mapping; returns the exit code."""
    description = describe_evidence(path, format=evidence_format)
    read, map = description.read, description.map
    if as_json:
        document = {**_make_document(read), "proposed": None if map is None else {"map": map, "yaml": description.yaml}}
        output.write(write_document(document))
    else:
        readable, count = sum(record.known is not None for record in read.records), count_noun(len(read.records), "record")
        output.write_text(_write_text(read, output, MOST_SHOWN if map is None or readable == len(read.records) else MOST_UNREAD))
        if map is not None or readable < len(read.records):
            output.write_text(f"\n{readable} of the {'first ' if read.more else ''}{count} can be read\n")
        if map is not None:
            about = "A proposed mapping, with a sample value for each path; write it in the suite or in proctor.yaml"
            output.write_text(f"\n{about}:\n\n{description.yaml}")
        elif readable < len(read.records):
            output.write_text("\nNo mapping can be proposed; see docs/how-to/your-own-log.md to write one.\n")
    is_unreadable = read.unreadable and all(record.known is None for record in read.records)
    return Exit.USAGE if is_unreadable and map is None else Exit.PASSED


def _make_document(description: FileDescription) -> dict[str, object]:
    return {
        "file": description.file,
        "records": list(map(_write_record, description.records)),
        "more": description.more,
        "unreadable": description.unreadable,
        "not_understood": _count_names(description.not_understood),
    }


def _write_record(record: RecordDescription) -> dict[str, object]:
    document: dict[str, object] = {"file": record.source.file, "line": record.source.line, "id": record.source.id}
    if record.error is not None:
        document["error"] = record.error
    if record.known is not None:
        document["account"] = write_known(record.known)
    if (evidence := record.evidence) is not None:
        document |= {"case": evidence.case, "model": evidence.model, "no_run": evidence.no_run, "turns": len(evidence.turns or ()) or None}
    if record.trace is not None:
        counted = {name: _count_names(getattr(record.trace, name)) for name in _COUNTED}
        document["trace"] = {**msgspec.structs.asdict(record.trace), **counted}
    return document


def _count_names(entries: Sequence[Counted]) -> dict[str, int]:
    return {entry.name: entry.count for entry in entries}


def _write_text(description: FileDescription, output: Output, most: int) -> str:
    painter = EvidencePainter(Style(colour=wants_colour(output, no_color=False)), find_width(output))
    blocks: list[list[str]] = []
    for record in description.records[:most]:
        title = title_record(record.source, record.evidence)
        if record.evidence is None:
            blocks.append(painter.paint_unreadable(title, record.error or "unreadable"))
        else:
            blocks.append(painter.paint_record(title, record.evidence, trace=record.trace))
    more = len(description.records) - most + description.more
    if more > 0:
        blocks.append([f"… and {more:,} more records; `--format json` has {'more' if description.more else 'them all'}"])
    if len(description.records) > 1:
        blocks.append(painter.paint_unused_attributes(description.not_understood))
    if not description.records:
        blocks.append(["nothing is recorded here"])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
