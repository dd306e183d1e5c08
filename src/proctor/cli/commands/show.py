"""`proctor show RUN`"""

from proctor.actions.history import find_home, open_run
from proctor.cli.exits import Exit
from proctor.cli.parser import add_output_flags, command_parser
from proctor.cli.renderers import FORMATS
from proctor.cli.showing import show_run


def run(arguments: list[str]) -> int:
    """Show one kept run; returns the exit code."""
    parser = command_parser("show", "One kept run in full.", ["proctor show latest", "proctor show 20261115-0900 --format json"])
    parser.add_argument("run", metavar="RUN", help="the id of a run, the beginning of one, or 'latest'")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    add_output_flags(parser, FORMATS)
    options = parser.parse_args(arguments)
    result, entries = open_run(find_home(options.home), options.run)
    show_run(result, format=options.format, output=options.output, no_color=options.no_color, entries=entries)
    return Exit.PASSED
