"""Where a page of a list begins, and which runs it lists: for the data sources of screens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.service.runs.run import RunSearch

Record = Mapping[str, Any]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a page: a cursor, or a position counted from the newest row."""

    cursor: str | None = None
    position: int | None = None


EVERY_RUN = RunSearch()
FIRST = Place()
