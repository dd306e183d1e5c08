"""`proctor recheck RUN [--suite SUITE]`"""

import argparse
import asyncio
import os
from pathlib import Path

from proctor.actions.history import find_home
from proctor.actions.judges import OpenedJudge, configured_judge
from proctor.actions.recheck import recheck, recheck_judged, suite_to_recheck
from proctor.actions.suites import load_suite
from proctor.actions.trust import trust_for
from proctor.cli.judge_flags import add_judge_flags, read_judge_options
from proctor.cli.parser import add_output_flags, add_strict_flag, add_suite_flags, add_trust_flag, make_parser
from proctor.cli.renderers import FORMATS
from proctor.cli.showing import choose_exit_code, print_unmet, show_run, write_markdown
from proctor.cli.step_summary import append_summary
from proctor.model.case import Suite
from proctor.model.result import RunResult


def run(arguments: list[str]) -> int:
    """Decide kept evidence again; returns the exit code."""
    parser = make_parser(
        "recheck",
        "Evaluate the kept evidence of a run again, with the suite it was started with or with another. No agent is called.",
        ["proctor recheck latest", "proctor recheck 20261115 --suite stricter.yaml"],
    )
    parser.add_argument("run", metavar="RUN", help="the id of a run, the beginning of one, or 'latest'")
    parser.add_argument("--suite", metavar="SUITE", help="another suite, instead of the one the run was started with")
    add_output_flags(parser, FORMATS)
    add_suite_flags(parser)
    add_strict_flag(parser)
    add_trust_flag(parser, "ask the judge and the models that it describes itself")
    parser.add_argument("--no-judge", action="store_true", help="ask no judge: claims that need one are errors")
    add_judge_flags(parser)
    options = parser.parse_args(arguments)
    suite = load_suite(options.suite, dialect=options.dialect) if options.suite else None
    home = find_home(options.home)
    chosen = suite or suite_to_recheck(home, options.run)
    trust = trust_for("reading", granted=options.trust, home=home)
    opened = None if options.no_judge else configured_judge(chosen, home, os.environ, read_judge_options(options), trust)
    result = recheck(home, options.run, chosen) if opened is None else asyncio.run(_recheck_with_judge(home, options, opened, chosen))
    show_run(result, format=options.format, output=options.output, no_color=options.no_color)
    if options.format != "terminal" and not options.quiet:
        print_unmet(result)
    append_summary(lambda: write_markdown(result))
    return choose_exit_code(result, strict=options.strict)


async def _recheck_with_judge(home: Path, options: argparse.Namespace, opened: OpenedJudge, suite: Suite) -> RunResult:
    try:
        return await recheck_judged(home, options.run, opened.judge, suite, fail_fast=options.fail_fast)
    finally:
        await opened.judge.close()
