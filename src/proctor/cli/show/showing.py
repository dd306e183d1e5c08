"""Shows a finished run in the requested format, and chooses the exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from proctor.cli.exit_codes import Exit
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import Whole, make_renderer
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.report.document.model import Section

if TYPE_CHECKING:
    import argparse

Entries = Mapping[tuple[str, int], RunEntry]


PIVOT_FORMATS = ("terminal", "markdown", "html", "csv")
"""Formats that support a table of pass rates."""


def add_pivot_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of every command that shows a whole run."""
    parser.add_argument(
        "--pivot",
        metavar="TAG,TAG",
        help="a table of pass rates by these tags, the last as columns (default: the axes of the suite's matrix); "
        f"with --format {', '.join(PIVOT_FORMATS)}",
    )


def check_showing(suite: Suite, *, format: str, output: str | None, pivot: str | None) -> None:
    """Check before the run that it can be shown after it; raises `InputError`."""
    if pivot is not None:
        from proctor.report.builders.pivot import read_axes  # most runs have no such table

        _check_pivot_format(format)
        if suite.dialect != "mcplab":  # MCPLab agents become tags when the run is built
            read_axes(pivot, suite.cases)
    place = Output(output)
    place.probe()
    if format == "parquet":
        from proctor.cli.show.spooled_rows import Table  # only for this format

        Table(place, format)


def show_run(
    run: RunResult,
    *,
    format: str,
    output: str | None,
    no_color: bool,
    entries: Entries | None = None,
    pivot: str | None = None,
) -> None:
    """Write the run; `entries` contain conversations, traces and times. `pivot` names the axes of a table."""
    axes = _choose_axes(run, format, pivot)
    with Output(output) as place:
        if entries is not None and format in ("json", "jsonl", "terminal"):
            from proctor.report.blocks.exchange import add_exchanges  # only some formats show them

            # The terminal shows the exchange of failed cases only.
            run = add_exchanges(run, entries, only_failed=format == "terminal")
        if format == "html":
            from proctor.report.html.report import render_html

            place.write_text(render_html(run, entries, axes))
            return
        if format == "csv" and pivot is not None:
            from proctor.report.builders.pivot import build_pivot, write_pivot_csv  # rarely needed

            place.write_text(write_pivot_csv(build_pivot(run, axes)))
            return
        if format == "otlp":
            from proctor.report.data.evaluation_events import render_otlp  # rarely needed

            for line in render_otlp(run, entries or {}):
                place.write(line)
            return
        render = make_renderer(format, place, no_color=no_color, pivot=_make_pivot(run, axes, format))
        if format in ("csv", "parquet"):
            from proctor.cli.show.spooled_rows import Table  # only for these formats

            assert isinstance(render, Table)
            for result in run.cases:
                render.add(result, (entries or {}).get((result.case.id, result.attempt)))
        elif not isinstance(render, Whole):  # which reads the results of the run itself
            for result in run.cases:
                render.add(result)
        render.finish(run)


def _choose_axes(run: RunResult, format: str, pivot: str | None) -> tuple[str, ...]:
    from proctor.report.builders.pivot import find_matrix_axes, read_axes  # small, and most commands show no whole run

    if pivot is None:
        return find_matrix_axes(run)
    _check_pivot_format(format)
    return read_axes(pivot, (result.case for result in run.cases))


def _check_pivot_format(format: str) -> None:
    if format not in PIVOT_FORMATS:
        raise InputError(f"--pivot goes with --format {', '.join(PIVOT_FORMATS)}, not {format}")


def _make_pivot(run: RunResult, axes: tuple[str, ...], format: str) -> Section | None:
    if not axes or (format != "terminal" and format != "markdown"):
        return None
    from proctor.report.builders.pivot import build_pivot, make_pivot_section  # most runs have no such table

    return make_pivot_section(build_pivot(run, axes), format)


def write_markdown(run: RunResult) -> str:
    """Return the run as Markdown, for a job summary."""
    from proctor.report.builders.run import render_markdown  # only for a job summary

    return render_markdown(run)


def choose_exit_code(run: RunResult, *, strict: bool = False) -> int:
    """Return the exit code of a run; `strict` requires every case and record to match."""
    if run.incomplete is not None:
        return Exit.INTERRUPTED
    if strict and run.unmet.fails_strict:
        return Exit.USAGE
    if run.outcome == "skip":
        return Exit.NOTHING
    return Exit.PASSED if run.outcome == "pass" else Exit.FAILED


def choose_shown_code(run: RunResult) -> int:
    """Return the exit code of a shown run: success, unless part of the run is missing."""
    return Exit.PASSED if run.incomplete is None else Exit.INTERRUPTED


def print_unmet(run: RunResult) -> None:
    """Print missing results and unmatched cases and records to standard error, for formats that do not show them."""
    print_incomplete(run)
    if run.unmet.any or run.unmet.records_not_selected:
        from proctor.report.words.wording import unmet_words  # most runs have none

        print(unmet_words(run.unmet), file=sys.stderr)


def print_incomplete(run: RunResult) -> None:
    """Print how much of an incomplete run exists to standard error."""
    if run.incomplete is not None:
        from proctor.report.words.wording import incomplete_words  # most runs are complete

        print(incomplete_words(run.incomplete), file=sys.stderr)
