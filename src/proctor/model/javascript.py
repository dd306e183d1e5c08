"""Numbers and texts as JavaScript's `JSON.stringify` writes them."""

from __future__ import annotations

import json
import re

# `json.dumps` would make such an encoder for every text.
_encode = json.JSONEncoder(ensure_ascii=False).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def quote_javascript_text(text: str) -> str:
    """Return a text in double quotes, escaped only where JSON demands it; half a surrogate pair is written as its number."""
    quoted = _encode(text)
    return quoted if quoted.isascii() else _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", quoted)


def write_javascript_number(value: float) -> str:
    """Return a finite double as JavaScript prints it: the fewest digits, `1e+21` from there on, `1e-7` below a millionth."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    # `repr` gives the same shortest digits; only the position of the point differs.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    tail = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if power > 0 else '-'}{abs(power)}"
