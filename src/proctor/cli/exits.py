"""Exit codes, with the meanings pytest gave them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of the process."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING = 5


class ParserDone(SystemExit):
    """The option parser has printed what was asked for, or what is wrong; any other `SystemExit` is that of somebody else's code."""
