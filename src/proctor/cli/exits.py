"""Exit codes, with the meanings pytest gave them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the process says when it ends."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING = 5
