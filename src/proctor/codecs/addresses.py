"""Phone numbers and other addresses of people, which are written in many ways."""

from __future__ import annotations

import re

PHONE = re.compile(r"\+?[0-9][0-9 ().-]{2,30}")


def fold_address(address: str) -> str:
    """Return an address as it is compared: numbers without blanks and signs, everything in lower case."""
    return re.sub(r"[ ().-]", "", address) if PHONE.fullmatch(address) else address.strip().lower()
