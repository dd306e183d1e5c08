"""Report formats with one interface: add results, then finish.

Streaming formats hold nothing (`jsonl`), a bounded number of failures (`terminal`), or spool results until the run has ended (`json`,
`csv`, `parquet`: `spooled_rows.py`); the others need the whole run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from proctor.cli.show.output import Output
from proctor.model.result import CaseResult, RunResult
from proctor.report.document.model import Document, Section
from proctor.report.document.model import Output as Kind
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import MARKS

FORMATS = ("terminal", "json", "jsonl", "junit", "sarif", "markdown", "html", "csv", "parquet")


class Renderer(Protocol):
    """Receives the results of a run one by one."""

    in_memory: Sequence[CaseResult]
    """The results that the renderer has in memory anyway, for the run result."""

    def add(self, result: CaseResult, /) -> None:
        """Add one result."""
        ...

    def finish(self, run: RunResult) -> None:
        """Write the rest at the end of the run."""
        ...


MOST_PARTS = 1000
"""Pieces of lines that are written together."""


class JsonLines:
    """One line per case as it ends."""

    in_memory: Sequence[CaseResult] = ()

    def __init__(self, output: Output) -> None:
        from proctor.report.data.json_text import CaseEncoder  # only for this format

        self._write = output.write
        self._encode_into = CaseEncoder().encode_into
        self._parts: list[bytes] = []
        # A pipe may have a waiting reader; a file is read when complete.
        self._most_parts = MOST_PARTS if output.is_file else 0

    def add(self, result: CaseResult) -> None:
        """Write the line, or buffer it."""
        parts = self._parts
        self._encode_into(parts, result, b"\n")
        if len(parts) > self._most_parts:
            self._flush()

    def _flush(self) -> None:
        lines = b"".join(self._parts)
        # Cleared before writing: an interrupt must not write them twice.
        self._parts.clear()
        self._write(lines)

    def finish(self, run: RunResult) -> None:
        """Write buffered lines."""
        self._flush()


class Terminal:
    """The terminal report."""

    in_memory: Sequence[CaseResult] = ()

    def __init__(self, output: Output, *, no_color: bool, pivot: Section | None = None) -> None:
        from proctor.report.builders.run import RunReport

        self._output, self._no_color = output, no_color
        self._report = RunReport("terminal")
        self._pivot = pivot
        self.add = self._report.add

    def finish(self, run: RunResult) -> None:
        """Write the whole report."""
        write_report(self._output, "terminal", lambda _: self._report.finish(run, self._pivot), no_color=self._no_color)


class Whole:
    """Formats that need the whole run."""

    def __init__(self, output: Output, render: Callable[[RunResult], str]) -> None:
        self._output = output
        self._render = render
        results: list[CaseResult] = []
        self.in_memory: Sequence[CaseResult] = results
        self.add = results.append

    def finish(self, run: RunResult) -> None:
        """Write the document."""
        self._output.write_text(self._render(run))


def make_renderer(format: str, output: Output, *, no_color: bool = False, pivot: Section | None = None) -> Renderer:
    """Return the renderer of a format; `pivot` is a table of pass rates that the terminal and Markdown show."""
    if format == "jsonl":
        return JsonLines(output)
    if format == "terminal":
        return Terminal(output, no_color=no_color, pivot=pivot)
    if format in ("csv", "parquet", "json"):
        from proctor.cli.show.spooled_rows import JsonRun, Table  # only for these formats

        return JsonRun(output) if format == "json" else Table(output, format)
    if format == "html":
        from proctor.report.html.report import render_html as render
    elif format == "markdown":
        from proctor.report.builders.run import render_markdown

        return Whole(output, lambda run: render_markdown(run, pivot))
    elif format == "sarif":
        from proctor.report.data.sarif import render_sarif as render
    else:
        from proctor.report.data.junit import render_junit as render
    return Whole(output, render)


def write_report(place: Output, format: str, build: Callable[[Kind], Document], *, no_color: bool) -> None:
    """Write a document for a terminal, as Markdown or as HTML; `build` makes it for that output."""
    if format == "html":
        from proctor.report.document.html import write_html  # one format at a time

        place.write_text(write_html(build("html")))
    elif format == "markdown":
        from proctor.report.document.markdown import write_markdown

        place.write_text(write_markdown(build("markdown")))
    else:
        from proctor.report.document.terminal import write_terminal

        place.write_text(write_terminal(build("terminal"), colour=wants_colour(place, no_color), width=find_width(place)))


def find_width(place: Output) -> int:
    """Return the width of a terminal, within limits; 100 for a file."""
    if not place.is_terminal:
        return 100
    from shutil import get_terminal_size  # with it come three compressors

    return max(60, min(get_terminal_size((100, 24)).columns, 120))


def wants_colour(output: Output, no_color: bool) -> bool:
    """Return whether to use colour: on a terminal, unless NO_COLOR is set."""
    return output.is_terminal and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_case(result: CaseResult) -> None:
    """Print one case and each of its assertions."""
    # Overwrite the progress line of a terminal.
    start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print("\n".join(f"{start}{line}" for line in describe_case(result)), file=sys.stderr)


def describe_case(result: CaseResult) -> list[str]:
    """Return the case on one line, and one line per assertion with the reason if it failed."""
    attempt = f" (attempt {result.attempt + 1})" if result.attempt else ""
    reason = f"  {to_one_line(result.reason, 300)}" if result.reason else ""
    lines = [f"{MARKS[result.outcome]} {to_one_line(result.case.id, 80) or '(no case)'}{attempt}{reason}"]
    for entry in result.assertions:
        verdict = entry.verdict.with_words()
        why = f": {to_one_line(verdict.reason, 300)}" if verdict.outcome != "pass" else ""
        lines.append(f"    {MARKS[verdict.outcome]} {to_one_line(entry.assertion.label or entry.assertion.check, 80)}{why}")
    return lines
