"""`proctor show RUN`"""

import sys

import msgspec

from proctor.actions.workspace.run_history import TARGET, find_home, open_run, select_results
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, add_output_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import FORMATS
from proctor.cli.show.showing import Entries, add_pivot_flag, choose_shown_code, print_incomplete, show_run
from proctor.cli.stored import RUN_HELP, choose_run
from proctor.model.lazy_cases import map_sequence
from proctor.model.result import CaseResult, RunResult
from proctor.store.files.run_references import LATEST


def run(arguments: list[str]) -> int:
    """Show one stored run; returns the exit code."""
    parser = make_parser(
        "show",
        "Show one stored run in full.",
        ["proctor show latest", "proctor show latest --evidence -k refund", "proctor show @nightly --format json"],
    )
    parser.add_argument("run", metavar="RUN", nargs="?", default=LATEST, help=f"{RUN_HELP} (default: latest)")
    add_flags(parser, "--home")
    parser.add_argument("-k", metavar="EXPR", help="only cases whose id, name or tags match: 'refund and not slow'")
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="instead of the verdicts: the reader of each case's evidence, known and unknown parts, and its content "
        "(json, jsonl: in the result)",
    )
    add_output_flags(parser, FORMATS)
    add_pivot_flag(parser)
    options = parser.parse_args(arguments)
    home = find_home(options.home)
    result, entries = open_run(home, choose_run(home, options.run, quiet=options.quiet))
    if options.k:
        from proctor.decide.selection import compile_selection  # rarely needed

        result = select_results(result, compile_selection(options.k))
        if not result.cases and result.incomplete is None:
            print(f"nothing selected: no case of this run fits -k {options.k!r}", file=sys.stderr)
            return Exit.NOTHING
    if options.evidence and options.format == "terminal":
        _show_evidence(result, entries, output=options.output, no_color=options.no_color)
        print_incomplete(result)
        return choose_shown_code(result)
    if options.evidence:
        result = msgspec.structs.replace(result, cases=map_sequence(result.cases, lambda case: _add_evidence(case, entries)))
    show_run(
        result,
        format=options.format,
        output=options.output,
        no_color=options.no_color,
        entries=entries,
        pivot=options.pivot,
    )
    if options.format != "terminal" and not options.quiet:
        print_incomplete(result)
    return choose_shown_code(result)


def _show_evidence(result: RunResult, entries: Entries, *, output: str | None, no_color: bool) -> None:
    from proctor.cli.show.print_evidence import explain_entry, make_painter  # only for --evidence
    from proctor.report.words.wording import case_title

    with Output(output) as place:
        painter = make_painter(place, no_color=no_color)
        for case in result.cases:
            attempt = f" · attempt {case.attempt + 1:,}" if case.attempt else ""
            title = f"{case_title(case)[0]}{attempt} · {case.outcome.upper()}"
            lines = explain_entry(painter, title, entries.get((case.case.id, case.attempt)), TARGET)
            place.write_text("\n".join(lines) + "\n\n")


def _add_evidence(case: CaseResult, entries: Entries) -> CaseResult:
    entry = entries.get((case.case.id, case.attempt))
    return case if entry is None else msgspec.structs.replace(case, evidence=entry.evidence)
