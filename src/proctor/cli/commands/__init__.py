"""One module per command: it parses the options, calls an action and shows the result."""

from __future__ import annotations

import importlib
import keyword
from typing import Any


def load_command(name: str) -> Any:
    """Return the module of a command."""
    # `try` is a Python keyword and cannot be a module name.
    return importlib.import_module(f"{__name__}.{name}_" if keyword.iskeyword(name) else f"{__name__}.{name}")
