"""Shows a finished run in whatever format was asked for, and chooses the exit code."""

import sys
from collections.abc import Mapping

from proctor.cli.exits import Exit
from proctor.cli.output import Output
from proctor.cli.renderers import make_renderer
from proctor.model.result import RunResult, Unmet
from proctor.model.run import RunEntry

Entries = Mapping[tuple[str, int], RunEntry]


def show_run(run: RunResult, *, format: str, output: str | None, no_color: bool, entries: Entries | None = None) -> None:
    """Write the run; `entries` hold what only some formats show: conversations, traces, times."""
    with Output(output) as place:
        if format == "html":
            from proctor.report.html import render_html  # only this format needs it

            place.write_text(render_html(run, entries))
            return
        if format == "otlp":
            from proctor.report.evaluation_events import render_otlp  # as above

            for line in render_otlp(run, entries or {}):
                place.write(line)
            return
        render = make_renderer(format, place, no_color=no_color)
        for result in run.cases:
            render.add(result)
        render.finish(run)


def write_markdown(run: RunResult) -> str:
    """Return the run as Markdown, for a job summary."""
    from proctor.report.markdown import render_markdown  # only a job summary needs it

    return render_markdown(run)


def choose_exit_code(run: RunResult, *, strict: bool = False) -> int:
    """Return the exit code for the outcome of a run; `strict` wants every case and every record to have met."""
    if run.incomplete is not None:
        return Exit.INTERRUPTED
    if strict and run.unmet.any:
        return Exit.USAGE
    if run.outcome == "skip":
        return Exit.NOTHING
    return Exit.PASSED if run.outcome == "pass" else Exit.FAILED


def choose_shown_code(run: RunResult) -> int:
    """Return the exit code for having shown a run: success whatever its outcome, unless a part of the run is missing."""
    return Exit.PASSED if run.incomplete is None else Exit.INTERRUPTED


def print_unmet(run: RunResult) -> None:
    """Say on standard error what is missing of the run, and which cases and records did not meet, for formats that cannot tell it."""
    print_incomplete(run)
    if run.unmet != Unmet():
        from proctor.report.wording import unmet_words  # most runs have nothing to say here

        print(unmet_words(run.unmet), file=sys.stderr)


def print_incomplete(run: RunResult) -> None:
    """Say on standard error how much there is of a run that is not all there."""
    if run.incomplete is not None:
        from proctor.report.wording import incomplete_words  # most runs are all there

        print(incomplete_words(run.incomplete), file=sys.stderr)
