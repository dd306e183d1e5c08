"""The keys of folders, `day=2026-10-01/model=small/part.parquet`, as Hive and Spark write them: columns that stand in no file."""

from __future__ import annotations

from urllib.parse import unquote

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands in the place of null."""


def read_folder_keys(path: str) -> dict[str, str]:
    """Return the keys of the folders that a file lies in; the innermost of two with one name."""
    found: dict[str, str] = {}
    for part in path.replace("\\", "/").split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key and value != _NULL:
            found[unquote(key)] = unquote(value)
    return found
