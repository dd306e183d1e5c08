"""`proctor list`"""

import msgspec

from proctor.actions.history import find_home, list_runs
from proctor.cli.exits import Exit
from proctor.cli.output import Output
from proctor.cli.parser import command_parser
from proctor.report.neutral import one_line


def run(arguments: list[str]) -> int:
    """List kept runs; returns the exit code."""
    parser = command_parser("list", "The runs that are kept, newest first.", ["proctor list", "proctor list --format json"])
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="terminal or json (default: terminal)")
    options = parser.parse_args(arguments)
    home = find_home(options.home)
    runs = list(list_runs(home))
    with Output(None) as output:
        if options.format == "json":
            output.write(msgspec.json.format(msgspec.json.encode(runs), indent=2) + b"\n")
            return Exit.PASSED
        if not runs:
            output.text(f"no runs in {home}\n")
            return Exit.NOTHING
        for kept in runs:
            counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(kept.counts.items())) or "nothing finished"
            state = "" if kept.ended == "completed" else f"  [{kept.ended or 'not ended'}]"
            output.text(
                f"{kept.header.run_id}  {one_line(kept.header.suite_name, 40)}  {one_line(kept.header.target, 30)}  {counts}{state}\n"
            )
    return Exit.PASSED
