"""Report formats with one interface: add results, then finish.

Streaming formats keep nothing (`jsonl`), a bounded number of failures (`terminal`), or put results aside until the run has ended (`json`,
`csv`, `parquet`: `put_aside.py`); the others need the whole run.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable
from typing import Protocol

from proctor.cli.show.output import Output
from proctor.model.result import CaseResult, RunResult
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import MARKS

FORMATS = ("terminal", "json", "jsonl", "junit", "markdown", "html", "csv", "parquet")


class Renderer(Protocol):
    """Takes results one by one."""

    def add(self, result: CaseResult, /) -> None:
        """Take one result."""
        ...

    def list_held(self) -> list[CaseResult]:
        """Return the results held in memory, for the run result."""
        ...

    def finish(self, run: RunResult) -> None:
        """Write the rest at the end of the run."""
        ...


MOST_PARTS = 1000
"""Pieces of lines that are written together."""


class JsonLines:
    """One line per case as it ends."""

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

    def list_held(self) -> list[CaseResult]:
        """Return nothing: lines are written immediately."""
        return []

    def finish(self, run: RunResult) -> None:
        """Write buffered lines."""
        self._flush()


class Terminal:
    """The terminal report."""

    def __init__(self, output: Output, *, colour: bool) -> None:
        from proctor.report.text.terminal import TerminalReport

        self._output = output
        width = shutil.get_terminal_size((100, 24)).columns if output.is_terminal else 100
        self._report = TerminalReport(colour=colour, width=max(60, min(width, 120)))
        self.add = self._report.add

    def list_held(self) -> list[CaseResult]:
        """Return nothing: the report holds a limited number of failures."""
        return []

    def finish(self, run: RunResult) -> None:
        """Write the whole report."""
        self._output.write_text(self._report.finish(run))


class Whole:
    """Formats that need the whole run."""

    def __init__(self, output: Output, render: Callable[[RunResult], str]) -> None:
        self._output = output
        self._render = render
        self._results: list[CaseResult] = []
        self.add = self._results.append

    def list_held(self) -> list[CaseResult]:
        """Return every result."""
        return self._results

    def finish(self, run: RunResult) -> None:
        """Write the document."""
        self._output.write_text(self._render(run))


_WHOLE = {
    "junit": ("proctor.report.data.junit", "render_junit"),
    "markdown": ("proctor.report.text.markdown", "render_markdown"),
}


def make_renderer(format: str, output: Output, *, no_color: bool = False) -> Renderer:
    """Return the renderer of a format."""
    if format == "jsonl":
        return JsonLines(output)
    if format == "terminal":
        return Terminal(output, colour=wants_colour(output, no_color))
    if format in ("csv", "parquet", "json"):
        from proctor.cli.show.spooled_rows import JsonRun, Table  # only for these formats

        return JsonRun(output) if format == "json" else Table(output, format)
    if format == "html":
        from proctor.report.html.report import render_html

        return Whole(output, render_html)
    module, name = _WHOLE[format]
    return Whole(output, getattr(importlib.import_module(module), name))


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
