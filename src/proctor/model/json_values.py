"""Functions for any JSON value."""

from __future__ import annotations

import json
import math
import re
from typing import Final, TypeGuard

import msgspec

from proctor.model.evidence import Json

# --- numbers and texts as JavaScript's `JSON.stringify` writes them

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


# ---


# --- the value that is not there, as opposed to null


class Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
"""Marks an absent key, index or argument."""

# ---


# --- numbers as JSON has them: whole ones can be larger than any that Python's floats hold, and asking those raises an error


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Return whether a number is one that a double can hold: no infinity, no NaN, and no whole number beyond."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def read_digits(text: str | None, most: int) -> int | None:
    """Return the number that a text of up to `most` digits is; None for any other text."""
    # `isdigit` alone is also true of `²`, which `int` refuses.
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= most else None


def to_whole_number(value: Json) -> Json:
    """Return `3.0` as `3`, and anything else as it is."""
    # Beyond 2**53 a float does not name one integer any more, and stays as it is.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def to_whole_numbers(value: Json) -> Json:
    """Return a document with its numbers as JavaScript writes them: `3.0` as `3`."""
    if isinstance(value, dict):
        return {key: to_whole_numbers(member) for key, member in value.items()}
    return [to_whole_numbers(item) for item in value] if isinstance(value, (list, tuple)) else to_whole_number(value)


_encode_plain = msgspec.json.Encoder(order=None).encode


def write_as_text(value: Json) -> str:
    """Return a text as it is, and anything else as compact JSON. Raises `UnicodeEncodeError` for half a character."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def drop_nulls(value: Json) -> Json:
    """Return a value without the members that are null, at every depth."""
    if isinstance(value, dict):
        return {key: drop_nulls(member) for key, member in value.items() if member is not None}
    return [drop_nulls(member) for member in value] if isinstance(value, list) else value


def join_surrogates(text: str) -> str:
    """Return a text that can be written: two halves of a character side by side become one, and a lone half becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_strangers(value: object) -> bytes:
    """Encode a value that may hold text no UTF-8 can carry (half of a surrogate pair, which is then written as its escape)."""
    try:
        return _encode_plain(value)
    except UnicodeEncodeError:
        from json import dumps  # only such text needs it

        return dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def write_document(value: object) -> bytes:
    """Return a value as a JSON document for people, its texts may be anybody's: indented, with a line break at its end."""
    return indent_json(encode_strangers(value)) + b"\n"


def indent_json(data: bytes) -> bytes:
    """Return JSON in lines."""
    try:
        return msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:
        from json import dumps, loads  # msgspec does not take the escape of half a character

        return dumps(loads(data), indent=2).encode()
