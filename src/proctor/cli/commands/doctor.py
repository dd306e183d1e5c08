"""`proctor doctor TARGET`"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import webbrowser

import msgspec

from proctor.actions.doctor.examination import describe_lock, make_options, make_suite
from proctor.actions.doctor.server_names import find_server
from proctor.actions.running.examine_server import drive_examination
from proctor.actions.running.run import LiveRun, RunOptions
from proctor.actions.workspace.run_history import find_home
from proctor.cli.commands.run import add_name_flags, end_by_signals
from proctor.cli.exit_codes import Exit
from proctor.cli.flags import add_gate_flags, open_gate
from proctor.cli.parser import add_flags, add_output_flags, make_parser, parse_natural
from proctor.cli.show.output import Output, reserve_standard_output
from proctor.cli.show.renderers import append_document, write_report
from proctor.cli.show.showing import show_run
from proctor.cli.stored import RUN_HELP
from proctor.doctor.catalogue import CHECKS
from proctor.doctor.examine import Options, examine
from proctor.doctor.login import Login
from proctor.doctor.model import Examination
from proctor.doctor.report import build_document, describe_verdict
from proctor.errors import InputError
from proctor.model.result import RunResult
from proctor.report.blocks.exchange import add_exchanges
from proctor.report.data.json_text import render_json
from proctor.report.data.sarif import render_sarif
from proctor.store.files.run_references import read_tags
from proctor.targets.mcp.settings import ServerSettings

FORMATS = ("terminal", "json", "junit", "sarif", "markdown", "html")
FILES = ("junit", "sarif", "html", "json")
"""Formats with a flag of their own, so that one examination writes several files."""
LOCK_FILE = "mcp-lock.json"


def run(arguments: list[str]) -> int:
    """Examine a server, or write its lock file; returns the exit code."""
    locks = arguments[:1] == ["lock"]
    options = _make_parser().parse_args(arguments[1:] if locks else arguments)
    files = [(format, getattr(options, format)) for format in FILES if getattr(options, format) is not None]
    for _, file in [*files, ("", options.output)]:
        Output(file).probe()
    headers = dict(_parse_header(text) for text in options.header)
    settings = find_server(options.target, find_home(options.home), headers=headers, token=options.token)
    chosen = make_options(
        calls=options.calls,
        fuzz=options.fuzz,
        profiles=options.profile,
        areas=options.only,
        expected=options.expected or (),
        lock=None if locks else options.lock,
        timeout_s=options.timeout,
        authorization=True if options.auth else None,
        other_tools=options.other_tool,
        login=_make_login(options),
    )
    with reserve_standard_output():
        if locks:
            examination = asyncio.run(examine(settings, chosen))
            with Output(options.output or LOCK_FILE) as output:
                output.write_text(describe_lock(examination))
            print(f"wrote {options.output or LOCK_FILE}", file=sys.stderr)
            return Exit.PASSED
        gate = open_gate(options, make_suite(settings, chosen).name)
        live, examination = asyncio.run(_examine(settings, chosen, options))
        if examination is None or live.ended != "completed":
            print(f"interrupted; go on with --resume {live.result.run_id}", file=sys.stderr)
            return Exit.INTERRUPTED
        gate.add_all(live.result.cases)
        code = Exit.FAILED if examination.failed else Exit.INTERRUPTED if examination.incomplete else Exit.PASSED
        decision = gate.decide(live.result, code)
        result = decision.mark(live.result)
        if not options.quiet:
            print(f"stored in {live.folder}", file=sys.stderr)
        for format, file in [(options.format, options.output), *files]:
            _write(examination, result, live, options, format, file)
            if file is not None and not options.quiet:
                print(f"wrote {file}: {describe_verdict(examination)[1]}", file=sys.stderr)
    append_document(lambda kind: build_document(examination, kind))
    return decision.finish()


async def _examine(settings: ServerSettings, chosen: Options, options: argparse.Namespace) -> tuple[LiveRun, Examination | None]:
    run_options = RunOptions(name=options.name, tags=read_tags(options.tag), note=options.note, resume=options.resume)
    task = asyncio.create_task(drive_examination(settings, chosen, run_options, home=options.home))
    try:
        with end_by_signals(task):
            return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _write(examination: Examination, result: RunResult, live: LiveRun, options: argparse.Namespace, format: str, file: str | None) -> None:
    """Write one format: the document of the examination, or what every run has."""
    if format in ("junit", "html"):
        show_run(result, format=format, output=file, no_color=True, entries=live.entries)
        return
    with Output(file) as output:
        if format == "json":
            document = {**json.loads(render_json(add_exchanges(result, live.entries))), "examination": msgspec.to_builtins(examination)}
            output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        elif format == "sarif":
            output.write_text(render_sarif(result, options.lock or LOCK_FILE))
        else:
            write_report(output, format, lambda kind: build_document(examination, kind), no_color=options.no_color)


def _make_login(options: argparse.Namespace) -> Login | None:
    if not options.login and not options.client_id and not options.client_secret:
        return None
    if not options.login and not (options.client_id and options.client_secret):
        raise InputError("--client-id and --client-secret belong together, or to --login")
    return Login(client_id=options.client_id, client_secret=options.client_secret, browser=options.login, open_browser=_open_browser)


def _open_browser(url: str) -> None:
    print(f"log in at {url}", file=sys.stderr, flush=True)
    webbrowser.open(url)


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InputError(f"--header: expected 'Name: value', found {text!r}")
    return name.strip(), value.strip()


def _make_parser() -> argparse.ArgumentParser:
    areas = tuple(dict.fromkeys(check.area for check in CHECKS))
    parser = make_parser(
        "doctor",
        "Examine an MCP server: every message against the schema of its revision, harmless probes, and what a model reads.\n\n"
        "No tool is called, unless --calls declares it. A broken MUST fails (exit 1); a SHOULD or MAY is advice; a check that could not\n"
        "run makes the result incomplete (exit 2). The examination is stored as a run, tagged `doctor`.\n\n"
        "`proctor doctor lock TARGET` writes all definitions to a file for reviews.",
        [
            'proctor doctor "npx -y @modelcontextprotocol/server-everything"',
            "proctor doctor https://shop.example/mcp --token $TOKEN --junit doctor.xml --sarif doctor.sarif",
            "proctor doctor .cursor/mcp.json:shop --only surface --only security",
            "proctor doctor shop --calls calls.yaml --fuzz 20 --expected known.txt",
            f"proctor doctor lock shop && proctor doctor shop --lock {LOCK_FILE}",
        ],
    )
    parser.add_argument("target", metavar="TARGET", help="a command in quotes, a URL, a server of proctor.yaml, or FILE.json[:SERVER]")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="such as mcp-2025-11-25@1; default: the newest of each era (may be repeated)",
    )
    parser.add_argument("--only", metavar="AREA", action="append", default=[], choices=areas, help=f"only these areas: {', '.join(areas)}")
    parser.add_argument("--calls", metavar="FILE", help="a YAML file with calls that may be made")
    parser.add_argument("--fuzz", metavar="N", type=parse_natural, default=0, help="boundary values per declared call (default: 0)")
    parser.add_argument("--expected", metavar="FILE", help="checks that may fail for now; an entry that does not fail any more fails")
    parser.add_argument("--lock", metavar="FILE", help="compare the definitions with this lock file")
    parser.add_argument("--header", metavar="'NAME: VALUE'", action="append", default=[], help="send a header (may be repeated)")
    parser.add_argument("--token", metavar="TOKEN", help="send a bearer token")
    parser.add_argument("--auth", action="store_true", help="examine authorization although the server does not demand a token")
    parser.add_argument("--login", action="store_true", help="log in with a browser, as a client does it, and examine with that token")
    parser.add_argument("--client-id", metavar="ID", default="", help="a registered client, instead of registering one")
    parser.add_argument("--client-secret", metavar="SECRET", default="", help="its secret; without --login it gets a token for itself")
    parser.add_argument(
        "--other-tool", metavar="NAME", action="append", default=[], help="a tool of another server, which texts must not direct"
    )
    parser.add_argument("--timeout", metavar="S", type=float, default=10.0, help="seconds for one response (default: 10)")
    add_flags(parser, "--home")
    parser.add_argument("--resume", metavar="RUN", help=f"finish an interrupted examination; {RUN_HELP}")
    add_name_flags(parser)
    add_gate_flags(parser)
    add_output_flags(parser, FORMATS)
    for format in FILES:
        parser.add_argument(f"--{format}", metavar="FILE", help=f"write {format} to this file as well")
    return parser
