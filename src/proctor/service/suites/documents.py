"""Parses suites sent to the service: text of any dialect, or JSON; problems have a place.

Parsing happens in a thread and is limited in size, since the sender controls the work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypedDict

from proctor.errors import InputError
from proctor.formats.suites import DIALECTS, read_suite
from proctor.model import problem as model
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.service.refusals import Refusal
from proctor.service.resource import show_row
from proctor.service.suites.mcplab import ALONE

LONGEST_DOCUMENT = 1_000_000
"""Characters of one document."""
_MOST_PROBLEMS = 100


_LARGE = 20_000
"""Characters from which documents are parsed one at a time."""
# One at a time: a parsed document takes a hundred times its size, and the process seldom returns that memory.
_LARGE_READER = ThreadPoolExecutor(1, thread_name_prefix="suite")


async def read_sent_suite(
    document: str | dict[str, Json] | list[Json],
    *,
    dialect: str | None = None,
    name: str | None = None,
    field: str = "document",
    library: Callable[[], object] = lambda: ALONE,
) -> tuple[Suite, str]:
    """Return the suite and the document as text. Raises `Refusal` with all problems.

    `field` is its field in the request; `library` returns the library for references of an MCPLab document.
    """
    if dialect is not None and dialect not in DIALECTS:
        close = nearest(dialect, DIALECTS)
        reason = f"expected one of {', '.join(DIALECTS)}" + (f"; nearest: {', '.join(close)}" if close else "")
        raise Refusal("VALIDATION_ERROR", "the dialect is unknown", fields={"dialect": [reason]})
    text = document if isinstance(document, str) else await asyncio.to_thread(_write_text, document)
    if text is None or len(text) > LONGEST_DOCUMENT:
        raise Refusal("VALIDATION_ERROR", "the document is too large", fields={field: [f"expected at most {LONGEST_DOCUMENT} characters"]})
    # PostgreSQL cannot store it, and no suite needs it.
    if "\0" in text:
        raise Refusal("VALIDATION_ERROR", "the document is invalid", fields={field: ["has a NUL character"]})
    try:
        # In a thread, since a large document takes long. Patterns are parsed in a separate process (`decisions/pattern_process.py`).
        read = partial(read_suite, text, dialect=dialect, name=name, library=library)
        pool = _LARGE_READER if len(text) > _LARGE else None
        suite = await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, read)
    except InputError as error:
        raise refusal_of(error, field) from None
    return suite, text


def _write_text(document: dict[str, Json] | list[Json]) -> str | None:
    """Return a document as indented text, or without indentation if that is too large; None if both are."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if len(text) > LONGEST_DOCUMENT:
        return None
    indented = json.dumps(document, ensure_ascii=False, indent=2)
    return indented if len(indented) <= LONGEST_DOCUMENT else text


class Problem(TypedDict):
    """A finding in a document."""

    message: str
    line: int | None
    column: int | None
    path: str
    level: str
    code: str | None
    expected: str | None
    nearest: list[str]
    hint: str | None


def shown_problems(problems: tuple[model.Problem, ...]) -> list[Problem]:
    """Return problems as JSON."""
    shown: list[Problem] = []
    for problem in problems[:_MOST_PROBLEMS]:
        own = {name: getattr(problem, name) for name in ("message", "level", "code", "expected", "hint")}
        place = {name: getattr(problem.origin, name) for name in ("line", "column", "path")}
        shown.append(show_row(Problem, {**own, **place}, nearest=list(problem.nearest)))
    return shown


def refusal_of(error: InputError, field: str, *, what: str = "the document") -> Refusal:
    """Return the refusal of an invalid document with all of its problems; `field` is its field in the request."""
    errors = tuple(problem for problem in error.problems if problem.level == "error")
    if not errors:
        return Refusal("VALIDATION_ERROR", f"{what} is invalid", fields={field: [str(error)]})
    texts: list[str] = []
    for problem in errors[:_MOST_PROBLEMS]:
        place = f"{problem.origin.line}:{problem.origin.column}: " if problem.origin.line is not None else ""
        close = f"; nearest: {', '.join(problem.nearest)}" if problem.nearest else ""
        texts.append(f"{place}{problem.message} (at {problem.origin.path}){close}")
    count = f"{len(errors)} problems" if len(errors) > 1 else "a problem"
    return Refusal("VALIDATION_ERROR", f"{what} has {count}", fields={field: texts}, problems=shown_problems(error.problems))
