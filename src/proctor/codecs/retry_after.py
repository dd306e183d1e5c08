"""How long a server asks to be left alone: `Retry-After`, in seconds or as an HTTP date, and OpenAI's `retry-after-ms`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_SECONDS = re.compile(r"(\d{1,9})\d{0,9}(\.\d{1,9})?", re.ASCII)


def read_retry_after_s(headers: Mapping[str, str], *, clock: Callable[[], float] | None = None) -> float | None:
    """Return the seconds that the headers (with lower-case names) ask to wait, or None.

    A date is compared with the server's own clock if it sends one, since ours may be wrong, else with `clock`, if given.
    """
    exact = _read_seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    value = headers.get("retry-after", "")
    seconds = _read_seconds(value)
    if seconds is not None or not value.strip():
        return seconds
    then, now = _read_date(value), _read_date(headers.get("date", ""))
    if now is None and clock is not None:
        now = clock()
    return None if then is None or now is None else max(0.0, then - now)


def _read_seconds(text: str) -> float | None:
    found = _SECONDS.fullmatch(text.strip())
    # More than nine digits are cut: that is decades, so there is no retry.
    return float(found[1] + (found[2] or "")) if found else None


def _read_date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # slow to load, and dates are rare

    try:
        return parsedate_to_datetime(text).timestamp()
    # A server may send anything here: what is no date is as good as no header.
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
