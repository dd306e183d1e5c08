"""`proctor check SUITE EVIDENCE...`"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from proctor.actions.checking.check_stream import CheckStream, Shows
from proctor.actions.workspace.status_line import StatusLine
from proctor.actions.workspace.suites import STANDARD_INPUT, load_remembered, with_complete, with_prices
from proctor.cli.exit_codes import Exit
from proctor.cli.flags import (
    FirstFailure,
    add_gate_flags,
    add_judge_flags,
    add_selection_flags,
    open_gate,
    open_judge,
    read_judge_options,
    require_moment,
    select_cases,
    stop_at_failure,
)
from proctor.cli.parser import add_flags, add_output_flags, add_trust_flag, make_parser
from proctor.cli.show.output import Output, find_summary_file
from proctor.cli.show.renderers import FORMATS, append_document, make_renderer, print_case
from proctor.cli.show.showing import choose_exit_code, print_unmet
from proctor.errors import InputError
from proctor.model.result import CaseResult
from proctor.sources.records import Record, read_records

if TYPE_CHECKING:
    import argparse

    from proctor.actions.judging.judges import OpenedJudge
    from proctor.report.builders.run import RunReport


_RESULTS_PER_LOOK = 64
"""Results between two looks at the clock, without a judge."""


class Progress:
    """Counts results, with a progress line on a terminal."""

    def __init__(self, *, enabled: bool, judges: Sequence[str] = ()) -> None:
        self.enabled = enabled and sys.stderr.isatty()
        """Whether standard error is a terminal."""
        self._line = StatusLine(enabled=self.enabled, wait_s=1.0, every_s=0.25)
        self._count = 0
        self._failed = 0
        self._every = 1 if judges else _RESULTS_PER_LOOK
        if judges:
            # The first result may take minutes.
            self._line.show(lambda seconds: f"judging with {', '.join(judges)}", is_last=True)
        self.finish = self._line.finish

    def add(self, result: CaseResult) -> None:
        """Count one more result."""
        self._count += 1
        if result.outcome in ("fail", "error"):
            self._failed += 1
        # Checking the clock for every result would slow it down.
        if self._count % self._every == 0:
            self._line.show(self._describe)

    def _describe(self, seconds: float) -> str:
        rate = self._count / seconds
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        return f"{self._count:,} checked, {self._failed:,} failed, {speed} a second"


def run(arguments: list[str]) -> int:
    """Check recorded evidence; returns the exit code."""
    # Suites and results have no reference cycles.
    gc.set_threshold(100_000, 20, 20)
    options = _make_parser().parse_args(arguments)
    if options.now is not None:
        require_moment(options.now)
    if options.record is not None and not options.explain:
        raise InputError("--record requires --explain")
    if options.suite == STANDARD_INPUT and STANDARD_INPUT in options.evidence:
        raise InputError("standard input is either the suite or the evidence, not both")
    loaded = with_prices(load_remembered(options.suite, dialect=options.dialect, trust=options.trust), options.prices)
    suite = select_cases(with_complete(loaded, options.complete), options)
    if suite is None:
        return Exit.NOTHING
    gate = open_gate(options, suite.name)
    gc.freeze()
    stream = CheckStream(suite, now=options.now, shows=_choose_shown(options), strict=options.strict)
    opened = _open_judge(stream, options) if stream.judged and not options.no_judge else None
    with Output(options.output) as output:
        render = make_renderer(options.format, output, no_color=options.no_color)
        judges = opened.models if opened is not None else ()
        progress = Progress(enabled=not options.quiet and not (output.is_terminal and options.format == "jsonl"), judges=judges)
        summary = _make_summary()
        show, count = render.add if summary is None else _call_both(render.add, summary.add), progress.add if progress.enabled else None
        for is_enabled, add in ((gate.enabled, gate.add), (options.verbose, print_case), (options.exitfirst, stop_at_failure)):
            show = _call_both(show, add) if is_enabled else show
        records = _read_records(stream, options, output)
        results = stream.over(records) if opened is None else None
        stopped = False
        try:
            for result in results or ():
                show(result)
                if count is not None:
                    count(result)
            if opened is not None:
                _judge_records(stream, opened, options, records, show, count)
        except KeyboardInterrupt:
            # Finished results are reported as incomplete.
            stream.interrupted = True
        except FirstFailure:
            stream.interrupted = stopped = True
        progress.finish()
        run_result = stream.finish(render.in_memory)
        decision = gate.decide(run_result, choose_exit_code(run_result, strict=options.strict))
        run_result = decision.mark(run_result)
        render.finish(run_result)
    if summary is not None:
        append_document(lambda kind: summary.finish(run_result))
    if not options.quiet and options.format != "terminal":
        for problem in run_result.warnings:
            print(problem.write_headline(), file=sys.stderr)
        print_unmet(run_result)
    if stopped:
        print("stopped at the first failure; the rest of the evidence was not read", file=sys.stderr)
        return Exit.INTERRUPTED
    # After the report; `main` chooses the exit code.
    if stream.interrupted:
        raise KeyboardInterrupt
    return decision.finish()


def _choose_shown(options: argparse.Namespace) -> Shows:
    """Return what results carry in addition to verdicts; a stream carries the least."""
    if options.explain:
        return "evidence" if options.format in ("json", "jsonl") else "account"
    if options.format in ("csv", "parquet"):
        return "evidence"
    return "account" if options.format in ("json", "html") else "verdicts"


def _read_records(stream: CheckStream, options: argparse.Namespace, output: Output) -> Iterable[Record]:
    declared, unique = stream.suite.find_declared(), not stream.only_presence
    records = read_records(options.evidence, format=options.evidence_format, declared=declared, repeated_keys=unique)
    if not options.explain or options.format != "terminal":
        return records
    from proctor.cli.show.print_evidence import Explainer  # rarely needed

    return Explainer(output, no_color=options.no_color, record=options.record).explain_each(records)


def _open_judge(stream: CheckStream, options: argparse.Namespace) -> OpenedJudge | None:
    from proctor.actions.workspace.run_history import find_home  # rarely needed

    return open_judge(stream.suite, find_home(options.home), options, read_judge_options(options))


def _judge_records(
    stream: CheckStream,
    opened: OpenedJudge,
    options: argparse.Namespace,
    records: Iterable[Record],
    show: Callable[[CaseResult], None],
    count: Callable[[CaseResult], None] | None,
) -> None:
    import asyncio  # only for judges

    from proctor.actions.checking.judged_check import JudgedStream

    async def check_all() -> None:
        try:
            async for result in JudgedStream(stream, opened.judge, fail_fast=options.fail_fast).over(records):
                show(result)
                if count is not None:
                    count(result)
        finally:
            await opened.judge.close()

    asyncio.run(check_all())


def _make_summary() -> RunReport | None:
    """Return the report for a GitHub job summary, if there is one; results are streamed and not in_memory."""
    if find_summary_file() is None:
        return None
    from proctor.report.builders.run import RunReport  # only for GitHub jobs

    return RunReport("markdown")


def _call_both(first: Callable[[CaseResult], None], second: Callable[[CaseResult], None]) -> Callable[[CaseResult], None]:
    def add(result: CaseResult) -> None:
        first(result)
        second(result)

    return add


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "check",
        "Evaluate recorded evidence against a suite. No agent is called; only judged checks call the configured judge.",
        [
            "proctor check suite.yaml evidence.jsonl",
            "proctor check scenarios.yaml trace.jsonl -k 'refund and not slow'",
            "proctor check suite.yaml traces/ --format junit --output report.xml",
            "proctor check suite.yaml trace.json --explain",
            "cat runs.jsonl | proctor check suite.yaml - --format jsonl",
        ],
    )
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or a folder of suites; - reads one from standard input")
    parser.add_argument("evidence", metavar="EVIDENCE", nargs="+", help="evidence files or folders; - reads standard input")
    add_output_flags(parser, FORMATS)
    add_flags(parser, "--dialect", "--home")
    add_selection_flags(parser)
    add_flags(parser, "--now", "--strict", "--prices")
    add_gate_flags(parser)
    add_trust_flag(parser, "ask the judge and the models that it describes itself")
    add_flags(parser, "--complete", "--evidence-format")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="before the verdicts: the reader of each record, known and unknown parts, and its content (json, jsonl: in the result)",
    )
    parser.add_argument("--record", metavar="LINE|ID", help="explain only the record with this line, id or case")
    add_flags(parser, "--no-judge")
    add_judge_flags(parser)
    return parser
