"""`--now`: the clock of every expression."""

from __future__ import annotations

import argparse

from proctor.errors import InputError


def add_now_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--now ISO`."""
    parser.add_argument("--now", metavar="ISO", help="the clock of every expression, instead of the evidence's own")


def require_moment(text: str) -> None:
    """Refuse a `--now` that is no date or time."""
    from proctor.expressions.moments import read_moment  # most commands have a clock of their own

    if read_moment(text) is None:
        raise InputError(f"--now {text!r} is no date or time; expected ISO 8601, for example 2026-11-15T09:00:00Z")
