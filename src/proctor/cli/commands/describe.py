"""`proctor describe [KIND [NAME]]`, `proctor describe trace FILE`, `proctor describe evidence FILE`"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from proctor.actions.help.describe import ASSERTION_KEYS_NOTE, KINDS, Description, describe
from proctor.actions.workspace.custom_checks import find_registry
from proctor.cli.parser import make_parser
from proctor.cli.show.output import Output
from proctor.cli.signals.exit_codes import Exit
from proctor.errors import InputError
from proctor.model.json_values import write_document

WIDTH = 100


def run(arguments: list[str]) -> int:
    """Describe what exists; returns the exit code."""
    options = _make_parser().parse_args(arguments)
    as_json = options.format == "json"
    with Output(None) as output:
        if options.kind == "trace":
            from proctor.cli.show.print_trace_survey import describe_file  # only for traces

            if options.name is None:
                raise InputError("describe trace: which file? `proctor describe trace FILE` takes evidence in any format")
            return describe_file(options.name, output=output, as_json=as_json, evidence_format=options.evidence_format)
        if options.kind == "evidence" and options.name is not None and _is_file(options.name):
            from proctor.cli.show.print_trace_survey import describe_log  # only for logs

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


def _make_parser() -> argparse.ArgumentParser:
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
    return parser


def _is_file(name: str) -> bool:
    return name == "-" or Path(name).exists() or Path(name).suffix != "" or "/" in name


def _write_kinds() -> str:
    documents = {
        "schema": "the JSON Schema of the native format",
        "trace": "what a file of evidence is made of, and what was understood of it",
        "evidence FILE": "what was read of a log, what is unknown, and a proposed mapping",
    }
    kinds = {**{kind: about for kind, (about, _) in KINDS.items()}, **documents}
    return "".join(f"{kind:<13} {about}\n" for kind, about in kinds.items()) + "\n`proctor describe KIND [NAME]` shows details.\n"


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
