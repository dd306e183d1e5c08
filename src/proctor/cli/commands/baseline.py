"""`proctor baseline set RUN`, `proctor baseline show`, `proctor baseline unset`"""

import argparse
import sys
from pathlib import Path

from proctor.actions.workspace.run_history import find_home
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.stored import RUN_HELP
from proctor.errors import InputError
from proctor.model.json_values import write_document
from proctor.model.run import RunHeader
from proctor.report.words.neutral import to_one_line
from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import Baselines

_VERBS = {
    "set": "choose the run that later runs of the same suite are compared with",
    "show": "say which runs were chosen",
    "unset": "forget the choice; the run itself stays",
}


def run(arguments: list[str]) -> int:
    """Set, show or unset the baseline; returns the exit code."""
    parser = make_parser(
        "baseline",
        "The run that later runs of a suite are compared with, one per suite.\n\n"
        + "\n".join(f"  {verb:<6} {does}" for verb, does in _VERBS.items()),
        ["proctor baseline set latest", "proctor baseline set @release", "proctor baseline show", "proctor baseline unset"],
    )
    parser.add_argument("verb", metavar="VERB", choices=tuple(_VERBS), help=", ".join(_VERBS))
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"for set: {RUN_HELP}")
    parser.add_argument("--suite", metavar="NAME", help="for unset: only this suite")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="for show: terminal or json (default: terminal)")
    add_flags(parser, "--home")
    options = parser.parse_args(arguments)
    if options.verb == "set" and options.run is None:
        parser.error("set needs a run; `proctor list` shows what there is")
    if options.verb != "set" and options.run is not None:
        parser.error(f"unrecognized arguments: {options.run}")
    home = find_home(options.home)
    return {"set": _run_set, "show": _run_show, "unset": _run_unset}[options.verb](home, options)


def _run_set(home: Path, options: argparse.Namespace) -> int:
    files = RunFiles(home)
    chosen = files.open(options.run)
    header = chosen.header
    if chosen.folder.resolve().parent != files.folder.resolve():
        raise InputError(f"{options.run!r} is not stored in {str(files.folder)!r}; a baseline is a run of this workspace")
    ending = chosen.find_ending()
    if ending != "completed":
        # A comparison with an incomplete run would miss the rest.
        raise InputError(f"run {header.run_id!r} did not finish ({ending.replace('_', ' ')}); a baseline must be complete")
    Baselines(home).set(header.suite_name, header.run_id)
    print(f"the baseline of {header.suite_name!r} is {_describe(header)}", file=sys.stderr)
    return Exit.PASSED


def _run_show(home: Path, options: argparse.Namespace) -> int:
    known = Baselines(home).read()
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(known))
            return Exit.PASSED
        if not known:
            output.write_text("there is no baseline yet; `proctor baseline set RUN` chooses one\n")
            return Exit.NOTHING
        for suite, run_id in sorted(known.items()):
            exists = (RunFiles(home).folder / run_id).is_dir()
            described = _describe(RunFiles(home).open(run_id).header) if exists else f"{run_id}, which no longer exists"
            output.write_text(f"{to_one_line(suite, 60)}  {described}\n")
    return Exit.PASSED


def _run_unset(home: Path, options: argparse.Namespace) -> int:
    removed = Baselines(home).unset(options.suite)
    print(f"removed: {', '.join(removed)}" if removed else "there was no baseline", file=sys.stderr)
    return Exit.PASSED


def _describe(header: RunHeader) -> str:
    name = f" ({to_one_line(header.name, 60)})" if header.name else ""
    return f"{header.run_id}{name}, started {header.started_at}"
