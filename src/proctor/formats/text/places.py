r"""Lines and columns of a text, the way editors count them.

A line ends at `\n`, `\r\n` or `\r` and nowhere else: `U+2028`, form feeds and the other characters that `str.splitlines`
breaks at are ordinary text in a suite. Lines and columns count from 1, columns in characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right

LINE_END = re.compile(r"\r\n|\n|\r")


class Places:
    """The lines of one text, to turn offsets into positions."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._starts = [0]
        self._ends: list[int] = []
        for end in LINE_END.finditer(text):
            self._ends.append(end.start())
            self._starts.append(end.end())
        self._ends.append(len(text))

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset; past the end counts as the end."""
        offset = min(offset, self._length)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def measure_width(self, start: int, end: int) -> int:
        """Return how many characters from `start` to `end` stand on the line of `start`; at least one."""
        line, _ = self.locate(start)
        return max(1, min(end, self._ends[line - 1]) - start)
