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
from proctor.cli.parser import make_parser
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import find_width, wants_colour
from proctor.errors import InputError
from proctor.model.json_values import encode_strangers, write_document
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
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="terminal or json (default: terminal)")
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
            found = describe(options.kind, options.name, registry=find_registry() if options.kind.startswith("check") else None)
            output.write(write_document(found)) if as_json else output.write_text(_write_found(found, options.kind, options.name))
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


def _write_found(found: list[Description], kind: str, name: str | None) -> str:
    if name is not None:
        return _write_page(found[0])
    # The judge has few parts, so all are shown.
    return "\n".join(map(_write_page, found)) if kind == "judge" else _write_listing(found)


def _write_listing(found: list[Description]) -> str:
    width = max(len(entry.name) for entry in found)
    lines: list[str] = []
    for entry in found:
        lines += textwrap.wrap(entry.summary, WIDTH, initial_indent=f"{entry.name:<{width}}  ", subsequent_indent=" " * (width + 2))
    kind = found[0].kind.removesuffix("s")
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
    records, readable = found.read.records, sum(record.known is not None for record in found.read.records)
    shortened = [msgspec.structs.replace(record, error=record.error and record.error.split("\n")[0]) for record in records[:MOST_LOGGED]]
    output.write_text(_write_text(msgspec.structs.replace(found.read, records=tuple(shortened), more=0), output))
    more = found.read.more
    output.write_text(f"\n{readable} of the {'first ' if more else ''}{count_noun(len(records), 'record')} can be read\n")
    if found.map is not None:
        output.write_text(
            f"\nA proposed mapping, with a sample value for each path; write it in the suite or in proctor.yaml:\n\n{found.yaml}"
        )
    elif readable < len(records):
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
    painter = TracePainter(Style(colour=wants_colour(output, no_color=False)), find_width(output))
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
