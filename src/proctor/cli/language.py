"""The language that reports for people are written in: the flag names it, else the variable; never the settings of the terminal.

A script that looks for a word in a report would otherwise depend on whose machine it runs on.
"""

from __future__ import annotations

import argparse
import os

from proctor.errors import InputError
from proctor.report.catalogue import DEFAULT, LANGUAGES, Catalogue, read_catalogue

VARIABLE = "PROCTOR_LANGUAGE"


def add_language_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of every command that shows results to people."""
    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        help=f"the language of --format terminal and html: {', '.join(LANGUAGES)} (default: {VARIABLE}, else {DEFAULT})",
    )


def read_language(given: str | None = None) -> str:
    """Return the language that was given, else the one that `PROCTOR_LANGUAGE` names, English without one.

    Raises `InputError` for one that there is not.
    """
    wanted = given or os.environ.get(VARIABLE) or DEFAULT
    if wanted not in LANGUAGES:
        raise InputError(f"{VARIABLE}: there is no language {wanted!r}; there are {', '.join(LANGUAGES)}")
    return wanted


def read_words(given: str | None = None) -> Catalogue:
    """Return the sentences of that language. Raises `InputError` as `read_language` does."""
    return read_catalogue(read_language(given))
