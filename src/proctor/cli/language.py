"""The language that reports for people are written in."""

from __future__ import annotations

import os

from proctor.errors import InputError
from proctor.report.catalogue import DEFAULT, LANGUAGES

VARIABLE = "PROCTOR_LANGUAGE"


def read_language() -> str:
    """Return the language that `PROCTOR_LANGUAGE` names, English without one; raises `InputError` for one that there is not."""
    wanted = os.environ.get(VARIABLE) or DEFAULT
    if wanted not in LANGUAGES:
        raise InputError(f"{VARIABLE}: there is no language {wanted!r}; there are {', '.join(LANGUAGES)}")
    return wanted
