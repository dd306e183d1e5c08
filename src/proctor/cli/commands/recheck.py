"""`proctor recheck RUN [--suite SUITE]`"""

import argparse
import asyncio
from pathlib import Path

from proctor.actions.checking.recheck import recheck, recheck_judged, suite_to_recheck
from proctor.actions.judging.judges import OpenedJudge
from proctor.actions.workspace.run_history import find_home, open_run
from proctor.actions.workspace.suites import load_suite, with_complete, with_prices
from proctor.cli.exit_codes import Exit
from proctor.cli.flags import add_judge_flags, open_judge, read_judge_options, select_cases
from proctor.cli.parser import add_flags, add_output_flags, add_trust_flag, make_parser
from proctor.cli.show.output import append_summary
from proctor.cli.show.renderers import FORMATS
from proctor.cli.show.showing import choose_exit_code, print_unmet, show_run, write_markdown
from proctor.cli.stored import RUN_HELP, choose_run
from proctor.model.case import Suite
from proctor.model.result import RunResult
from proctor.report.blocks.exchange import drop_exchanges
from proctor.store.files.run_references import LATEST


def run(arguments: list[str]) -> int:
    """Decide stored evidence again; returns the exit code."""
    parser = make_parser(
        "recheck",
        "Evaluate the stored evidence of a run again, with its own suite or another one. No agent is called.",
        ["proctor recheck latest", "proctor recheck baseline --suite stricter.yaml"],
    )
    parser.add_argument("run", metavar="RUN", nargs="?", default=LATEST, help=f"{RUN_HELP} (default: latest)")
    parser.add_argument("--suite", metavar="SUITE", help="another suite (default: the suite of the run)")
    parser.add_argument("-k", metavar="EXPR", help="only cases whose id, name or tags match, as in `proctor run`")
    add_output_flags(parser, FORMATS)
    add_flags(parser, "--dialect", "--home", "--strict", "--complete", "--prices")
    add_trust_flag(parser, "ask the judge and the models that it describes itself")
    add_flags(parser, "--no-judge")
    add_judge_flags(parser)
    options = parser.parse_args(arguments)
    suite = load_suite(options.suite, dialect=options.dialect) if options.suite else None
    home = find_home(options.home)
    options.run = choose_run(home, options.run, quiet=options.quiet)
    priced = with_prices(suite or suite_to_recheck(home, options.run), options.prices)
    chosen = select_cases(with_complete(priced, options.complete), options)
    if chosen is None:
        return Exit.NOTHING
    opened = None if options.no_judge else open_judge(chosen, home, options, read_judge_options(options))
    result = recheck(home, options.run, chosen) if opened is None else asyncio.run(_recheck_with_judge(home, options, opened, chosen))
    if options.format == "terminal":
        result = drop_exchanges(result)
    # Table rows show answer, calls and tokens of the stored evidence.
    entries = open_run(home, options.run)[1] if options.format in ("csv", "parquet") else None
    show_run(result, format=options.format, output=options.output, no_color=options.no_color, entries=entries)
    if options.format != "terminal" and not options.quiet:
        print_unmet(result)
    append_summary(lambda: write_markdown(result))
    return choose_exit_code(result, strict=options.strict)


async def _recheck_with_judge(home: Path, options: argparse.Namespace, opened: OpenedJudge, suite: Suite) -> RunResult:
    try:
        return await recheck_judged(home, options.run, opened.judge, suite, fail_fast=options.fail_fast)
    finally:
        await opened.judge.close()
