"""`proctor validate [PATH...]`"""

from __future__ import annotations

import sys

from proctor.actions.checking.validate import MOST_PROBLEMS, validate
from proctor.actions.workspace.suites import find_suites
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, add_trust_flag, make_parser
from proctor.cli.show.output import Output
from proctor.report.words.wording import count_noun


def run(arguments: list[str]) -> int:
    """Validate files and folders; returns the exit code."""
    parser = make_parser(
        "validate",
        "Read suites and evidence without running, and print every problem as file:line:column: message.",
        ["proctor validate suite.yaml", "proctor validate evals/ traces.jsonl"],
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="suite files, evidence files, or folders of them; - reads a suite from standard input (default: the suites of this folder)",
    )
    parser.add_argument("--evidence-format", metavar="NAME", help="read the paths as evidence of this format")
    parser.add_argument("--quiet", action="store_true", help="problems only, no summary")
    parser.add_argument("--no-color", action="store_true", help="no colours, also on a terminal; there are none here")
    add_flags(parser, "--dialect", "--home")
    add_trust_flag(parser, "read the files of data that it names outside its folder")
    options = parser.parse_args(arguments)
    paths = options.paths or [str(path) for path in find_suites()]
    if not options.paths and not options.quiet:
        print(f"suites: {', '.join(paths)}", file=sys.stderr)
    report = validate(paths, dialect=options.dialect, evidence_format=options.evidence_format, trust=options.trust)
    with Output(None) as output:
        for problem in report.problems:
            output.write_text(problem.render() + "\n")
        if len(report.problems) >= MOST_PROBLEMS:
            output.write_text(f"(only the first {MOST_PROBLEMS} problems are shown)\n")
    if not options.quiet:
        errors = sum(problem.level == "error" for problem in report.problems)
        warnings = len(report.problems) - errors
        line = f"{count_noun(report.suites, 'suite')} with {count_noun(report.cases, 'case')}"
        line += f", {count_noun(report.records, 'record')} of evidence"
        print(
            f"{line}: {count_noun(errors, 'problem')}, {count_noun(warnings, 'warning')}" if report.problems else f"{line}: no problems",
            file=sys.stderr,
        )
    return Exit.PASSED if report.sound else Exit.USAGE
