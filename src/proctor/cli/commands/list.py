"""`proctor list`"""

from proctor.actions.workspace.run_history import StoredRun, find_home, list_runs
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.stored import RUN_HELP
from proctor.model.json_values import write_document
from proctor.report.words.neutral import to_one_line

_MOST_TAGS = 8


def run(arguments: list[str]) -> int:
    """List stored runs; returns the exit code."""
    parser = make_parser("list", "Stored runs, newest first.", ["proctor list", "proctor list @nightly", "proctor list --format json"])
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"only matching runs; {RUN_HELP}")
    add_flags(parser, "--home", "--format")
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
        for stored in runs:
            output.write_text(describe_run(stored) + "\n")
    return Exit.PASSED


def describe_run(stored: StoredRun) -> str:
    """Return one run in one line, with its problem if it has one."""
    if stored.header is None:
        return f"{stored.run_id}  {_describe_fault(stored.problem or 'unreadable')}"
    counted = [f"{number} {outcome}" for outcome, number in sorted(stored.counts.items())]
    counts = ", ".join(counted) or "nothing finished"
    ending = (stored.ended or "not_ended").replace("_", " ")
    parts = [to_one_line(stored.header.suite_name, 40), to_one_line(stored.header.target, 30), counts]
    if stored.planned is not None and stored.finished < stored.planned:
        parts.append(f"[incomplete: {stored.finished} of {stored.planned} attempts, {ending}]")
    elif stored.ended != "completed":
        parts.append(f"[{ending}]")
    header = stored.header
    parts += ["(baseline)"] if stored.is_baseline else []
    parts += [f"name: {to_one_line(header.name, 60)}"] if header.name else []
    parts += [" ".join(f"@{to_one_line(tag, 40)}" for tag in header.tags[:_MOST_TAGS])] if header.tags else []
    parts += [f"note: {to_one_line(header.note, 80)}"] if header.note else []
    if stored.problem is not None:
        parts.append(_describe_fault(stored.problem))
    return "  ".join([stored.run_id, *parts])


def _describe_fault(problem: str) -> str:
    return f"broken: {to_one_line(problem, 200)}"
