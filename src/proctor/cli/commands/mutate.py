"""`proctor mutate SUITE EVIDENCE...|RUN`"""

import argparse
import sys
from pathlib import Path

import msgspec

from proctor.actions.checking.mutate import MOST_RECORDS, mutate, read_recordings, read_run
from proctor.actions.workspace.run_history import find_home
from proctor.actions.workspace.suites import load_suite, with_complete
from proctor.cli.exit_codes import Exit
from proctor.cli.flags import select_cases
from proctor.cli.parser import add_flags, add_output_flags, make_parser, parse_positive
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import append_document, write_report
from proctor.cli.stored import choose_run_not_file
from proctor.model.case import Suite
from proctor.model.mutation import MutationResult
from proctor.report.builders.mutation import build_mutation
from proctor.report.words.wording import count_noun, write_percent
from proctor.scoring.intervals import Counts, wilson

FORMATS = ("terminal", "json", "markdown", "html")


def run(arguments: list[str]) -> int:
    """Measure which planted faults a suite detects; returns the exit code."""
    parser = make_parser(
        "mutate",
        "Measure a suite: plant faults in recorded runs that pass, decide them again, and show which faults no claim detects. "
        "No agent and no model is called. For each survivor, it shows a claim that would detect it.",
        [
            "proctor mutate suite.yaml evidence.jsonl",
            "proctor mutate suite.yaml latest --fail-under 80",
            "proctor mutate scenarios.yaml traces/ --format html --output mutation.html",
        ],
    )
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or a folder of suites, of any dialect")
    parser.add_argument(
        "evidence", metavar="EVIDENCE", nargs="+", help="evidence files or folders, or one stored run: latest, an id, a name"
    )
    parser.add_argument("-k", metavar="EXPR", help="only cases whose id, name or tags match, as in `proctor run`")
    parser.add_argument("--fail-under", type=_parse_percent, metavar="PERCENT", help="exit 1 if a smaller share of the faults is detected")
    parser.add_argument(
        "--records",
        type=parse_positive,
        default=MOST_RECORDS,
        metavar="N",
        help="passing records of each case to use (default: %(default)s)",
    )
    add_flags(parser, "--evidence-format")
    add_output_flags(parser, FORMATS)
    add_flags(parser, "--dialect", "--home", "--complete")
    options = parser.parse_args(arguments)
    suite = select_cases(with_complete(load_suite(options.suite, dialect=options.dialect), options.complete), options)
    if suite is None:
        return Exit.NOTHING
    result = _measure(suite, options)
    least = None if options.fail_under is None else options.fail_under / 100
    with Output(options.output) as output:
        if options.format == "json":
            output.write(msgspec.json.format(msgspec.json.encode(write_json(result)), indent=2) + b"\n")
        else:
            write_report(output, options.format, lambda kind: build_mutation(result, kind, least), no_color=options.no_color)
    append_document(lambda kind: build_mutation(result, kind, least))
    share = result.total.share
    if share is None:
        skipped = "; ".join(f"{count_noun(count, 'record')}: {why}" for why, count in result.skipped.items())
        print(f"no fault was planted: {skipped or 'there is no record'}", file=sys.stderr)
        return Exit.NOTHING
    if least is not None and share < least:
        print(f"{write_percent(share)} of the planted faults detected; --fail-under demands {options.fail_under:g} %", file=sys.stderr)
        return Exit.FAILED
    return Exit.PASSED


def _measure(suite: Suite, options: argparse.Namespace) -> MutationResult:
    source = options.evidence[0]
    if len(options.evidence) == 1 and not Path(source).exists() and source != "-":
        home = find_home(options.home)
        return mutate(suite, read_run(home, choose_run_not_file(home, source, quiet=options.quiet), suite), most=options.records)
    return mutate(suite, read_recordings(options.evidence, suite, format=options.evidence_format), most=options.records)


def write_json(result: MutationResult) -> dict[str, object]:
    """Return the JSON report."""
    interval = wilson(Counts(result.total.planted, result.total.detected))
    total = {**msgspec.to_builtins(result.total), "share": result.total.share, "interval": [interval.low, interval.high]}
    return {"schema": "proctor.mutation/1", **msgspec.to_builtins(result), "total": total}


def _parse_percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 100, found {text!r}")
    return value
