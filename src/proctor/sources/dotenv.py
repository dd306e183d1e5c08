r"""Reads variables from `.env` files by the rules of the npm package `dotenv` 16, which MCPLab uses.

`NAME=value`, also with `export` before it or with `: ` in place of `=`; values may be in single, double or backward quotes, also over
several lines; in double quotes `\n` and `\r` are line breaks; `#` begins a comment outside of quotes. Nothing is interpolated. If a name is
repeated, the last value counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.sources.texts import read_bounded

DOTENV_FILE: Final = ".env"
LARGEST: Final = 1_000_000
"""Bytes of one file."""
_LINE: Final = re.compile(
    r"""^[^\S\n]*(?:export\s+)?([A-Za-z0-9_.-]+)(?:\s*=\s*?|:\s+?)"""
    r"""(\s*'(?:\\'|[^'])*'|\s*"(?:\\"|[^"])*"|\s*`(?:\\`|[^`])*`|[^#\r\n]+)?\s*(?:\#.*)?$""",
    re.MULTILINE,
)
_QUOTED: Final = re.compile(r"""^(['"`])([\s\S]*)\1$""", re.MULTILINE)


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables in the text of a `.env` file."""
    variables: dict[str, str] = {}
    for match in _LINE.finditer(text.replace("\r\n", "\n").replace("\r", "\n")):
        written = (match[2] or "").strip()
        value = _QUOTED.sub(r"\2", written)
        if written.startswith('"'):
            value = value.replace("\\n", "\n").replace("\\r", "\r")
        variables[match[1]] = value
    return variables


def with_dotenv(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Return the environment with the variables of `.env` files added: variables that are set win, then earlier files."""
    known = dict(environment)
    for file in dict.fromkeys(path.resolve() for path in files):
        data = read_bounded(file, LARGEST)
        if data is None:
            raise InputError(f"{file}: larger than {LARGEST // 1_000_000} MB, which no file of variables is")
        for name, value in parse_variables(data.decode("utf-8-sig", errors="replace")).items():
            known.setdefault(name, value)
    return known
