"""`proctor batch SUITE DATASET... --output DIR` and `proctor batch show DIR`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from proctor.actions.workspace.status_line import StatusLine
from proctor.actions.workspace.suites import STANDARD_INPUT, load_suite, with_complete, with_prices
from proctor.batches.judging import read_bounds
from proctor.batches.plan import BatchOptions, name_output
from proctor.batches.run import ENGINES, estimate_batch, open_batch, open_executor, run_batch
from proctor.batches.slicer import read_groupings
from proctor.cli.exit_codes import Exit
from proctor.cli.flags import open_judge, require_moment
from proctor.cli.parser import add_flags, add_trust_flag, make_parser, parse_positive, parse_share
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import write_report
from proctor.errors import InputError
from proctor.model.batch import BatchSummary
from proctor.model.case import Suite
from proctor.model.json_values import write_document
from proctor.processes.dask_executor import TlsFiles
from proctor.runner.ports import Judge

FORMATS = ("terminal", "json", "markdown", "html")
SHOW = "show"
"""In place of a suite: show an existing batch."""


def run(arguments: list[str]) -> int:
    """Evaluate a data set, or show a batch; returns the exit code."""
    parser = _make_parser()
    # Files may come before, between and after the flags.
    options = parser.parse_intermixed_args(arguments)
    if options.suite == SHOW:
        if len(options.dataset) != 1 or options.output is not None:
            parser.error("show: expected the folder of one batch: proctor batch show DIR")
        if options.by or options.where is not None:
            parser.error("show: options that select data and slices apply to the evaluation, not to show")
        summary = open_batch(options.dataset[0])
        _show_summary(summary, options)
        return Exit.PASSED if summary.is_complete else Exit.INTERRUPTED
    if options.output is None:
        parser.error("the following arguments are required: --output")
    summary = _evaluate(options)
    if summary is None:
        return Exit.PASSED
    _show_summary(summary, options)
    if not summary.is_complete:
        return Exit.INTERRUPTED
    if summary.has_passed or (options.fail_under is not None and summary.passes_at_least(options.fail_under)):
        return Exit.PASSED
    return Exit.FAILED if summary.errors or summary.has_decided else Exit.NOTHING


def _evaluate(options: argparse.Namespace) -> BatchSummary | None:
    if options.suite == STANDARD_INPUT:
        raise InputError("a batch needs the suite as a file, for later runs")
    if options.now is not None:
        require_moment(options.now)
    loaded = with_prices(load_suite(options.suite, dialect=options.dialect, trust=options.trust), options.prices)
    suite = with_complete(loaded, options.complete)
    batch_options = BatchOptions(
        places=tuple(options.dataset),
        output=name_output(options.output),
        column=options.column,
        evidence_format=options.evidence_format,
        where=options.where,
        by=read_groupings(options.by),
        carry=tuple(options.carry),
        limit=options.limit,
        sample=options.sample,
        now=options.now,
        resume=options.resume,
        judging=read_bounds(options.judge_sample, options.max_tokens),
    )
    line = StatusLine(enabled=not options.quiet and sys.stderr.isatty(), every_s=0.25)
    tls = _read_tls(options)
    if options.dry_run:
        print(estimate_batch(suite, batch_options, options.workers))
        return None
    try:
        with open_executor(options.engine, workers=options.workers, scheduler=options.scheduler, tls=tls) as executor:
            return run_batch(
                suite, batch_options, executor, lambda progress: progress.show(line), lambda memory: _open_judge(suite, options, memory)
            )
    # Wipe the progress line first.
    except KeyboardInterrupt:
        line.finish()
        print(f"committed results are in {options.output}; continue with --resume", file=sys.stderr)
        raise
    finally:
        line.finish()


def _open_judge(suite: Suite, options: argparse.Namespace, memory: Path) -> Judge | None:
    from proctor.actions.judging.judge_settings import JudgeOptions
    from proctor.actions.workspace.run_history import find_home  # rarely needed

    opened = open_judge(suite, find_home(None), options, JudgeOptions(model=options.judge_model, memory=memory))
    return None if opened is None else opened.judge


def _read_tls(options: argparse.Namespace) -> TlsFiles | None:
    files = (options.tls_ca, options.tls_cert, options.tls_key)
    if not any(files):
        return None
    if not all(files):
        raise InputError("--tls-ca, --tls-cert and --tls-key must be given together")
    for name in files:
        if not Path(name).is_file():
            raise InputError(f"no file at {name!r}")
    return TlsFiles(ca=options.tls_ca, certificate=options.tls_cert, key=options.tls_key)


def _show_summary(summary: BatchSummary, options: argparse.Namespace) -> None:
    with Output(options.report) as output:
        if options.format == "json":
            output.write(write_document(summary))
        else:
            from proctor.report.builders.batch import build_batch

            write_report(output, options.format, lambda kind: build_batch(summary, kind), no_color=options.no_color)


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "batch",
        "Evaluate a large set of recorded evidence (Parquet, JSON lines) against a suite, on all cores; results are Parquet files. "
        "No agent is called, and a judge only for a sample of the size you set. Run it again to evaluate new and changed data.",
        [
            "proctor batch suite.yaml traces/ --output checked",
            "proctor batch suite.yaml 'traces/day=2026-10-*/*.parquet' --column record --output october",
            "proctor batch suite.yaml s3://bucket/traces --output checked --resume",
            "proctor batch suite.yaml traces/ --output shop --where \"agent = 'shop'\" --by model --by tier,day",
            "proctor batch suite.yaml s3://bucket/traces --output /shared/checked --engine dask --scheduler tls://scheduler:8786",
            "proctor batch show checked --format html --report checked.html",
        ],
    )
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or a folder of suites; `show` prints an existing batch")
    parser.add_argument(
        "dataset", metavar="DATASET", nargs="+", help="Parquet and JSON lines (plain, .gz, .zst): files, folders, patterns, addresses"
    )
    parser.add_argument("--output", metavar="DIR", help="the folder for results, errors and the manifest, or its address")
    parser.add_argument("--column", metavar="NAME", help="the column with the record, as JSON or a struct (default: auto-detect)")
    add_flags(parser, "--complete", "--evidence-format")
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help="read only these rows: \"agent = 'shop' and start >= '2026-10-01'\" (=, !=, <, in, is null, and, or, not)",
    )
    parser.add_argument(
        "--by",
        metavar="NAMES",
        action="append",
        default=[],
        help="slice the summary by columns or keys of metadata: model, or model,day for both together (may be repeated)",
    )
    parser.add_argument(
        "--carry", metavar="NAME", action="append", default=[], help="copy a column or key into `results` (may be repeated)"
    )
    parser.add_argument("--limit", type=parse_positive, metavar="N", help="read only the first N records")
    parser.add_argument("--sample", type=parse_share, metavar="SHARE", help="read a stable sample of the records: 0.01")
    parser.add_argument("--dry-run", action="store_true", help="show what would be read and the estimated cost; write nothing")
    parser.add_argument(
        "--fail-under",
        type=parse_share,
        metavar="SHARE",
        help="exit 0 if each case has at least this pass rate and all records are readable",
    )
    parser.add_argument("--resume", action="store_true", help="continue an unfinished batch")
    parser.add_argument("-j", "--workers", type=parse_positive, metavar="N", help="worker processes (default: one per core)")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="local processes, or dask (default: local)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="for dask: an existing scheduler (default: start one here)")
    parser.add_argument("--tls-ca", metavar="FILE", help="for dask: the CA certificate of the scheduler (PEM)")
    parser.add_argument("--tls-cert", metavar="FILE", help="for dask: the certificate of this machine (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="for dask: its private key (PEM)")
    add_flags(parser, "--now", "--dialect")
    judge = parser.add_argument_group("the judge of claims in plain language, of which a batch asks about a sample")
    judge.add_argument("--judge-sample", type=parse_positive, metavar="N", help="approximate sample size, stratified by outcome")
    judge.add_argument("--max-tokens", type=parse_positive, metavar="N", help="token limit of the judge")
    judge.add_argument("--judge-model", metavar="NAME", help="the judge model: one of `models`, or provider/name")
    add_flags(parser, "--prices")
    add_trust_flag(parser, "let it name files of data outside its folder")
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="terminal, json, markdown or html (default: terminal)")
    parser.add_argument("--report", metavar="FILE", help="write the summary to this file instead of standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    add_flags(parser, "--no-color")
    return parser
