"""Patterns that are compiled when they are first used.

A command imports many modules and uses few of their patterns. Compiling all of them takes a tenth of the time of a small `proctor check`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Acts as a compiled pattern. Its methods are those of the pattern, which the first use compiles."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # `re` remembers the compiled pattern. The method becomes an attribute here, so that later calls do not come this way.
        method = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, method)
        return method


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` would, compiled on first use."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
