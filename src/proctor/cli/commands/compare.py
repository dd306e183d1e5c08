"""`proctor compare [BASE] [CANDIDATE...]`"""

import argparse
import sys
from collections.abc import Iterator, Mapping

from proctor.actions.history.compare import RunComparison, compare, compare_axis
from proctor.actions.history.compare_several import (
    MOST_RUNS,
    ChangedGroup,
    describe_incomplete,
    describe_runs,
    join_comparisons,
    list_changed_cases,
    list_repeats_needed,
    split_by_cause,
)
from proctor.actions.workspace.gating import OF_TWO_RUNS, hold_against, list_missing, read_reasons
from proctor.actions.workspace.run_history import find_home
from proctor.batches.compare import compare_batches, is_batch
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output, append_summary
from proctor.cli.show.renderers import append_document, write_report
from proctor.cli.stored import RUN_HELP, choose_run, choose_two_runs
from proctor.errors import InputError
from proctor.model.json_values import write_document
from proctor.report.blocks.outcomes import KINDS, write_share
from proctor.report.builders.comparison import CaseRow, RunFigures, describe_chance, make_case_table, make_figure_table, make_run_table
from proctor.report.document.model import Block, Document, Listing, Paragraph, Section, Table, Text, Time, Tone
from proctor.report.document.model import Output as Medium
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import count_noun
from proctor.scoring.paired import LEAST_ALPHA
from proctor.scoring.statistics import SuiteStatistics
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
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="terminal, json, markdown or html (default: terminal)")
    add_flags(parser, "--output", "--home")
    parser.add_argument("--quiet", action="store_true", help="do not print which runs were chosen")
    add_flags(parser, "--no-color")
    options = parser.parse_args(arguments)
    if not LEAST_ALPHA <= options.alpha < 1:
        parser.error(f"--alpha: expected a number from {LEAST_ALPHA:g} to less than 1, found {options.alpha:g}")
    reasons = _read_gates(options.fail_on)
    several: list[str] = options.candidate
    if len(several) > 1:
        return _compare_several(options, parser, several, reasons)
    options.candidate = several[0] if several else None
    comparison = _compare(options, parser)
    with Output(options.output) as output:
        _write(comparison, options.format, output, no_color=options.no_color)
    if options.output is not None and not options.quiet:
        print(f"wrote {options.output}", file=sys.stderr)
    append_document(lambda kind: build_comparison(comparison, kind))
    if comparison.base_incomplete is not None or comparison.candidate_incomplete is not None:
        return Exit.INTERRUPTED
    return _decide(comparison, reasons)


def _compare_several(options: argparse.Namespace, parser: argparse.ArgumentParser, runs: list[str], reasons: tuple[str, ...]) -> int:
    if options.by is not None or options.format == "html" or len(runs) >= MOST_RUNS or any(map(is_batch, (options.base, *runs))):
        parser.error(
            f"more than two runs: up to {MOST_RUNS}, no batches, without --by and --format html (`proctor view` shows them in a browser)"
        )
    home = find_home(options.home)
    pairs = [choose_two_runs(home, options.base, word, quiet=options.quiet) for word in runs]
    joined = join_comparisons([compare(home, *pair, alpha=options.alpha) for pair in pairs])
    heads = [
        f"{entry.found.candidate.run_id}: p = {entry.adjusted_p:.2g} among {len(runs)} comparisons (Holm)" for entry in joined.comparisons
    ]
    texts = (f"{head}\n\n{_write_markdown(entry.found)}" for head, entry in zip(heads, joined.comparisons, strict=True))
    markdown = "\n".join(texts)
    with Output(options.output) as output:
        if options.format == "json":
            output.write(write_document(joined))
        elif options.format == "markdown":
            output.write_text(markdown)
        else:
            for head, entry in zip(heads, joined.comparisons, strict=True):
                output.write_text(f"{head}\n")
                _write(entry.found, "terminal", output, no_color=options.no_color)
    append_summary(lambda: markdown)
    if any(entry.found.base_incomplete is not None or entry.found.candidate_incomplete is not None for entry in joined.comparisons):
        return Exit.INTERRUPTED
    return max([_decide(entry.found, reasons) for entry in joined.comparisons])


def _compare(options: argparse.Namespace, parser: argparse.ArgumentParser) -> RunComparison:
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


def _read_gates(names: list[str]) -> tuple[str, ...]:
    """Return the reasons to fail for. Raises `InputError` for one that stored runs cannot show."""
    reasons = read_reasons(names)
    for reason in reasons:
        if reason not in OF_TWO_RUNS:
            raise InputError(
                f"--fail-on {reason} is about one run: give it to `proctor run` or `proctor check`; here: {', '.join(OF_TWO_RUNS)}"
            )
    return reasons


def _decide(comparison: RunComparison, reasons: tuple[str, ...]) -> Exit:
    fails = list_missing(comparison.unmet, comparison.lacking) if "missing" in reasons else []
    fails += hold_against(comparison.comparison, comparison.failing, comparison.base.run_id, reasons) if reasons else []
    for line in fails:
        print(f"failed on {to_one_line(line, 500)}", file=sys.stderr)
    return Exit.FAILED if fails else Exit.PASSED


def _write(comparison: RunComparison, format: str, output: Output, *, no_color: bool) -> None:
    if format == "json":
        output.write(write_document(comparison))
    else:
        write_report(output, format, lambda kind: build_comparison(comparison, kind), no_color=no_color)


def _write_markdown(comparison: RunComparison) -> str:
    from proctor.report.document.markdown import write_markdown  # only for a job summary

    return write_markdown(build_comparison(comparison, "markdown"))


MOST_CASES: Mapping[Medium, int] = {"terminal": 30, "markdown": 50, "html": 1000}
"""Cases of one group."""
_TONES: dict[str, Tone] = {"bad": "fail", "doubtful": "uncertain", "good": "pass", "plain": "skip"}


def build_comparison(comparison: RunComparison, output: Medium) -> Document:
    """Return the verdict, changed cases with reasons, worst first, and figures."""
    result = comparison.comparison
    incomplete = describe_incomplete(comparison)
    base, candidate = describe_runs(comparison)
    amounts = {"latency in ms": comparison.latency, "tokens": comparison.tokens, "cost": comparison.cost}
    return Document(
        name=_name_comparison(comparison) if output == "html" else comparison.candidate.suite_name or "suite",
        verdict=(KINDS[result.verdict] if not incomplete else "uncertain", result.verdict.replace("_", " ")),
        headline=describe_chance(result),
        about=(comparison.candidate.suite_name,) if output == "html" and comparison.candidate.suite_name else (),
        blocks=(
            # The runs first, as on the web page.
            *(
                [make_run_table(_list_runs(comparison))]
                if output == "html"
                else [Paragraph((Text(base, "code"), " → ", Text(candidate, "code")))]
            ),
            *(Paragraph((Text(line, limit=500),), tone="error") for line in incomplete),
            *([Listing(tuple((Text(line, limit=500),) for line in comparison.server_changes))] if comparison.server_changes else []),
            *_list_groups(comparison, output),
            *([] if output == "html" else [Section(("Figures",), (make_figure_table(result, amounts),))]),
            *_list_repeats(comparison),
        ),
    )


def _list_groups(comparison: RunComparison, output: Medium) -> Iterator[Block]:
    groups = list_changed_cases(comparison)
    for group in groups:
        title = Text(group.title.capitalize(), tone=_TONES[group.kind])
        yield Section(
            (title,), tuple(_list_causes(group, comparison, output)), about=f"{len(group.cases):,}", folded=group.title == "within chance"
        )
    if not groups:
        yield Paragraph(("No case changed.",))


def _list_causes(group: ChangedGroup, comparison: RunComparison, output: Medium) -> Iterator[Block]:
    """Return a table per cause with a heading, if any of them has several cases."""
    causes = split_by_cause(group.cases)
    if group.title == "within chance" or all(len(cases) == 1 for _, cases in causes):
        yield _make_table(group, comparison, output)
        return
    for cause, cases in causes:
        yield Paragraph((Text(cause or "Other reasons", "strong", limit=300), f" · {count_noun(len(cases), 'case')}"))
        yield _make_table(group._replace(cases=cases), comparison, output, cause)


def _make_table(group: ChangedGroup, comparison: RunComparison, output: Medium, cause: str = "") -> Table:
    """Return the cases of a group; a reason that the heading shows is not repeated."""
    counts = {change.case: (change.base, change.candidate) for change in comparison.comparison.changes}
    rows: list[CaseRow] = []
    for case in group.cases[: MOST_CASES[output]]:
        base, candidate = counts.get(case.case, (None, None))
        name = Text(case.case or "(no id)", "code", limit=120)
        rows.append(CaseRow(name=(name,), base=base, candidates=[candidate], reasons=[case.reason] if case.reason != cause else []))
    return make_case_table(group.slug, rows, rest=len(group.cases) - len(rows))


def _name_comparison(comparison: RunComparison) -> str:
    """Return the heading of the web page of the same comparison."""
    candidate, base = (header.title or header.suite_name or "suite" for header in (comparison.candidate, comparison.base))
    return f"{candidate}, compared with {base}" if comparison.candidate.title or comparison.base.title else candidate


def _list_runs(comparison: RunComparison) -> list[RunFigures]:
    result = comparison.comparison
    rows = zip((comparison.base, comparison.candidate), (result.base, result.candidate), (None, result), strict=True)
    return [
        RunFigures(
            name=(Text(header.title or header.run_id, "strong"),),
            about=(
                *((Time(header.started_at),) if header.started_at else ()),
                *((" · ", Text(header.run_id, "code")) if header.title else ()),
            ),
            counts=_count(statistics),
            comparison=shown_result,
            latency=comparison.latency,
            tokens=comparison.tokens,
            cost=comparison.cost,
        )
        for header, statistics, shown_result in rows
    ]


def _count(statistics: SuiteStatistics) -> dict[str, int]:
    return {"pass": statistics.passes, "fail": statistics.runs - statistics.passes}


def _list_repeats(comparison: RunComparison) -> Iterator[Section]:
    lines = [
        f"To detect a drop of {write_share(needed.drop)} with 80 % power, run every case {count_noun(needed.repeats or 0, 'time')}."
        for needed in list_repeats_needed(comparison)
    ]
    if lines:
        yield Section(("Repeats needed",), (Listing(tuple((line,) for line in lines)),))
