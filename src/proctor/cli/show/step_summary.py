"""Appends Markdown to the summary that GitHub shows beside a job, in the file that `GITHUB_STEP_SUMMARY` names.

Only where `GITHUB_ACTIONS` says that this is GitHub. A summary that cannot be written is worth a warning and nothing else: the exit code
says how the run went. Where standard output already goes to that file (`--format markdown >> "$GITHUB_STEP_SUMMARY"`) nothing is added.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from proctor.cli.show.output import get_standard_output


def is_on_github(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is a job of GitHub."""
    return environment.get("GITHUB_ACTIONS") == "true"


def find_summary_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file to append to; None where none is wanted."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    return path if path and is_on_github(environment) and not _is_output(path) else None


def append_summary(text: Callable[[], str], file: str | None = None) -> None:
    """Append what `text` gives to the job's summary, if there is one, and to `file`; it is asked for only then."""
    for path in filter(None, (find_summary_file(), file)):
        _append(path, text)


def _append(path: str, text: Callable[[], str]) -> None:
    # Half a pair of surrogates may come from anywhere; a summary with a question mark is better than none.
    content = f"{text().rstrip()}\n\n".encode("utf-8", "replace")
    try:
        with open(path, "ab") as file:
            file.write(content)
    except OSError as error:
        print(f"warning: the job summary {path!r} cannot be written: {error.strerror or error}", file=sys.stderr)


def _is_output(path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(get_standard_output().fileno()), os.stat(path))
    except (OSError, ValueError, AttributeError):
        # No such file yet, or standard output is closed or no file at all.
        return False
