"""`proctor run SUITE...`"""

import argparse
import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Generator
from typing import Any

from proctor.actions.mcplab.plan import names_in, read_overrides, read_tokens
from proctor.actions.running.named_target import WAYS, choose_target
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.actions.running.run_policy import McplabOptions
from proctor.actions.workspace.run_history import find_home
from proctor.actions.workspace.suites import find_suites, load_suites, with_complete, with_prices
from proctor.cli.exit_codes import Exit, find_signals, handle_signals
from proctor.cli.flags import (
    Decision,
    Gate,
    add_gate_flags,
    add_judge_flags,
    add_selection_flags,
    has_failed,
    open_gate,
    read_judge_options,
    select_cases,
)
from proctor.cli.parser import add_flags, add_output_flags, add_trust_flag, make_parser, parse_share, parse_whole
from proctor.cli.show.live_progress import make_listener, write_annotations
from proctor.cli.show.output import append_summary, is_on_github, reserve_standard_output
from proctor.cli.show.renderers import FORMATS
from proctor.cli.show.showing import add_pivot_flag, check_showing, choose_exit_code, print_unmet, show_run, write_markdown
from proctor.cli.stored import RUN_HELP
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.result import RunResult
from proctor.processes.guard import GUARD
from proctor.runner.limits import Budget, RunSettings
from proctor.store.files.run_references import read_tags


@contextlib.contextmanager
def end_by_signals(task: asyncio.Task[Any]) -> Generator[None]:
    """Cancel the task on the first signal, end the process on the second."""
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:
            task.cancel()
        else:
            end_at_once()

    # `nohup` ignores SIGHUP before it starts us; a handler would undo that.
    chosen = [number for number in find_signals("SIGINT", "SIGTERM", "SIGHUP") if signal.getsignal(number) is not signal.SIG_IGN]
    with handle_signals(chosen, end):
        yield


def end_at_once() -> None:
    """End this process and its children now; finished attempts are stored."""
    GUARD.kill_all()
    with contextlib.suppress(OSError, ValueError):
        print("interrupted", file=sys.stderr, flush=True)
    # Without cleanup: a second signal means stop now.
    os._exit(Exit.INTERRUPTED)


def add_rate_flags(parser: argparse.ArgumentParser) -> None:
    """Add the pass-rate flags."""
    parser.add_argument(
        "--min-pass-rate", type=parse_share, metavar="SHARE", help="the required pass rate of attempts (default: all); errors still fail"
    )
    parser.add_argument("--allow-errors", action="store_true", help="with --min-pass-rate: count errors as failed attempts")


def choose_rate_exit(run: RunResult, least: float, *, allow_errors: bool) -> tuple[Exit, str]:
    """Return the exit code of a run by its pass rate, with a text about the rate and the limit.

    An attempt that ended in an error was not examined: it fails the run unless errors are allowed.
    """
    passes, errors = run.counts["pass"], run.counts["error"]
    examined = passes + run.counts["fail"]
    if not examined and not errors:
        return Exit.NOTHING, "nothing was examined, so there is no pass rate"
    if errors and not allow_errors:
        counted = "1 attempt ended in an error and was" if errors == 1 else f"{errors:,} attempts ended in an error and were"
        reason = f"{counted} not examined, so there is no pass rate; --allow-errors counts them as failed"
        return Exit.FAILED, reason
    if not examined:
        return Exit.FAILED, "nothing was examined, so there is no pass rate"
    attempts = examined + errors
    # A rate equal to the limit must not fail by rounding.
    reached = passes / attempts >= least - 1e-9
    with_errors = f", {errors:,} of them an error" if errors else ""
    limit = f"at least {100 * least:.1f} %: {'reached' if reached else 'not reached'}"
    reason = f"pass rate {100 * passes / attempts:.1f} % ({passes:,} of {attempts:,} attempts{with_errors}), {limit}"
    return (Exit.PASSED if reached else Exit.FAILED), reason


def add_name_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that stores a run."""
    parser.add_argument("--name", default="", metavar="NAME", help="a name of the run; a name refers to the newest run that has it")
    parser.add_argument("--tag", default=[], action="append", metavar="TAG", help="a tag to find the run by, as @TAG; may be repeated")
    parser.add_argument("--note", default="", metavar="TEXT", help="a note stored with the run")


def run(arguments: list[str]) -> int:
    """Drive an agent; returns the exit code."""
    parser = make_parser(
        "run",
        "Drive the agent through the suite, record evidence, evaluate, keep the run.",
        [
            "proctor run suite.yaml",
            "proctor run --target app:answer",
            "proctor run suite.yaml -n 5 --min-pass-rate 0.9",
            "proctor run suite.yaml --record calls.jsonl",
        ],
    )
    parser.add_argument(
        "suites",
        metavar="SUITE",
        nargs="*",
        help="suite files, or folders of suites; - reads one from standard input (default: the suites of this folder)",
    )
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help=f"a target of proctor.yaml or of the suite by its name, or {WAYS} (default: default_target)",
    )
    add_flags(parser, "--capture")
    parser.add_argument("-n", "--repeat", type=parse_whole, default=1, metavar="N", help="how often to drive every case (default: 1)")
    parser.add_argument("-j", "--concurrency", type=parse_whole, default=4, metavar="N", help="how many cases at once (default: 4)")
    add_selection_flags(parser)
    parser.add_argument("--last-failed", "--lf", action="store_true", help="only cases that failed or errored in the last run")
    parser.add_argument("--watch", action="store_true", help="run again whenever the suite, the settings or the agent's module change")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds for one attempt, its retries included (default: 120)"
    )
    parser.add_argument("--retries", type=parse_whole, default=2, metavar="N", help="retries after a transport fault (default: 2)")
    parser.add_argument("--no-adapt", action="store_true", help="do not slow down when the target is overloaded")
    parser.add_argument("--max-tokens", type=parse_whole, metavar="N", help="stop after this many tokens")
    parser.add_argument("--max-cost", type=float, metavar="AMOUNT", help="stop at this cost, by model prices")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="stop after this many seconds; --resume repeats unfinished attempts")
    parser.add_argument("--max-failures", type=parse_whole, metavar="N", help="stop after this many failed attempts")
    add_rate_flags(parser)
    parser.add_argument("--record", metavar="FILE", help="record all requests and responses in a cassette")
    parser.add_argument("--replay", metavar="FILE", help="replay a cassette; send nothing")
    parser.add_argument("--resume", metavar="RUN", help=f"finish an interrupted run; {RUN_HELP}")
    add_judge_flags(parser)
    parser.add_argument("--allow-missing-judge", action="store_true", help="run without a judge: judged checks become errors")
    _add_mcplab_flags(parser)
    add_name_flags(parser)
    add_flags(parser, "--complete", "--strict", "--prices")
    add_gate_flags(parser)
    parser.add_argument("--summary", metavar="FILE", help="append a Markdown summary to this file, like a GitHub job summary")
    add_trust_flag(parser, "start, import and reach what it names, although it is not in the working folder")
    add_output_flags(parser, FORMATS)
    add_pivot_flag(parser)
    add_flags(parser, "--dialect", "--home")
    options = parser.parse_args(arguments)
    if options.watch:
        from proctor.cli.watch import watch  # most runs are made once

        suites = options.suites or [str(path) for path in find_suites(target=options.target)]
        return watch(arguments, suites, find_home(options.home))
    with reserve_standard_output():
        return _run_suite(options)


def _run_suite(options: argparse.Namespace) -> int:
    if options.allow_errors and options.min_pass_rate is None:
        raise InputError("--allow-errors requires --min-pass-rate")
    suite = select_cases(_load_suite(options), options)
    if suite is None:
        return Exit.NOTHING
    check_showing(suite, format=options.format, output=options.output, pivot=options.pivot)
    gate = open_gate(options, suite.name)
    live = asyncio.run(_drive_suite(suite, options))
    decision = _decide(live, gate, options)
    result = decision.mark(live.result)
    if not options.quiet:
        print(f"stored in {live.folder}", file=sys.stderr)
    show_run(
        result,
        format=options.format,
        output=options.output,
        no_color=options.no_color,
        entries=live.entries,
        pivot=options.pivot,
    )
    if options.format != "terminal" and not options.quiet:
        print_unmet(live.result)
    if live.unused is not None and not options.quiet:
        print(live.unused, file=sys.stderr)
    if is_on_github():
        print("\n".join(write_annotations(result.cases, level="warning" if result.let_through else "error")), file=sys.stderr)
    append_summary(lambda: write_markdown(result), options.summary)
    if live.ended == "interrupted":
        again = shlex.join(["proctor", "run", *options.suites, "--resume", live.result.run_id])
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        return Exit.INTERRUPTED
    if live.ended == "budget" and options.exitfirst and has_failed(live.result):
        print(f"stopped at the first failure; go on with --resume {live.result.run_id}", file=sys.stderr)
        return Exit.INTERRUPTED
    if live.ended == "budget":
        print(f"stopped early: {live.reason}; go on with --resume {live.result.run_id}", file=sys.stderr)
        return Exit.INTERRUPTED
    if live.reason and (len(live.entries) > 1 or options.max_cost is not None or options.max_tokens is not None):
        hint = "; -j 1 starts one case at a time" if options.concurrency > 1 else ""
        print(f"{live.reason}: everything had been started by then, so there was nothing left to stop{hint}", file=sys.stderr)
    if live.unverified_limit:
        print(f"warning: {live.unverified_limit}", file=sys.stderr)
    return decision.finish()


def _decide(live: LiveRun, gate: Gate, options: argparse.Namespace) -> Decision:
    if live.ended != "completed":
        return Decision(Exit.INTERRUPTED)
    if options.strict and live.result.unmet.fails_strict:
        return Decision(Exit.USAGE)
    gate.add_all(live.result.cases)
    if options.min_pass_rate is None:
        return gate.decide(live.result, choose_exit_code(live.result))
    code, reason = choose_rate_exit(live.result, options.min_pass_rate, allow_errors=options.allow_errors)
    return gate.decide(live.result, code, (reason,), lenient=False)


async def _drive_suite(suite: Suite, options: argparse.Namespace) -> LiveRun:
    bounds = {name: getattr(options, name) for name in ("max_tokens", "max_seconds", "max_failures", "max_cost")}
    budget = Budget(**{**bounds, **({"max_failures": 1} if options.exitfirst else {})})
    settings = RunSettings(
        repeat=options.repeat,
        concurrency=options.concurrency,
        timeout_s=options.timeout,
        retries=options.retries,
        adapt=not options.no_adapt,
        budget=budget,
        fail_fast=options.fail_fast,
    )
    progress = make_listener(quiet=options.quiet, verbose=options.verbose)
    chosen = RunOptions(
        settings=settings,
        record=options.record,
        replay=options.replay,
        resume=options.resume,
        note=options.note,
        name=options.name,
        tags=read_tags(options.tag),
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
    target = choose_target(options.target, suite, find_home(options.home), capture=options.capture)
    task = asyncio.create_task(drive(suite, chosen, target=target, home=options.home))
    try:
        with end_by_signals(task):
            return await task
    except asyncio.CancelledError:
        # Stopped before the target was open: nothing was run.
        raise KeyboardInterrupt from None
    finally:
        progress.finish()


def _load_suite(options: argparse.Namespace) -> Suite:
    if not options.suites:
        options.suites = [str(path) for path in find_suites(target=options.target)]
        if not options.quiet:
            print(f"suites: {', '.join(options.suites)}", file=sys.stderr)
    suite = with_prices(load_suites(options.suites, dialect=options.dialect, trust=options.trust), options.prices)
    return with_complete(suite, options.complete)


def _add_mcplab_flags(parser: argparse.ArgumentParser) -> None:
    mcplab = parser.add_argument_group("MCPLab workspaces")
    mcplab.add_argument("--agents", metavar="A,B", help="the agents to run (default: run_defaults.selected_agents, else all)")
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
