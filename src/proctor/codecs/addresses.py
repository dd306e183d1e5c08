"""Phone numbers and other addresses of people, in a form that can be compared."""

from __future__ import annotations

import re

_LONGEST = 100_000
"""The maximum length of a list of recipients in characters."""
PHONE = re.compile(r"\+?[0-9][0-9 ().-]{2,30}")


def list_addresses(text: str) -> set[str]:
    """Return all possible recipients in a text, in comparable form: `Ann <ann@example.org>; bob@example.org`."""
    pieces = [text, *re.split(r"[,;]", text[:_LONGEST])]
    pieces += [piece.partition("<")[2].partition(">")[0] for piece in pieces[1:] if "<" in piece]
    return {fold_address(piece.strip()) for piece in pieces if piece.strip()}


def fold_address(address: str) -> str:
    """Return an address in comparable form: numbers without spaces and signs, everything in lower case."""
    return re.sub(r"[ ().-]", "", address) if PHONE.fullmatch(address) else address.strip().lower()
