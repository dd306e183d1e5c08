"""Explains why a recording has no answer: the nearest recording, and the first field in which it differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

import msgspec

from proctor.cassettes.entries import Line, Scope, summarise
from proctor.cassettes.ports import Kind
from proctor.errors import TargetError
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import show

_MOST_LEAVES = 2000
"""Fields of a request that are compared to find the nearest recording."""
_MOST_CANDIDATES = 200
"""Recordings that are compared with a request that was not found."""
_WINDOW = 100
"""Characters shown around the first difference of two long texts."""
_MARKER = re.compile(r"(?<=DATA )[0-9a-f]{32}(?=>>>)|(?<=The marker of this request is )[0-9a-f]{32}")


class CassetteMiss(TargetError):
    """A cassette has no recording of what was asked. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="cassette_miss")


class Difference(msgspec.Struct, frozen=True):
    """The first field in which two values differ."""

    path: str
    recorded: Json | Missing
    now: Json | Missing


def make_miss(path: str, scope: Scope, kind: Kind, request: Json, lines: Sequence[Line], used: Container[int]) -> CassetteMiss:
    """Return the error for a request without a recording; `lines` are all recordings, `used` the numbers of those already played."""
    about = summarise(kind, request)
    out = [f"no recording of this {kind} exchange of {scope} in {path}" + (f": {about}" if about else "")]
    own = [line for line in lines if line.entry.scope == scope]
    # Another attempt of the case is the likeliest to be alike; a recording of any other case is still better than none.
    others = [line for line in lines if line.entry.scope.case == scope.case] or lines
    if not own:
        attempts = sorted({line.entry.scope.attempt for line in lines if line.entry.scope.case == scope.case})
        known = f"only attempts {', '.join(map(str, attempts))} were recorded" if attempts else "nothing was recorded"
        out.append(f"  {known} of this case")
    near = find_nearest_line(kind, request, own or others, used)
    if near is not None:
        out.extend(_describe_nearest(near, request, near.entry.scope != scope, near.number in used))
    out.append("  if the change is wanted, record it again with `--record`")
    return CassetteMiss("\n".join(out))


def find_nearest_line(kind: Kind, request: Json, lines: Iterable[Line], used: Container[int]) -> Line | None:
    """Return the recording most like a request: most fields in common, of equals one not played yet, then the first."""
    candidates = [line for line in lines if line.entry.kind == kind][:_MOST_CANDIDATES]
    wanted = _count_leaves(request)

    def rank(line: Line) -> tuple[float, bool, int]:
        there = _count_leaves(line.entry.request)
        return (2 * (wanted & there).total() / max(1, wanted.total() + there.total()), line.number not in used, -line.number)

    return max(candidates, key=rank, default=None)


def find_first_difference(recorded: Json, now: Json) -> Difference | None:
    """Return the first difference in reading order, or None if the values are equal; extra elements of a list come last.

    A judge is told its data by a marker made from everything it is asked, so that differs wherever anything does: it is named only
    where nothing else differs.
    """
    marked: Difference | None = None
    waiting: list[tuple[str, Json | Missing, Json | Missing]] = [("$", recorded, now)]
    while waiting:
        path, left, right = waiting.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            keys = [*left, *(key for key in right if key not in left)]
            # Reversed, as the last one is taken first: so the first difference in reading order is found.
            waiting.extend((f"{path}.{key}", left.get(key, MISSING), right.get(key, MISSING)) for key in reversed(keys))
        elif isinstance(left, list) and isinstance(right, list):
            longest = max(len(left), len(right))
            pairs = [(f"{path}[{at}]", _get_item(left, at), _get_item(right, at)) for at in range(longest)]
            waiting.extend(reversed(pairs))
        elif left is MISSING or right is MISSING or isinstance(left, bool) != isinstance(right, bool) or left != right:
            # `True` equals 1 in Python and not in JSON, hence the look at `bool`.
            found = Difference(path, left, right)
            if _mask_marker(left) != _mask_marker(right):
                return found
            marked = marked or found
    return marked


def _mask_marker(value: Json | Missing) -> Json | Missing:
    return _mask_marker_in(value) if isinstance(value, str) else value


def _mask_marker_in(text: str) -> str:
    # Of the same length, so that a place in the masked text is the same place in the text that is shown.
    return _MARKER.sub(lambda marker: "x" * len(marker[0]), text)


def _describe_nearest(near: Line, request: Json, elsewhere: bool, played: bool) -> list[str]:
    entry = near.entry
    place = f"line {near.number}" + (f" ({entry.scope})" if elsewhere else "") + (", already played" if played else "")
    out = [f"  nearest: {place}" + (f": {entry.about}" if entry.about else "")]
    found = find_first_difference(entry.request, request)
    if found is None:
        said = "the same request, recorded for another attempt" if elsewhere else "the same request, asked more often than it was recorded"
        return [*out, f"  {said}"]
    left, right = _show_both(found.recorded, found.now)
    return [*out, f"  differs at {found.path}", f"    recorded {left}", f"    now      {right}"]


def _show_both(recorded: Json | Missing, now: Json | Missing) -> tuple[str, str]:
    if isinstance(recorded, str) and isinstance(now, str) and max(len(recorded), len(now)) > _WINDOW:
        # Where the texts differ in nothing but the marker, the marker is what has to be shown.
        sides = (recorded, now) if _mask_marker_in(recorded) == _mask_marker_in(now) else (_mask_marker_in(recorded), _mask_marker_in(now))
        same = next((at for at, (one, other) in enumerate(zip(*sides, strict=False)) if one != other), min(len(recorded), len(now)))
        return _show_around(recorded, same), _show_around(now, same)
    return _show_value(recorded), _show_value(now)


def _show_around(text: str, position: int) -> str:
    start = max(0, position - _WINDOW // 3)
    end = start + _WINDOW
    return f"{'…' if start else ''}{show(text[start:end])}{'…' if end < len(text) else ''}"


def _show_value(value: Json | Missing) -> str:
    return "nothing" if isinstance(value, Missing) else show(value)


def _get_item(items: list[Json], position: int) -> Json | Missing:
    return items[position] if position < len(items) else MISSING


def _count_leaves(value: Json) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[str, Json]] = [("$", value)]
    while waiting and len(found) < _MOST_LEAVES:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((f"{path}.{key}", member) for key, member in item.items())
        elif isinstance(item, list):
            waiting.extend((f"{path}[{at}]", member) for at, member in enumerate(item))
        else:
            # A prompt may be very long; its beginning is enough to rank by.
            found[path, str(item)[:500]] += 1
    return found
