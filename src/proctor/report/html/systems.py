"""What happened in the simulated systems of an attempt: what differs from before, field by field, and which requests were made.

Values are cut and made harmless here; `drawn_systems.py` draws them for pages and reports alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from proctor.model.evidence import Json, State, StateChange, StateRequest
from proctor.report.blocks.attempt_layout import Document
from proctor.report.words.html_text import duration_words, write_label, write_pretty

MOST_CHANGES, MOST_REQUESTS = 50, 50
_MOST_FIELDS = 20
"""Fields of one record that differ."""
_LONGEST = 1000
_DEEPEST = 6
"""Levels that are gone into; what differs deeper down is shown whole."""
_ABSENT = object()


def write_systems(state: State | None) -> Document | None:
    """Return what happened in the systems; None where none were simulated."""
    if state is None or (state.changes is None and state.requests is None):
        return None
    changes, requests = state.changes or (), state.requests or ()
    return {
        "changes": None if state.changes is None else [_write_change(change) for change in changes[:MOST_CHANGES]],
        "more_changes": max(0, len(changes) - MOST_CHANGES),
        "requests": [write_request(request) for request in requests[:MOST_REQUESTS]],
        "more_requests": max(0, len(requests) - MOST_REQUESTS),
    }


def _write_change(change: StateChange) -> Document:
    differing = list(islice(iterate_differences(change.before, change.after), _MOST_FIELDS + 1)) if change.change == "changed" else []
    if not differing:
        differing = [("", _ABSENT if change.before is None else change.before, _ABSENT if change.after is None else change.after)]
    return {
        "system": write_label(change.system, 80),
        "kind": change.change,
        "place": write_label(change.place, 200),
        "fields": [[write_label(name, 120), _write_side(was), _write_side(now)] for name, was, now in differing[:_MOST_FIELDS]],
        "more": len(differing) > _MOST_FIELDS,
    }


def iterate_differences(before: object, after: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object, object]]:
    """Yield the path of each field that differs with its value before and after; one that is not there is no value at all."""
    if isinstance(before, dict) and isinstance(after, dict) and depth < _DEEPEST:
        for name in dict.fromkeys((*before, *after)):
            here = f"{path}.{name}" if path else str(name)
            yield from iterate_differences(before.get(name, _ABSENT), after.get(name, _ABSENT), here, depth + 1)
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _write_side(value: object) -> str | None:
    return None if value is _ABSENT else write_pretty(value, _LONGEST)  # type: ignore[arg-type]  # JSON, as evidence has it


def write_request(request: StateRequest) -> Document:
    """Return one request with what was sent and answered."""
    sides: dict[str, Json] = {"sent": request.body, "answered": request.response}
    return {
        "system": write_label(request.system, 80),
        "line": write_label(f"{request.method} {request.path}", 300),
        "status": request.status,
        "took": "" if request.duration_ms is None else duration_words(request.duration_ms),
        **{name: write_pretty(value, _LONGEST) for name, value in sides.items() if value is not None},
    }
