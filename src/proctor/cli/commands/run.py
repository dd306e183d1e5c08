"""`proctor run SUITE...`"""

import argparse
import asyncio
import sys

from proctor.actions.mcplab_plan import names_in, read_overrides, read_tokens
from proctor.actions.run import LiveRun, drive
from proctor.actions.run_policy import McplabOptions
from proctor.actions.suites import load_suites
from proctor.cli.ending import end_by_signals
from proctor.cli.exits import Exit
from proctor.cli.judge_flags import add_judge_flags, read_judge_options
from proctor.cli.live_progress import make_listener, write_annotations
from proctor.cli.output import reserve_standard_output
from proctor.cli.parser import add_output_flags, add_strict_flag, add_suite_flags, add_trust_flag, make_parser
from proctor.cli.renderers import FORMATS
from proctor.cli.showing import choose_exit_code, print_unmet, show_run, write_markdown
from proctor.cli.step_summary import append_summary, is_on_github
from proctor.model.case import Suite
from proctor.runner.limits import Budget
from proctor.runner.run import RunSettings


def run(arguments: list[str]) -> int:
    """Drive an agent; returns the exit code."""
    options = _make_parser().parse_args(arguments)
    with reserve_standard_output():
        return _run_suite(options)


def _run_suite(options: argparse.Namespace) -> int:
    suite = _load_suite(options)
    if not suite.cases:
        print("nothing selected: " + (f"no case fits -k {options.k!r}" if options.k else "the suite has no cases"), file=sys.stderr)
        return Exit.NOTHING
    live = asyncio.run(_drive_suite(suite, options))
    if not options.quiet:
        print(f"kept in {live.folder}", file=sys.stderr)
    show_run(live.result, format=options.format, output=options.output, no_color=options.no_color, entries=live.entries)
    if options.format != "terminal" and not options.quiet:
        print_unmet(live.result)
    if live.unused is not None and not options.quiet:
        print(live.unused, file=sys.stderr)
    if is_on_github():
        print("\n".join(write_annotations(live.result.cases)), file=sys.stderr)
        append_summary(lambda: write_markdown(live.result))
    if live.ended == "interrupted":
        print(f"interrupted; go on with: proctor run {' '.join(options.suites)} --resume {live.result.run_id}", file=sys.stderr)
        return Exit.INTERRUPTED
    if live.ended == "budget":
        print(f"stopped early: {live.reason}; go on with --resume {live.result.run_id}", file=sys.stderr)
        return Exit.INTERRUPTED
    if options.strict and live.result.unmet.any:
        return Exit.USAGE
    if options.min_pass_rate is not None:
        return _choose_exit(live, options.min_pass_rate)
    return choose_exit_code(live.result)


def _choose_exit(live: LiveRun, least: float) -> int:
    counts = live.result.counts
    decided = counts["pass"] + counts["fail"] + counts["error"]
    if not decided:
        return Exit.NOTHING
    return Exit.PASSED if counts["pass"] / decided >= least - 1e-9 else Exit.FAILED


async def _drive_suite(suite: Suite, options: argparse.Namespace) -> LiveRun:
    budget = Budget(max_tokens=options.max_tokens, max_seconds=options.max_seconds, max_failures=options.max_failures)
    settings = RunSettings(
        repeat=options.repeat,
        concurrency=options.concurrency,
        timeout_s=options.timeout,
        retries=options.retries,
        adapt=not options.no_adapt,
        budget=budget,
        fail_fast=options.fail_fast,
    )
    progress = make_listener(quiet=options.quiet)
    task = asyncio.create_task(
        drive(
            suite,
            target=options.target,
            home=options.home,
            settings=settings,
            record=options.record,
            replay=options.replay,
            resume=options.resume,
            note=options.note,
            trust=options.trust,
            listener=progress,
            judge_options=read_judge_options(options),
            allow_missing_judge=options.allow_missing_judge,
            announce=lambda text: None if options.quiet else print(text, file=sys.stderr),
            mcplab=McplabOptions(
                agents=names_in(options.agents) if options.agents else None,
                agents_all=options.agents_all,
                overrides=read_overrides(options.server_override_all, options.server_override),
                oauth_tokens=read_tokens(options.oauth_token),
                artifacts=options.artifacts == "mcplab",
            ),
        )
    )
    try:
        with end_by_signals(task):
            return await task
    except asyncio.CancelledError:
        # Told to end before the target was open: nothing was driven.
        raise KeyboardInterrupt from None
    finally:
        progress.finish()


def _load_suite(options: argparse.Namespace) -> Suite:
    suite = load_suites(options.suites, dialect=options.dialect)
    if options.k:
        from proctor.decide.selection import select  # most runs take the whole suite

        suite = select(suite, options.k)
    return suite


def _parse_share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("expected a number from 0 to 1")
    return value


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "run",
        "Drive the agent through the suite, record evidence, evaluate, keep the run.",
        ["proctor run suite.yaml", "proctor run suite.yaml -n 5 --min-pass-rate 0.9", "proctor run suite.yaml --record calls.jsonl"],
    )
    parser.add_argument("suites", metavar="SUITE", nargs="+", help="suite files, or folders of suites")
    parser.add_argument("--target", metavar="NAME", help="the target in proctor.yaml or in the suite (default: default_target)")
    parser.add_argument("-n", "--repeat", type=int, default=1, metavar="N", help="how often to drive every case (default: 1)")
    parser.add_argument("-j", "--concurrency", type=int, default=4, metavar="N", help="how many cases at once (default: 4)")
    parser.add_argument("-k", metavar="EXPR", help="only cases whose id, name or tags fit")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds for one attempt (default: 120)")
    parser.add_argument("--retries", type=int, default=2, metavar="N", help="how often a transport fault is tried again (default: 2)")
    parser.add_argument("--no-adapt", action="store_true", help="do not slow down when the other side is overloaded")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="stop when so many tokens are spent")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="stop after so many seconds")
    parser.add_argument("--max-failures", type=int, metavar="N", help="stop after so many failed attempts")
    parser.add_argument("--min-pass-rate", type=_parse_share, metavar="SHARE", help="the share of attempts that must pass, instead of all")
    parser.add_argument("--record", metavar="FILE", help="keep everything said over a wire in a cassette")
    parser.add_argument("--replay", metavar="FILE", help="answer from a cassette; nothing is sent")
    parser.add_argument("--resume", metavar="RUN", help="finish an interrupted run")
    add_judge_flags(parser)
    parser.add_argument("--allow-missing-judge", action="store_true", help="run without a judge: claims that need one are errors")
    mcplab = parser.add_argument_group("MCPLab workspaces")
    mcplab.add_argument("--agents", metavar="A,B", help="the agents to drive (default: run_defaults.selected_agents, else all)")
    mcplab.add_argument("--agents-all", action="store_true", help="every agent, also those of the library")
    mcplab.add_argument("--server-override-all", metavar="A,B", help="these servers for every scenario")
    mcplab.add_argument(
        "--server-override", metavar="SCENARIO=A,B", action="append", default=[], help="these servers for one scenario; may be repeated"
    )
    mcplab.add_argument(
        "--oauth-token", metavar="SERVER=TOKEN", action="append", default=[], help="a token for a server with a login; may be repeated"
    )
    mcplab.add_argument(
        "--artifacts", choices=("mcplab",), help="write results.json, trace.jsonl, summary.md, report.html and resolved-config.yaml as well"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="a remark to keep with the run")
    add_strict_flag(parser)
    add_trust_flag(parser, "start, import and reach what it names although it does not lie in the working folder")
    add_output_flags(parser, FORMATS)
    add_suite_flags(parser)
    return parser
