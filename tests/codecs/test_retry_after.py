"""The `Retry-After` header."""

from __future__ import annotations

import pytest

from proctor.codecs.http import read_retry_after_s

LATER, EARLIER = "Sun, 15 Nov 2026 09:00:30 GMT", "Sun, 15 Nov 2026 09:00:00 GMT"
NOON = 1_794_733_210.0
"""Ten seconds after `EARLIER`."""


@pytest.mark.parametrize(
    ("headers", "with_clock", "waits"),
    [
        ({}, True, None),
        ({"retry-after": ""}, True, None),
        ({"retry-after": "7"}, False, 7.0),
        ({"retry-after": " 2.5 "}, False, 2.5),
        ({"retry-after": "9999999999"}, False, 999_999_999.0),
        ({"retry-after": "-1"}, True, None),
        ({"retry-after": "nan"}, True, None),
        ({"retry-after": "soon"}, True, None),
        ({"retry-after": "٣"}, True, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, False, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, False, 1.0),
        ({"retry-after": LATER, "date": EARLIER}, True, 30.0),
        ({"retry-after": EARLIER, "date": LATER}, True, 0.0),
        ({"retry-after": LATER}, True, 20.0),
        ({"retry-after": LATER}, False, None),
        ({"retry-after": LATER, "date": "yesterday"}, False, None),
    ],
)
def test_seconds_and_dates_are_read_and_nonsense_is_no_wait(headers: dict[str, str], with_clock: bool, waits: float | None) -> None:
    assert read_retry_after_s(headers, clock=(lambda: NOON) if with_clock else None) == waits
