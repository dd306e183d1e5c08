"""`proctor describe [KIND [NAME]]`, `proctor describe trace FILE`, `proctor describe evidence FILE`"""

from __future__ import annotations

import textwrap
from pathlib import Path

import msgspec

from proctor.actions.checking.describe_evidence import FileDescription, describe_trace
from proctor.actions.help.describe import ASSERTION_KEYS_NOTE, KINDS, describe
from proctor.actions.help.description import Description
from proctor.actions.workspace.custom_checks import find_registry
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import find_width, wants_colour
from proctor.errors import InputError
from proctor.model.json_values import encode_any_json, write_document
from proctor.report.blocks.evidence_text import TracePainter, counts_document, record_document
from proctor.report.words.style import Style
from proctor.report.words.wording import count_noun

WIDTH = 100


def run(arguments: list[str]) -> int:
    """Describe what exists; returns the exit code."""
    parser = make_parser(
        "describe",
        "List checks, matchers, functions, formats, shapes of evidence, targets, models, the judge; with fields and examples. "
        "With trace FILE: the content of an evidence file, and what was not recognised. "
        "With evidence FILE: what is read from a log in your own format, what is unknown, and a proposed mapping.",
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
        if options.kind == "trace":
            if options.name is None:
                raise InputError("describe trace: which file? `proctor describe trace FILE` takes evidence in any format")
            return describe_file(options.name, output=output, as_json=as_json, evidence_format=options.evidence_format)
        if options.kind == "evidence" and options.name is not None and _is_file(options.name):
            return describe_log(options.name, output=output, as_json=as_json, evidence_format=options.evidence_format)
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
        "trace": "what a file of evidence is made of, and what was understood of it",
        "evidence FILE": "what was read of a log, what is unknown, and a proposed mapping",
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


MOST_LOGGED = 2
"""Records of a log that are shown."""
MOST_SHOWN = 20
"""Records shown on a terminal; JSON has more."""


def describe_file(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Print the content of a file and what was not recognised; returns the exit code."""
    description = describe_trace(path, format=evidence_format)
    if as_json:
        output.write(msgspec.json.format(encode_any_json(_make_document(description)), indent=2) + b"\n")
    else:
        output.write_text(_write_text(description, output))
    return Exit.USAGE if description.unreadable and all(record.known is None for record in description.records) else Exit.PASSED


def describe_log(path: str, *, output: Output, as_json: bool, evidence_format: str | None) -> int:
    """Print what was read from a log, what is unknown, and a proposed mapping; returns the exit code."""
    from proctor.actions.checking.describe_evidence import describe_evidence  # rarely needed

    description = describe_evidence(path, format=evidence_format)
    if as_json:
        proposed = {"map": description.map, "yaml": description.yaml} if description.map is not None else None
        output.write(msgspec.json.format(encode_any_json({**_make_document(description.read), "proposed": proposed}), indent=2) + b"\n")
        return Exit.PASSED
    records, readable = description.read.records, sum(record.known is not None for record in description.read.records)
    shortened = [msgspec.structs.replace(record, error=record.error and record.error.split("\n")[0]) for record in records[:MOST_LOGGED]]
    output.write_text(_write_text(msgspec.structs.replace(description.read, records=tuple(shortened), more=0), output))
    more = description.read.more
    output.write_text(f"\n{readable} of the {'first ' if more else ''}{count_noun(len(records), 'record')} can be read\n")
    if description.map is not None:
        output.write_text(
            f"\nA proposed mapping, with a sample value for each path; write it in the suite or in proctor.yaml:\n\n{description.yaml}"
        )
    elif readable < len(records):
        output.write_text("\nNo mapping can be proposed; see docs/how-to/your-own-log.md to write one.\n")
    return Exit.PASSED


def _make_document(description: FileDescription) -> dict[str, object]:
    return {
        "file": description.file,
        "records": [record_document(each.source, each.known, each.evidence, each.trace, each.error) for each in description.records],
        "more": description.more,
        "unreadable": description.unreadable,
        "not_understood": counts_document(description.not_understood),
    }


def _write_text(description: FileDescription, output: Output) -> str:
    painter = TracePainter(Style(colour=wants_colour(output, no_color=False)), find_width(output))
    blocks: list[list[str]] = []
    for record in description.records[:MOST_SHOWN]:
        if record.known is None or record.evidence is None:
            blocks.append(painter.paint_unreadable(record.source, record.error or "unreadable"))
        else:
            blocks.append(painter.paint_record(record.source, record.known, record.evidence, record.trace))
    more = len(description.records) - MOST_SHOWN + description.more
    if more > 0:
        blocks.append([f"… and {more:,} more records; `--format json` has {'more' if description.more else 'them all'}"])
    if len(description.records) > 1:
        blocks.append(painter.paint_unused_attributes(description.not_understood))
    if not description.records:
        blocks.append(["nothing is recorded here"])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
