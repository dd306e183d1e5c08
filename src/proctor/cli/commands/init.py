"""`proctor init [DIR]`"""

from __future__ import annotations

from proctor.actions.init import init
from proctor.cli.exits import Exit
from proctor.cli.parser import make_parser


def run(arguments: list[str]) -> int:
    """Write the starting files; returns the exit code."""
    parser = make_parser(
        "init",
        "Write a small commented suite, evidence to try it on, and a workspace file.",
        ["proctor init", "proctor init refund-suite"],
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where to write (default: here)")
    options = parser.parse_args(arguments)
    written = init(options.folder)
    for path in written:
        print(f"wrote {path}")
    print(f"\nnext: proctor check {written[0]} {written[1]}")
    return Exit.PASSED
