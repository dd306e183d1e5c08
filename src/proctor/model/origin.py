"""Where something was written: file, line, column and the path into the document."""

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a document. Lines and columns count from 1; `path` is spelled `$.cases[2].expect[0]`."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = "$"

    def __str__(self) -> str:
        """Return `file:line:column`, with the unknown parts left out."""
        parts = [self.file or "<input>"]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)


NOWHERE = Origin()
"""The origin of what was built in code rather than read from a file."""
