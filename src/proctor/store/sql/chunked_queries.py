"""Runs one statement for many rows, in the fewest steps.

SQLAlchemy looks at every value of every row on its way to the driver, which costs more than the database does. Here the statement is
compiled once and rows go to the driver as they are, so their values must be ones it takes: texts that went through `clean_text`, numbers,
bytes, None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json


class BulkStatement:
    """A statement that is run for many rows. `names` are the parameters that every row has; the statement has no others."""

    def __init__(self, statement: sa.sql.Executable, names: Sequence[str]) -> None:
        self._statement = statement
        self._names = list(names)
        self._known: dict[str, tuple[str, Any]] = {}

    async def run(self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each row."""
        if not rows:
            return
        text, values = self._compile_for(connection.dialect)
        await connection.exec_driver_sql(text, [values(row) for row in rows])

    def _compile_for(self, dialect: sa.Dialect) -> tuple[str, Any]:
        # By dialect: the statement is a constant of its module, and one process may have databases of both kinds open.
        known = self._known.get(dialect.name)
        if known is None:
            compiled: Any = self._statement.compile(dialect=dialect, column_keys=self._names)  # type: ignore[attr-defined]  # all have it
            known = self._known[dialect.name] = (str(compiled), itemgetter(*compiled.positiontup))
        return known


def clean_text(text: str) -> str:
    """Return text that both databases take: without NUL characters and halves of surrogate pairs."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", errors="replace").decode().replace("\0", "\ufffd")


def clean_json(value: Json) -> Json:
    """Return JSON that both databases can look into, by the same rules."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(name): clean_json(member) for name, member in value.items()}
        case list():
            return [clean_json(member) for member in value]
        case _:
            return value
