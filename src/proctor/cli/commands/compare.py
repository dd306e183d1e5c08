"""`proctor compare [BASE] [CANDIDATE...]`"""

import argparse
import sys

from proctor.actions.history.compare import RunComparison, compare, compare_axis
from proctor.actions.history.compare_several import MOST_RUNS, join_comparisons
from proctor.actions.workspace.gating import OF_TWO_RUNS, hold_against, list_missing, read_reasons
from proctor.actions.workspace.run_history import find_home
from proctor.batches.compare import compare_batches, is_batch
from proctor.cli.options.find_run import RUN_HELP, choose_run, choose_two_runs
from proctor.cli.parser import make_parser
from proctor.cli.show.compare_text import describe_comparison, write_comparison
from proctor.cli.show.output import Output, append_summary
from proctor.cli.show.renderers import wants_colour
from proctor.cli.signals.exit_codes import Exit
from proctor.errors import InputError
from proctor.model.json_values import write_document
from proctor.report.words.neutral import to_one_line
from proctor.scoring.paired import LEAST_ALPHA
from proctor.store.files.run_references import LATEST

FORMATS = ("terminal", "json", "markdown", "html")


def run(arguments: list[str]) -> int:
    """Compare two stored runs; returns the exit code."""
    parser = make_parser(
        "compare",
        "Two stored runs side by side: regressed, improved, unchanged or too little data; a gate for CI.\n\n"
        "With one run, the baseline of its suite is the base; with none, the latest run is compared with its baseline. Of several runs "
        "each is compared with the first, and their p-values are adjusted for that (Holm). The folders of two "
        "batches are compared likewise: every trace is an attempt.",
        [
            "proctor compare",
            "proctor compare previous latest",
            "proctor compare small medium large",
            "proctor compare baseline @nightly --fail-on regression --format json",
            "proctor compare v1 v2 --format html --output comparison.html",
            "proctor compare checked-september checked-october",
        ],
    )
    parser.add_argument("base", metavar="BASE", nargs="?", help=f"the run to compare with (default: the baseline); {RUN_HELP}")
    parser.add_argument("candidate", metavar="CANDIDATE", nargs="*", help="the run or runs to evaluate (default: latest)")
    parser.add_argument("--by", metavar="AXIS=A,B", help="two columns of one run, instead of two runs: model=small,large of its matrix")
    parser.add_argument(
        "--fail-on",
        metavar="REASONS",
        action="append",
        default=[],
        help="exit 1 for a new-failure, a regression, or missing cases or evidence, by the rule of "
        "`run` and `check` (a list with commas; may be repeated)",
    )
    parser.add_argument("--alpha", type=float, default=0.05, metavar="P", help="the false-alarm rate (default: 0.05)")
    _add_output_flags(parser)
    options = parser.parse_args(arguments)
    if not LEAST_ALPHA <= options.alpha < 1:
        parser.error(f"--alpha: expected a number from {LEAST_ALPHA:g} to less than 1, found {options.alpha:g}")
    reasons = _read_gates(options.fail_on)
    several: list[str] = options.candidate
    if len(several) > 1:
        return _compare_several(options, parser, several, reasons)
    options.candidate = several[0] if several else None
    found = _compare(options, parser)
    with Output(options.output) as output:
        _write(found, options.format, output, colour=wants_colour(output, options.no_color))
    if options.output is not None and not options.quiet:
        print(f"wrote {options.output}", file=sys.stderr)
    append_summary(lambda: write_comparison(found))
    if found.base_incomplete is not None or found.candidate_incomplete is not None:
        return Exit.INTERRUPTED
    return _decide(found, reasons)


def _compare_several(options: argparse.Namespace, parser: argparse.ArgumentParser, words: list[str], reasons: tuple[str, ...]) -> int:
    """Compare several runs with the base, with p-values adjusted for their number."""
    if options.by is not None or options.format == "html" or len(words) >= MOST_RUNS or any(map(is_batch, (options.base, *words))):
        parser.error(
            f"more than two runs: up to {MOST_RUNS}, no batches, without --by and --format html (`proctor view` shows them in a browser)"
        )
    home = find_home(options.home)
    pairs = [choose_two_runs(home, options.base, word, quiet=options.quiet) for word in words]
    joined = join_comparisons([compare(home, *pair, alpha=options.alpha) for pair in pairs])
    heads = [
        f"{each.found.candidate.run_id}: p = {each.adjusted_p:.2g} among {len(words)} comparisons (Holm)" for each in joined.comparisons
    ]
    markdown = "\n".join(f"{head}\n\n{write_comparison(each.found)}" for head, each in zip(heads, joined.comparisons, strict=True))
    with Output(options.output) as output:
        if options.format == "json":
            output.write(write_document(joined))
        elif options.format == "markdown":
            output.write_text(markdown)
        else:
            for head, each in zip(heads, joined.comparisons, strict=True):
                output.write_text(f"{head}\n")
                _write(each.found, "terminal", output, colour=wants_colour(output, options.no_color))
    append_summary(lambda: markdown)
    if any(each.found.base_incomplete is not None or each.found.candidate_incomplete is not None for each in joined.comparisons):
        return Exit.INTERRUPTED
    return max([_decide(each.found, reasons) for each in joined.comparisons])


def _compare(options: argparse.Namespace, parser: argparse.ArgumentParser) -> RunComparison:
    """Compare two batches, two columns of one run, or two runs."""
    home = find_home(options.home)
    if options.by is not None and options.candidate is not None:
        parser.error("--by compares two columns of one run: name one run")
    if is_batch(options.base) or is_batch(options.candidate):
        if options.candidate is None or options.by is not None:
            parser.error("a batch is compared with another one: name the folders of two, without --by")
        return compare_batches(options.base, options.candidate, alpha=options.alpha)
    if options.by is not None:
        return compare_axis(home, choose_run(home, options.base or LATEST, quiet=options.quiet), options.by, alpha=options.alpha)
    base, candidate = choose_two_runs(home, options.base, options.candidate, quiet=options.quiet)
    return compare(home, base, candidate, alpha=options.alpha)


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="terminal, json, markdown or html (default: terminal)")
    parser.add_argument("--output", metavar="FILE", help="write the result to this file instead of standard output")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    parser.add_argument("--quiet", action="store_true", help="do not print which runs were chosen")
    parser.add_argument("--no-color", action="store_true", help="no colours, also on a terminal")


def _read_gates(given: list[str]) -> tuple[str, ...]:
    """Return the reasons to fail for. Raises `InputError` for one that stored runs cannot show."""
    reasons = read_reasons(given)
    for reason in reasons:
        if reason not in OF_TWO_RUNS:
            raise InputError(
                f"--fail-on {reason} is about one run: give it to `proctor run` or `proctor check`; here: {', '.join(OF_TWO_RUNS)}"
            )
    return reasons


def _decide(found: RunComparison, reasons: tuple[str, ...]) -> Exit:
    """Return the exit code, and print why it is not 0."""
    fails = list_missing(found.unmet, found.lacking) if "missing" in reasons else []
    fails += hold_against(found.comparison, found.failing, found.base.run_id, reasons) if reasons else []
    for line in fails:
        print(f"failed on {to_one_line(line, 500)}", file=sys.stderr)
    return Exit.FAILED if fails else Exit.PASSED


def _write(found: RunComparison, format: str, output: Output, *, colour: bool) -> None:
    if format == "json":
        output.write(write_document(found))
    elif format == "markdown":
        output.write_text(write_comparison(found))
    elif format == "html":
        from proctor.cli.show.compare_html import write_comparison_page  # only for this format

        output.write_text(write_comparison_page(found))
    else:
        output.write_text(describe_comparison(found, colour=colour))
