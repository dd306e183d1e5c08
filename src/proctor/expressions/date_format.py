"""`strftime` directives, the portable ones, written by ourselves.

The C library's own would depend on the platform and on the locale; these give the same text everywhere, in English. A directive
outside the table is refused when the suite is read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
LONGEST_FORMAT = 1_000
"""Characters of a format; longer ones are no mistake of a person but an attempt to cost time."""


def _write_hour12(at: datetime) -> int:
    return at.hour % 12 or 12


def _write_offset(at: datetime) -> str:
    delta = at.utcoffset()
    if delta is None:
        return ""
    minutes = int(delta.total_seconds()) // 60
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


def _count_week_of_year(at: datetime, first: int) -> int:
    """Count the weeks since the first Sunday (`first` 6) or Monday (0) of the year; days before it are week 0."""
    return (at.timetuple().tm_yday + 6 - (at.weekday() - first) % 7) // 7


DIRECTIVES: dict[str, Callable[[datetime], str]] = {
    "%Y": lambda at: f"{at.year:04d}",
    "%y": lambda at: f"{at.year % 100:02d}",
    "%m": lambda at: f"{at.month:02d}",
    "%-m": lambda at: str(at.month),
    "%B": lambda at: MONTHS[at.month - 1],
    "%b": lambda at: MONTHS[at.month - 1][:3],
    "%h": lambda at: MONTHS[at.month - 1][:3],
    "%d": lambda at: f"{at.day:02d}",
    "%-d": lambda at: str(at.day),
    "%e": lambda at: f"{at.day:2d}",
    "%j": lambda at: f"{at.timetuple().tm_yday:03d}",
    "%-j": lambda at: str(at.timetuple().tm_yday),
    "%A": lambda at: DAYS[at.weekday()],
    "%a": lambda at: DAYS[at.weekday()][:3],
    "%u": lambda at: str(at.isoweekday()),
    "%w": lambda at: str(at.isoweekday() % 7),
    "%G": lambda at: f"{at.isocalendar().year:04d}",
    "%V": lambda at: f"{at.isocalendar().week:02d}",
    "%U": lambda at: f"{_count_week_of_year(at, 6):02d}",
    "%W": lambda at: f"{_count_week_of_year(at, 0):02d}",
    "%H": lambda at: f"{at.hour:02d}",
    "%-H": lambda at: str(at.hour),
    "%I": lambda at: f"{_write_hour12(at):02d}",
    "%-I": lambda at: str(_write_hour12(at)),
    "%M": lambda at: f"{at.minute:02d}",
    "%-M": lambda at: str(at.minute),
    "%S": lambda at: f"{at.second:02d}",
    "%-S": lambda at: str(at.second),
    "%f": lambda at: f"{at.microsecond:06d}",
    "%p": lambda at: "AM" if at.hour < 12 else "PM",
    "%z": _write_offset,
    "%Z": lambda at: at.tzname() or "",
    "%F": lambda at: f"{at.year:04d}-{at.month:02d}-{at.day:02d}",
    "%T": lambda at: f"{at.hour:02d}:{at.minute:02d}:{at.second:02d}",
    "%R": lambda at: f"{at.hour:02d}:{at.minute:02d}",
    "%D": lambda at: f"{at.month:02d}/{at.day:02d}/{at.year % 100:02d}",
    "%%": lambda at: "%",
}
"""What every directive writes."""


def find_unknown_directive(form: str) -> tuple[str, int] | None:
    """Return the first directive that is not in the table, and its position."""
    for piece, at in _split_format(form):
        if piece[0] == "%" and piece not in DIRECTIVES:
            return piece, at
    return None


def format_moment(at: datetime, form: str) -> str:
    """Write `at` by a format whose directives are all known."""
    return "".join(DIRECTIVES[piece](at) if piece in DIRECTIVES else piece for piece, _ in _split_format(form))


def _split_format(form: str) -> list[tuple[str, int]]:
    """Return the format cut into directives and single characters, with offsets."""
    pieces: list[tuple[str, int]] = []
    index = 0
    while index < len(form):
        width = 1
        if form[index] == "%":
            width = 3 if form[index + 1 : index + 2] == "-" else 2
        pieces.append((form[index : index + width], index))
        index += width
    return pieces
