"""The columns of which tables are made, for SQLite and PostgreSQL alike."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()


class _Text(sa.TypeDecorator[str]):
    """Text that both databases can hold: PostgreSQL knows no NUL character, and no encoding knows half of a surrogate pair."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Return the same text, with a replacement character where one cannot be stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.encode("utf-8", errors="replace").decode().replace("\0", "\ufffd")


def make_table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    """Return a table of the service."""
    return sa.Table(name, METADATA, *columns)


def text_column(name: str, *, null: bool = False, **options: object) -> sa.Column[str]:
    """Return a column of text that both databases can hold."""
    return sa.Column(name, _Text, nullable=null, **options)  # type: ignore[arg-type]  # passed on as they are


def json_column(name: str) -> sa.Column[object]:
    """Return a column of JSON, null where there is none."""
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def integer_column(name: str, *, null: bool = False, default: int | None = None) -> sa.Column[int]:
    """Return a column of whole numbers, with what a row has that says nothing."""
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=None if default is None else str(default))


def boolean_column(name: str, *, default: bool = False) -> sa.Column[bool]:
    """Return a column of yes and no."""
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def timestamp_columns() -> tuple[sa.Column[str], sa.Column[str]]:
    """Return the columns that say when a row was made and last changed."""
    return text_column("created_at"), text_column("updated_at")
