"""`proctor report RUN`"""

import sys

from proctor.actions.history import find_home, open_run
from proctor.cli.parser import make_parser
from proctor.cli.showing import choose_shown_code, print_incomplete, show_run

ENDINGS = {"html": "html", "junit": "xml", "markdown": "md", "json": "json", "otlp": "otlp.jsonl"}


def run(arguments: list[str]) -> int:
    """Write a report of a kept run; returns the exit code."""
    parser = make_parser(
        "report",
        "Write HTML, JUnit, Markdown, JSON or OpenTelemetry events (OTLP in lines of JSON) of a kept run.",
        ["proctor report latest", "proctor report latest --format junit --output results.xml", "proctor report latest --format otlp"],
    )
    parser.add_argument("run", metavar="RUN", help="the id of a run, the beginning of one, or 'latest'")
    parser.add_argument("--format", choices=tuple(ENDINGS), default="html", metavar="FORMAT", help=f"{', '.join(ENDINGS)} (default: html)")
    parser.add_argument("--output", metavar="FILE", help="where to write (default: report.html and so on, here)")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")
    parser.add_argument("--quiet", action="store_true", help="do not say where it was written")
    options = parser.parse_args(arguments)
    result, entries = open_run(find_home(options.home), options.run)
    output = options.output or f"report.{ENDINGS[options.format]}"
    show_run(result, format=options.format, output=output, no_color=True, entries=entries)
    if not options.quiet:
        print(f"wrote {output}", file=sys.stderr)
    print_incomplete(result)
    return choose_shown_code(result)
