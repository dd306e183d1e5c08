"""Suites that are sent to the service: text of any dialect, or JSON; every problem told with its place.

Reading a document is work that the sender decides about, so it is done beside the event loop and its size is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from proctor.errors import InputError
from proctor.formats.suites import DIALECTS, read_suite
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import nearest
from proctor.service.refusals import Refusal
from proctor.service.suites.mcplab_library import ALONE

LONGEST_DOCUMENT = 1_000_000
"""Characters of one document."""
_MOST_PROBLEMS = 100


_LARGE = 20_000
"""Characters of a document from which on it waits for its turn to be read."""
# One at a time: read, a document takes a hundred times its size, and what many of them took at once stays with the process.
_LARGE_READER = ThreadPoolExecutor(1, thread_name_prefix="suite")


async def read_sent_suite(
    document: str | dict[str, Json] | list[Json],
    *,
    dialect: str | None = None,
    name: str | None = None,
    field: str = "document",
    library: Callable[[], object] = lambda: ALONE,
) -> tuple[Suite, str]:
    """The suite, and the document as text; refused with every problem when it cannot be used.

    `field` is where it stood in the request; `library` gives what the references of an MCPLab document refer to.
    """
    if dialect is not None and dialect not in DIALECTS:
        close = nearest(dialect, DIALECTS)
        told = f"expected one of {', '.join(DIALECTS)}" + (f"; nearest: {', '.join(close)}" if close else "")
        raise Refusal("VALIDATION_ERROR", "the dialect is unknown", fields={"dialect": [told]})
    text = document if isinstance(document, str) else await asyncio.to_thread(_write_text, document)
    if text is None or len(text) > LONGEST_DOCUMENT:
        raise Refusal("VALIDATION_ERROR", "the document is too large", fields={field: [f"expected at most {LONGEST_DOCUMENT} characters"]})
    # PostgreSQL cannot keep it, and no format of a suite needs it.
    if "\0" in text:
        raise Refusal("VALIDATION_ERROR", "the document cannot be used", fields={field: ["has a NUL character"]})
    try:
        # In a thread, since a large document takes long. Its patterns are read in a process of their own (`decisions/pattern_process.py`).
        read = partial(read_suite, text, dialect=dialect, name=name, library=library)
        pool = _LARGE_READER if len(text) > _LARGE else None
        suite = await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, read)
    except InputError as error:
        raise refusal_of(error, field) from None
    return suite, text


def _write_text(document: dict[str, Json] | list[Json]) -> str | None:
    """Return a document as text that people read, without indentation where that alone makes it too large; None when even so it is."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if len(text) > LONGEST_DOCUMENT:
        return None
    indented = json.dumps(document, ensure_ascii=False, indent=2)
    return indented if len(indented) <= LONGEST_DOCUMENT else text


def shown_problems(problems: tuple[Problem, ...]) -> list[dict[str, Json]]:
    """Findings as they go over the wire."""
    return [
        {
            "message": problem.message,
            "line": problem.origin.line,
            "column": problem.origin.column,
            "path": problem.origin.path,
            "level": problem.level,
            "code": problem.code,
            "expected": problem.expected,
            "nearest": list(problem.nearest),
            "hint": problem.hint,
        }
        for problem in problems[:_MOST_PROBLEMS]
    ]


def refusal_of(error: InputError, field: str, *, what: str = "the document") -> Refusal:
    """The refusal for something a caller wrote, with every problem in it; `what` it is, and the field of the request it stood in."""
    errors = tuple(problem for problem in error.problems if problem.level == "error")
    if not errors:
        return Refusal("VALIDATION_ERROR", f"{what} cannot be used", fields={field: [str(error)]})
    told: list[str] = []
    for problem in errors[:_MOST_PROBLEMS]:
        place = f"{problem.origin.line}:{problem.origin.column}: " if problem.origin.line is not None else ""
        close = f"; nearest: {', '.join(problem.nearest)}" if problem.nearest else ""
        told.append(f"{place}{problem.message} (at {problem.origin.path}){close}")
    count = f"{len(errors)} problems" if len(errors) > 1 else "a problem"
    return Refusal("VALIDATION_ERROR", f"{what} has {count}", fields={field: told}, problems=shown_problems(error.problems))
