"""One file per command: parses its options, calls an action, shows the answer."""

from __future__ import annotations

import importlib
import keyword
from typing import Any


def load_command(name: str) -> Any:
    """Return the module of a command."""
    # `try` is a word of Python, which no module of ours can be called.
    return importlib.import_module(f"{__name__}.{name}_" if keyword.iskeyword(name) else f"{__name__}.{name}")
