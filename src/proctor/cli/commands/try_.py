"""`proctor try MESSAGE`"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from pathlib import Path

import msgspec

from proctor.actions.checking.draft_case import SavedCase, read_existing_suite, save_case
from proctor.actions.help.init import write_schema
from proctor.actions.running.named_target import WAYS
from proctor.actions.running.try_message import Tried, try_message
from proctor.actions.start.starters import SCHEMA_LINE
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output, reserve_standard_output
from proctor.cli.show.renderers import find_width, wants_colour
from proctor.evidence.unknowns.account import find_known, write_known
from proctor.model.account import PART_NAMES, Part
from proctor.model.evidence import Evidence, Json
from proctor.report.blocks.evidence_text import EvidencePainter
from proctor.report.words.faults import describe_model_remedy, describe_remedy
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Style, pad, wrap

DEFAULT_SUITE = "suite.yaml"


def run(arguments: list[str]) -> int:
    """Send one message and show the evidence; returns the exit code."""
    parser = make_parser(
        "try",
        "Send one message to an agent and show what was seen, what was not recorded, and how it would be.",
        [
            'proctor try "Where is order 17?" --target app:answer',
            'proctor try "Where is order 17?" --target http://127.0.0.1:9000/chat --save',
            'proctor try "Where is order 17?" --target "python agent.py" --format json',
        ],
    )
    parser.add_argument("message", metavar="MESSAGE", help="the message to send")
    parser.add_argument(
        "--target", metavar="TARGET", help=f"a target of proctor.yaml by its name, or {WAYS} (default: default_target of proctor.yaml)"
    )
    add_flags(parser, "--capture")
    parser.add_argument(
        "--save", metavar="FILE", nargs="?", const=DEFAULT_SUITE, help=f"save it as a case of this suite (default: {DEFAULT_SUITE})"
    )
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds to wait for the answer (default: 120)")
    add_flags(parser, "--format", "--output", "--no-color", "--home")
    options = parser.parse_args(arguments)
    # Check that the file can be saved before the agent is called.
    Output(options.output).probe()
    if options.save is not None:
        read_existing_suite(Path(options.save))
    with reserve_standard_output():
        sending = try_message(options.message, target=options.target, home=options.home, timeout_s=options.timeout, capture=options.capture)
        tried = asyncio.run(sending)
        saved = _save(tried, options.save) if options.save is not None else None
        with Output(options.output) as output:
            if options.format == "json":
                document = _write_tried(tried)
                document["proposed"] = tried.propose_mapping() or None
                document["saved"] = None if saved is None else {"file": str(saved.path), "case": saved.id, "created": saved.created}
                output.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
            else:
                style = Style(colour=wants_colour(output, options.no_color))
                output.write_text("\n".join(_paint(tried, saved, options, style, find_width(output))) + "\n")
    return Exit.PASSED if tried.error is None and not tried.is_unanswered() else Exit.FAILED


def _save(tried: Tried, name: str) -> SavedCase | None:
    """Return a case made from the evidence; None if the agent failed."""
    if tried.error is not None or tried.evidence is None or tried.is_unanswered():
        return None
    path = Path(name)
    new = not path.exists()
    saved = save_case(path, tried.message, tried.evidence, top=SCHEMA_LINE if new else "")
    if new:
        write_schema(path.parent)
    return saved


def _paint(tried: Tried, saved: SavedCase | None, options: argparse.Namespace, style: Style, width: int) -> list[str]:
    lines = _paint_tried(tried, style, width)
    mapping = tried.propose_mapping()
    if mapping:
        lines += ["", "a proposed mapping, for the target in proctor.yaml:", *mapping.rstrip().splitlines()]
    if saved is not None:
        lines += ["", f"{'wrote' if saved.created else 'added to'} {saved.path}, to be reviewed:", *saved.text.rstrip().splitlines()]
        lines += ["", f"next: {_describe_next(saved.path, options)}"]
    elif options.save is not None:
        lines += ["", "nothing was saved: there is no answer to make a case of"]
    return lines


def _describe_next(path: Path, options: argparse.Namespace) -> str:
    target_flag = "" if options.target is None else f" --target {shlex.quote(options.target)}"
    return f"proctor run {shlex.quote(str(path))}{target_flag}" + ("" if options.capture is None else f" --capture {options.capture}")


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


def list_not_recorded(evidence: Evidence, kind: str) -> list[NotRecorded]:
    """Return the unknown parts of an exchange with this kind of target, and how to record them."""
    known = find_known(evidence, kind)
    unknown = evidence.account.unknown if evidence.account is not None else {}
    not_recorded: list[NotRecorded] = []
    for part, state in known.parts.items():
        if not state.is_unknown or (part not in _ALWAYS_SHOWN and part not in unknown):
            continue
        # If calls are unknown, arguments and results need no line.
        if part in ("tool_arguments", "tool_results") and known.parts["tool_calls"].is_unknown:
            continue
        # If the run did not finish, the answer and this part are unknown for the same reason, and another way of recording cannot help.
        is_unfinished = part in unknown and unknown[part] == unknown.get("answer")
        remedy = None if is_unfinished else describe_remedy(part, kind, known.reader)
        not_recorded.append(NotRecorded(part=PART_NAMES[part], why=state.why or "not recorded", how=remedy))
    if evidence.model is None and not (evidence.metadata.get("model") or unknown.get("answer")):
        remedy = describe_model_remedy(kind, known.reader)
        not_recorded.append(NotRecorded(part=MODEL, why="not recorded in this evidence", how=remedy))
    return not_recorded


def _paint_tried(tried: Tried, style: Style, width: int) -> list[str]:
    painter = EvidencePainter(style, width)
    lines = [style.paint(to_one_line(tried.target, 300), "bold")]
    evidence, error = tried.evidence, tried.error
    if evidence is not None:
        # The error is shown once, at the end.
        without_error = evidence if error is None else msgspec.structs.replace(evidence, error=None)
        lines += ["", *painter.paint_rows(without_error)]
        if evidence.duration_ms is not None:
            lines += painter.paint_row("time", f"{evidence.duration_ms:,.0f} ms")
    if error is not None:
        lines += ["", *painter.paint_row("error", to_one_line(error, 2_000))]
    missing = list_not_recorded(evidence, tried.kind) if evidence is not None and error is None else []
    if missing:
        lines += ["", style.paint("Not recorded", "yellow")]
        lines += [line for part in missing for line in _paint_missing(part, width)]
        if tried.kind in _PAGES:
            lines.append(f"  more: {_PAGES[tried.kind]}")
    return lines


def _paint_missing(one: NotRecorded, width: int) -> list[str]:
    name_width = max(map(len, PART_NAMES.values()))
    texts = [one.why, *([f"→ {one.how}"] if one.how else [])]
    rows = [line for text in texts for line in wrap(to_one_line(text, 400), max(20, width - name_width - 4))]
    return [f"  {pad(one.part if number == 0 else '', name_width)}  {row}" for number, row in enumerate(rows)]


def _write_tried(tried: Tried) -> dict[str, Json]:
    evidence = tried.evidence
    return {
        "schema": SCHEMA,
        "target": tried.target,
        "type": tried.kind,
        "input": tried.message,
        "evidence": None if evidence is None else msgspec.to_builtins(evidence),
        "account": None if evidence is None else write_known(find_known(evidence, tried.kind)),
        "not_recorded": [] if evidence is None or tried.error is not None else msgspec.to_builtins(list_not_recorded(evidence, tried.kind)),
        "error": tried.error,
        "code": tried.code,
    }
