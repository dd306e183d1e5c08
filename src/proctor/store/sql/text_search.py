"""Looks for a text in columns; upper and lower case are one, in every script.

SQLite's own `lower` knows the letters of ASCII alone: `Ärger` would not be found, not even by that very word. There a function of ours is
used for texts with other letters; for the rest its own is faster.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from proctor.store.sql.chunked_queries import clean_text

_NAME = "lower_text"


class _LowerText(FunctionElement[str]):
    """A text in small letters."""

    type = sa.Text()
    inherit_cache = True


@compiles(_LowerText)
def _write_lower(element: _LowerText, compiler: SQLCompiler, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)})"


@compiles(_LowerText, "sqlite")
def _write_sqlite_lower(element: _LowerText, compiler: SQLCompiler, **options: Any) -> str:
    return f"{_NAME}({compiler.process(element.clauses, **options)})"


def contains_text(column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column holds a text, in whatever case."""
    low = clean_text(text).lower()
    held = sa.func.lower(column) if low.isascii() else _LowerText(column)
    return held.contains(low, autoescape=True)


def add_text_functions(connection: Any) -> None:
    """Tell a connection to SQLite the function that `contains_text` uses."""
    connection.create_function(_NAME, 1, _lower, deterministic=True)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value
