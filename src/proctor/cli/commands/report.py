"""`proctor report RUN`"""

import sys

from proctor.actions.workspace.run_history import find_home, open_run
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.showing import add_pivot_flag, choose_shown_code, print_incomplete, show_run
from proctor.cli.stored import RUN_HELP, choose_run
from proctor.store.files.run_references import LATEST

ENDINGS = {
    "html": "html",
    "junit": "xml",
    "sarif": "sarif",
    "markdown": "md",
    "json": "json",
    "otlp": "otlp.jsonl",
    "csv": "csv",
    "parquet": "parquet",
}


def run(arguments: list[str]) -> int:
    """Write a report of a stored run; returns the exit code."""
    parser = make_parser(
        "report",
        "Write HTML, JUnit, SARIF, Markdown, JSON, CSV, Parquet or OpenTelemetry events (OTLP in lines of JSON) of a stored run.",
        ["proctor report latest", "proctor report latest --format junit --output results.xml", "proctor report latest --format otlp"],
    )
    parser.add_argument("run", metavar="RUN", nargs="?", default=LATEST, help=f"{RUN_HELP} (default: latest)")
    parser.add_argument("--format", choices=tuple(ENDINGS), default="html", metavar="FORMAT", help=f"{', '.join(ENDINGS)} (default: html)")
    parser.add_argument("--output", metavar="FILE", help="the output file (default: report.html or similar in this folder)")
    add_flags(parser, "--home")
    parser.add_argument("--quiet", action="store_true", help="do not print the output file")
    add_pivot_flag(parser)
    options = parser.parse_args(arguments)
    home = find_home(options.home)
    result, entries = open_run(home, choose_run(home, options.run, quiet=options.quiet))
    output = options.output or f"report.{ENDINGS[options.format]}"
    show_run(result, format=options.format, output=output, no_color=True, entries=entries, pivot=options.pivot)
    if not options.quiet:
        print(f"wrote {output}", file=sys.stderr)
    print_incomplete(result)
    return choose_shown_code(result)
