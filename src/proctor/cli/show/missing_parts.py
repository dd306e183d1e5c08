"""Tells a part that is not installed from a module that is missing for another reason."""

from __future__ import annotations

import sys

from proctor.errors import MissingExtra


def explain_missing(error: ModuleNotFoundError, what: str, extra: str) -> MissingExtra:
    """Return what to install. Raises the error itself where no extra would bring the module: one of ours, or of Python on this system."""
    top = (error.name or "proctor").partition(".")[0]
    if top == "proctor" or top in sys.stdlib_module_names:
        raise error
    return MissingExtra(what, extra)
