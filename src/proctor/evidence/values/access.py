"""Access to decoded JSON: strict for formats that users write by hand, lenient for platform output."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from proctor.errors import EvidenceError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number, read_digits
from proctor.model.show import kind_of, show

# --- points in time as traces write them: ISO 8601 text, and numbers since 1970

# Without a zone, meaning UTC: arithmetic and formatting take half as long.
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
# The range a `datetime` can hold, in nanoseconds since 1970.
_LAST_NS = 253_402_300_799 * 10**9
_UNITS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))
"""The smallest values of nanoseconds, microseconds, milliseconds and seconds since 1970; no trace is older than 1973."""


def read_time_ns(value: Json) -> int:
    """Return nanoseconds since 1970 of ISO 8601 text or a number; 0 for anything else."""
    number = read_digits(value, 20) if isinstance(value, str) else value
    moment = _parse_instant(value) if number is None else None
    if moment is not None:
        return max(0, (moment - _EPOCH_UTC) // timedelta(microseconds=1) * 1000)
    if not is_number(number) or not 0 < number < 2**63:
        return 0
    return next((int(number * factor) for least, factor in _UNITS if number >= least), 0)


def measure_ms_between(start: Json, end: Json) -> float | None:
    """Return the milliseconds between two ISO texts, or None if one of them is not a time."""
    began, ended = _parse_instant(start), _parse_instant(end)
    return None if began is None or ended is None else (ended - began) / timedelta(milliseconds=1)


def write_ns_as_iso(nanoseconds: int) -> str | None:
    """Write nanoseconds since 1970 as ISO 8601 in UTC, or None beyond the year 9999 or before 1970."""
    if not 0 < nanoseconds <= _LAST_NS:
        return None
    return f"{(_EPOCH + timedelta(microseconds=nanoseconds // 1000)).isoformat()}Z"


def write_ms_as_iso(milliseconds: Json) -> str | None:
    """Write milliseconds since 1970 as ISO 8601 in UTC, or None if the value is not such a number."""
    if not is_number(milliseconds) or not 0 < milliseconds <= _LAST_NS // 10**6:
        return None
    return write_ns_as_iso(int(milliseconds * 10**6))


def _parse_instant(value: Json) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # A text without a zone is UTC.
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# --- near misses: keys that differ from a known key by one letter or by two swapped letters


def is_misspelt(key: str, known: Collection[str]) -> bool:
    """Return whether a key is a known one with one letter added, missing or changed, or with two neighbouring letters swapped."""
    return key not in known and any(_is_near(key, word) for word in known)


def _is_near(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    # After the first difference the rest must be equal, skipping one letter of the longer text, or of both if the lengths are equal.
    same = next((index for index, letter in enumerate(one) if letter != other[index]), len(one))
    if len(one) < len(other):
        return one[same:] == other[same + 1 :]
    return one[same + 1 :] == other[same + 1 :] or (
        one[same : same + 2] == other[same : same + 2][::-1] and one[same + 2 :] == other[same + 2 :]
    )


SHOWN = 80


def wrong_kind_error(path: str, expected: str, found: Json) -> EvidenceError:
    """Return the error for a value of the wrong kind."""
    text = "" if found is None else f" {show(found, SHOWN)}"
    return EvidenceError(f"{path}: expected {expected}, found {kind_of(found)}{text}")


def read_text(value: Json, path: str) -> str | None:
    """Return a text, or None if it is null."""
    if value is None or isinstance(value, str):
        return value
    raise wrong_kind_error(path, "text", value)


def read_object(value: Json, path: str) -> dict[str, Any]:
    """Return an object."""
    if isinstance(value, dict):
        return value
    raise wrong_kind_error(path, "an object", value)


def list_at(value: Json, path: str) -> list[Any]:
    """Return a list."""
    if isinstance(value, (list, tuple)):
        return list(value)
    raise wrong_kind_error(path, "a list", value)


def list_texts(value: Json, path: str) -> tuple[str, ...]:
    """Return the texts of a list, without those that are null."""
    texts = [read_text(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path))]
    return tuple(text for text in texts if text is not None)


def read_number(value: Json) -> float | int | None:
    """Return a number, also one that is written as text; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().lstrip("-").isdigit() else int(value)
        except ValueError:
            return None
    return value if is_number(value) and is_finite(value) else None


def number_at(value: Json, path: str) -> float | None:
    """Return a number that is not true/false, also one that is written as text, or None if it is null."""
    if value is None or is_number(value):
        return value
    if isinstance(value, str) and (number := read_number(value)) is not None:
        return number
    raise wrong_kind_error(path, "a number", value)


def duration_at(value: Json, path: str) -> float | None:
    """Return a number that is not negative, or None if it is null."""
    number = number_at(value, path)
    if number is not None and number < 0:
        raise wrong_kind_error(path, "a duration", value)
    return number


def read_integer(value: Json, path: str) -> int | None:
    """Return a whole number (`200.0` is one), or None if it is null."""
    number = number_at(value, path)
    if isinstance(number, float) and not number.is_integer():
        raise wrong_kind_error(path, "a whole number", value)
    return None if number is None else int(number)


def dict_or_empty(value: Json) -> dict[str, Any]:
    """Return the object itself, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Json) -> list[Any]:
    """Return the list itself, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text_or_none(value: Json) -> str | None:
    """Return the text itself, or None for anything else."""
    return value if isinstance(value, str) else None


def find_first(document: dict[str, Any], *keys: str) -> Json:
    """Return the value of the first of these keys that exists and is not null."""
    for key in keys:
        if (value := document.get(key)) is not None:
            return value
    return None


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())
