"""`proctor demo`"""

from __future__ import annotations

from collections import Counter

from proctor.actions.help.demo import examples_folder, run_examples, write_examples
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import wants_colour
from proctor.report.builders.run import RunReport
from proctor.report.document.terminal import write_terminal


def run(arguments: list[str]) -> int:
    """Run the bundled examples; returns 0, since one case fails on purpose."""
    parser = make_parser(
        "demo",
        "A complete run on bundled examples, one per dialect. No network, no keys.",
        ["proctor demo", "proctor demo --files examples"],
    )
    add_flags(parser, "--no-color")
    parser.add_argument("--files", metavar="DIR", help="write the files of the examples there, one folder per dialect, and check nothing")
    options = parser.parse_args(arguments)
    if options.files is not None:
        print(f"wrote {len(write_examples(options.files))} files below {options.files}")
        return Exit.PASSED
    with Output(None) as output:
        colour = wants_colour(output, options.no_color)
        totals: Counter[str] = Counter()
        for suite, evidence, about, result in run_examples():
            totals.update(result.counts)
            report = write_terminal(RunReport("terminal").finish(result), colour=colour)
            output.write_text(f"── {about}\n   $ proctor check {suite} {evidence}\n\n{report}\n")
        counted = ", ".join(f"{count} {outcome}" for outcome, count in totals.items() if count)
        output.write_text(f"Five dialects, one engine: {counted}. The failing case is meant to fail.\n")
        output.write_text(
            f"The examples are in {examples_folder()}; `proctor demo --files DIR` copies them. `proctor init` writes your own suite.\n"
        )
    return Exit.PASSED
