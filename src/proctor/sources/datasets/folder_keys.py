"""The keys of folders, `day=2026-10-01/model=small/part.parquet`, as Hive and Spark write them: columns that stand in no file."""

from __future__ import annotations

from urllib.parse import unquote

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands in the place of null."""


def read_folder_keys(path: str) -> dict[str, str | None]:
    """Return the keys of the folders that a file lies in, None for one that is null; the innermost of two with one name."""
    found: dict[str, str | None] = {}
    for part in path.replace("\\", "/").split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == _NULL else unquote(value)
    return found
