"""`proctor compare BASE CANDIDATE`"""

import msgspec

from proctor.actions.compare import RunComparison, compare
from proctor.actions.history import find_home
from proctor.cli.compare_markdown import describe_incomplete, write_comparison
from proctor.cli.exits import Exit
from proctor.cli.output import Output
from proctor.cli.parser import make_parser
from proctor.cli.step_summary import append_summary
from proctor.report.neutral import to_one_line
from proctor.scoring.amounts import AmountChange
from proctor.scoring.paired import LEAST_ALPHA

MOST_CASES = 30
FORMATS = ("terminal", "json", "markdown")
GATES = ("regression", "new-failure")


def run(arguments: list[str]) -> int:
    """Compare two kept runs; returns the exit code."""
    parser = make_parser(
        "compare",
        "Two kept runs side by side: regressed, improved, unchanged or too little data; a gate for CI.",
        ["proctor compare 20261115-0900 latest", "proctor compare main latest --fail-on regression --format json"],
    )
    parser.add_argument("base", metavar="BASE", help="the run to compare with: an id, the beginning of one, or 'latest'")
    parser.add_argument("candidate", metavar="CANDIDATE", help="the run to judge")
    parser.add_argument("--fail-on", choices=GATES, action="append", default=[], help="exit 1 on this; may be repeated")
    parser.add_argument("--alpha", type=float, default=0.05, metavar="P", help="the chance of a false alarm (default: 0.05)")
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="terminal, json or markdown (default: terminal)")
    parser.add_argument("--output", metavar="FILE", help="write the result there instead of to standard output")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    options = parser.parse_args(arguments)
    if not LEAST_ALPHA <= options.alpha < 1:
        parser.error(f"--alpha: expected a number from {LEAST_ALPHA:g} to less than 1, found {options.alpha:g}")
    found = compare(find_home(options.home), options.base, options.candidate, alpha=options.alpha)
    with Output(options.output) as output:
        if options.format == "json":
            output.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        elif options.format == "markdown":
            output.write_text(write_comparison(found))
        else:
            output.write_text(_describe_comparison(found))
    append_summary(lambda: write_comparison(found))
    if found.base_incomplete is not None or found.candidate_incomplete is not None:
        return Exit.INTERRUPTED
    comparison = found.comparison
    regressed = "regression" in options.fail_on and comparison.verdict == "regressed"
    newly_failing = "new-failure" in options.fail_on and comparison.newly_failing
    return Exit.FAILED if regressed or newly_failing else Exit.PASSED


def _describe_comparison(found: RunComparison) -> str:
    comparison = found.comparison
    low, high = comparison.interval.low, comparison.interval.high
    change = f"change {comparison.effect:+.1%}, {low:+.1%} to {high:+.1%}, p {comparison.p_value:.3g}"
    lines = [
        f"{found.base.run_id}  ->  {found.candidate.run_id}",
        "",
        *describe_incomplete(found),
        f"{comparison.verdict.replace('_', ' ').upper()}  {comparison.reason}",
        f"  pass rate  {comparison.base_rate:.1%} -> {comparison.candidate_rate:.1%} over {comparison.cases} cases  ({change})",
        f"  latency    {_describe_amount(found.latency, 'ms')}",
        f"  tokens     {_describe_amount(found.tokens, '')}",
    ]
    for title, cases in (
        ("newly failing", comparison.newly_failing),
        ("newly passing", comparison.newly_passing),
        ("flaky in the candidate", comparison.candidate.flaky),
        ("only in the base", comparison.only_in_base),
        ("only in the candidate", comparison.only_in_candidate),
    ):
        if cases:
            more = f" and {len(cases) - MOST_CASES} more" if len(cases) > MOST_CASES else ""
            lines.append(f"  {title}: {', '.join(to_one_line(case, 80) for case in cases[:MOST_CASES])}{more}")
    for needed in comparison.repeats_needed:
        if needed.repeats is not None:
            lines.append(f"  to see a drop of {needed.drop:.0%} four times out of five: {needed.repeats} repeats of each case")
    return "\n".join(lines) + "\n"


def _describe_amount(change: AmountChange, unit: str) -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return "not recorded"
    interval = f", {change.interval.low:.2f} to {change.interval.high:.2f}" if change.interval is not None else ""
    return (
        f"{change.base_median:.0f} -> {change.candidate_median:.0f} {unit}".rstrip()
        + f"  (ratio {change.ratio:.2f}{interval}: {change.verdict.replace('_', ' ')})"
    )
