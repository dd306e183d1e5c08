"""`proctor recheck RUN [--suite SUITE]`"""

from proctor.actions.history import find_home
from proctor.actions.recheck import recheck
from proctor.actions.suites import load_suite
from proctor.cli.parser import add_output_flags, add_suite_flags, command_parser
from proctor.cli.renderers import FORMATS
from proctor.cli.showing import exit_code, show_run


def run(arguments: list[str]) -> int:
    """Decide kept evidence again; returns the exit code."""
    parser = command_parser(
        "recheck",
        "Evaluate the kept evidence of a run again, with the suite it was started with or with another. No agent is called.",
        ["proctor recheck latest", "proctor recheck 20261115 --suite stricter.yaml"],
    )
    parser.add_argument("run", metavar="RUN", help="the id of a run, the beginning of one, or 'latest'")
    parser.add_argument("--suite", metavar="SUITE", help="another suite, instead of the one the run was started with")
    add_output_flags(parser, FORMATS)
    add_suite_flags(parser)
    options = parser.parse_args(arguments)
    suite = load_suite(options.suite, dialect=options.dialect) if options.suite else None
    result = recheck(find_home(options.home), options.run, suite)
    show_run(result, format=options.format, output=options.output, no_color=options.no_color)
    return exit_code(result)
