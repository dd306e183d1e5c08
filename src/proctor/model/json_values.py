"""Functions for any JSON value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeGuard

import msgspec

from proctor.model.evidence import Json
from proctor.model.lazy_pattern import lazy_pattern

# --- numbers and texts as JavaScript's `JSON.stringify` writes them

_SURROGATE = lazy_pattern("[\ud800-\udfff]")
_decode_any = msgspec.json.Decoder().decode


# Python's `strip` also removes U+001C to U+001F and U+0085, but not U+FEFF.
JAVASCRIPT_BLANKS: Final = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The characters that ECMAScript's `trim` removes."""


def quote_javascript_text(text: str) -> str:
    """Return a text in double quotes, escaped only where JSON requires it; a lone surrogate is written as its escape."""
    from json.encoder import encode_basestring  # slow to import

    quoted = encode_basestring(text)
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


class Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
"""Marks an absent key, index or argument."""


MAX_DEPTH = 256
"""The maximum nesting of lists and objects."""


class NotJson(ValueError):
    """A text that is not JSON, or is nested too deeply."""


def read_json(text: bytes | str) -> Json:
    """Return the value of a JSON text, at most `MAX_DEPTH` levels deep and without lone surrogates. Raises `NotJson`."""
    try:
        value = _decode_any(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise NotJson(str(error)) from None
    except RecursionError:
        raise NotJson(f"nested more than {MAX_DEPTH} levels deep") from None
    # Nesting needs brackets; most texts have few.
    brackets = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if brackets > MAX_DEPTH and exceeds_depth(value):
        raise NotJson(f"nested more than {MAX_DEPTH} levels deep")
    return value


def decode_embedded(text: bytes | str) -> Json | Missing:
    """Return the value of a JSON text, or `MISSING` if `read_json` raises `NotJson`."""
    try:
        return read_json(text)
    except NotJson:
        return MISSING


def exceeds_depth(value: Json, most: int = MAX_DEPTH) -> bool:
    """Return whether lists and objects are nested deeper than `most`; works level by level, so that no depth overflows the stack."""
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most + 1):
        below: list[Any] = []
        for item in level:
            # Nearly all members are texts, and this test costs half as much as the next one.
            for member in item.values() if isinstance(item, dict) else item:
                if type(member) is not str and isinstance(member, (dict, list)):
                    below.append(member)
        if not below:
            return False
        level = below
    return True


def equal(
    a: Json | Missing,
    b: Json | Missing,
    *,
    same: Callable[[Json, Json], bool] | None = None,
    spend: Callable[[int], object] | None = None,
) -> bool:
    """Return whether two JSON values are equal.

    Lists are ordered. A boolean never equals a number, text never equals a number; `1` equals `1.0`; integers of any size are exact; NaN
    equals nothing. `same` compares values that are neither list nor object, by default with `is_same_scalar`; `spend` counts every
    comparison of two parts. The stack is our own, so that any nesting can be compared.
    """
    same = same or is_same_scalar
    waiting: list[tuple[Json, Json]] = [(a, b)]
    met = PairsMet()
    while waiting:
        left, right = waiting.pop()
        if spend is not None:
            spend(1)
        if isinstance(left, dict):
            # The same number of members, and every member of one in the other: then neither has an extra one.
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            if met.add(left, right):
                continue
            for key, value in left.items():
                if key not in right:
                    return False
                waiting.append((value, right[key]))
        elif isinstance(left, (list, tuple)):
            if not isinstance(right, (list, tuple)) or len(left) != len(right):
                return False
            if not met.add(left, right):
                waiting.extend(zip(left, right, strict=True))
        elif not same(left, right):
            return False
    return True


def is_same_scalar(a: Json, b: Json) -> bool:
    """Return whether two values that are neither list nor object are equal."""
    # In Python `True == 1`; in JSON a boolean is not a number.
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


class PairsMet:
    """Pairs of lists or objects that were already compared, so that self-referencing Python values can be compared."""

    __slots__ = ("_pairs", "_until")

    def __init__(self) -> None:
        self._until = 5_000
        """The number of pairs that are not stored: ordinary values have fewer, and storing them would cost more than it saves."""
        self._pairs: set[tuple[int, int]] = set()

    def add(self, left: object, right: object) -> bool:
        """Add a pair and return whether it is a repetition. Both values stay alive, so that their ids stay unique."""
        if self._until:
            self._until -= 1
            return False
        pair = (id(left), id(right))
        if pair in self._pairs:
            return True
        self._pairs.add(pair)
        return False


# Integers in JSON can exceed the range of Python's floats, and converting those raises an error


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer without a decimal point; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Return whether a double can represent a number: no infinity, no NaN, and no larger integer."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def read_digits(text: str | None, most: int) -> int | None:
    """Return the number of a text with up to `most` digits; None for any other text."""
    # `isdigit` also accepts `²`, which `int` rejects.
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= most else None


def to_whole_number(value: Json) -> Json:
    """Return `3.0` as `3`, and any other value unchanged."""
    # Beyond 2**53 a float no longer identifies one integer, so it stays unchanged.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def to_whole_numbers(value: Json) -> Json:
    """Return a document with its numbers as JavaScript writes them: `3.0` as `3`."""
    if isinstance(value, dict):
        return {key: to_whole_numbers(member) for key, member in value.items()}
    return [to_whole_numbers(item) for item in value] if isinstance(value, (list, tuple)) else to_whole_number(value)


_encode_plain = msgspec.json.Encoder(order=None).encode


def write_as_text(value: Json) -> str:
    """Return a text unchanged, and any other value as compact JSON. Raises `UnicodeEncodeError` for a lone surrogate."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def drop_nulls(value: Json) -> Json:
    """Return a value without null members, at every depth."""
    if isinstance(value, dict):
        return {key: drop_nulls(member) for key, member in value.items() if member is not None}
    return [drop_nulls(member) for member in value] if isinstance(value, list) else value


def join_surrogates(text: str) -> str:
    """Return a text that can be encoded: surrogate pairs are joined, and a lone surrogate becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_any_json(value: object) -> bytes:
    """Encode any JSON value or Struct: lone surrogates, which UTF-8 cannot represent, as escapes, and integers of any size."""
    try:
        return _encode_plain(value)
    except (UnicodeEncodeError, OverflowError):
        from json import dumps  # only such values need it

        return dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decode_any_json(data: bytes | str) -> Json:
    """Decode the output of `encode_any_json`. Raises `ValueError` or `RecursionError` for invalid JSON."""
    try:
        return _decode_any(data)
    except (msgspec.DecodeError, RecursionError):
        from json import loads  # msgspec rejects the escape of a lone surrogate

        return loads(data)


def write_document(value: object) -> bytes:
    """Return a value as an indented JSON document with a final line break; its texts may be untrusted."""
    return indent_json(encode_any_json(value)) + b"\n"


def indent_json(data: bytes) -> bytes:
    """Return indented JSON."""
    try:
        return msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:
        from json import dumps, loads  # as above

        return dumps(loads(data), indent=2).encode()
