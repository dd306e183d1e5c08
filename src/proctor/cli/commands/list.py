"""`proctor list`"""

from proctor.actions.workspace.run_history import StoredRun, find_home, list_runs
from proctor.cli.options.find_run import RUN_HELP
from proctor.cli.parser import make_parser
from proctor.cli.show.output import Output
from proctor.cli.signals.exit_codes import Exit
from proctor.model.json_values import write_document
from proctor.report.words.neutral import to_one_line

_MOST_TAGS = 8


def run(arguments: list[str]) -> int:
    """List kept runs; returns the exit code."""
    parser = make_parser(
        "list", "The runs that are kept, newest first.", ["proctor list", "proctor list @nightly", "proctor list --format json"]
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"only what this means, of a name or @TAG every run; {RUN_HELP}")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="terminal or json (default: terminal)")
    options = parser.parse_args(arguments)
    home = find_home(options.home)
    runs = list(list_runs(home, options.run))
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(runs))
            return Exit.PASSED
        if not runs:
            output.write_text(f"no runs in {home}\n")
            return Exit.NOTHING
        for kept in runs:
            output.write_text(describe_run(kept) + "\n")
    return Exit.PASSED


def describe_run(kept: StoredRun) -> str:
    """Return one run in one line; of a broken one, what is wrong with it."""
    if kept.header is None:
        return f"{kept.run_id}  {_describe_fault(kept.problem or 'it cannot be read')}"
    counted = [f"{number} {outcome}" for outcome, number in sorted(kept.counts.items())]
    counts = ", ".join(counted) or "nothing finished"
    ending = (kept.ended or "not_ended").replace("_", " ")
    told = [to_one_line(kept.header.suite_name, 40), to_one_line(kept.header.target, 30), counts]
    if kept.planned is not None and kept.finished < kept.planned:
        told.append(f"[incomplete: {kept.finished} of {kept.planned} attempts, {ending}]")
    elif kept.ended != "completed":
        told.append(f"[{ending}]")
    told += _describe_labels(kept)
    if kept.problem is not None:
        told.append(_describe_fault(kept.problem))
    return "  ".join([kept.run_id, *told])


def _describe_fault(problem: str) -> str:
    return f"broken: {to_one_line(problem, 200)}"


def _describe_labels(kept: StoredRun) -> list[str]:
    """Return what somebody called the run: its name, its tags, its note, and whether it is a baseline."""
    header = kept.header
    assert header is not None
    told = ["(baseline)"] if kept.is_baseline else []
    if header.name:
        told.append(f"name: {to_one_line(header.name, 60)}")
    if header.tags:
        told.append(" ".join(f"@{to_one_line(tag, 40)}" for tag in header.tags[:_MOST_TAGS]))
    if header.note:
        told.append(f"note: {to_one_line(header.note, 80)}")
    return told
