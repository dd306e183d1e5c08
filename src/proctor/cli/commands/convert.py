"""`proctor convert FILE --to FORMAT`"""

from __future__ import annotations

import sys

from proctor.actions.checking.convert import FORMATS, convert
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output


def run(arguments: list[str]) -> int:
    """Convert one suite; returns the exit code."""
    parser = make_parser(
        "convert",
        "Write a suite of any dialect in the native format, or in that of another dialect. The written suite gives the same verdicts;\n"
        "what the format cannot express is listed with its place, and nothing is written.",
        [
            "proctor convert evals/orders.yaml",
            "proctor convert mibo-tests.json --output suite.yaml",
            "proctor convert suite.yaml --to mibo",
        ],
    )
    parser.add_argument("file", metavar="FILE", help="a suite file, or a folder of suites; - reads one from standard input")
    parser.add_argument("--to", choices=FORMATS, default="native", help="the format to write (default: native)")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    parser.add_argument("--quiet", action="store_true", help="no warnings on standard error")
    add_flags(parser, "--dialect", "--home")
    options = parser.parse_args(arguments)
    text, warnings = convert(options.file, dialect=options.dialect, to=options.to)
    if not options.quiet:
        for problem in warnings:
            print(problem.render(), file=sys.stderr)
    with Output(options.output) as output:
        output.write_text(text)
    return Exit.PASSED
