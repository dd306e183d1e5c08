"""Whether a claim looks at the clock, so that evidence without one is given the time of the check."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json

_CLOCK_WORDS = frozenset({"expression", "$expr", "$date"})


def needs_clock(spec: msgspec.Struct) -> bool:
    """Return whether the clock of the evidence matters for this spec; one that knows better says so by a method of this name."""
    own = getattr(spec, "needs_clock", None)
    return own() if own is not None else _mentions_clock(msgspec.to_builtins(spec))


def _mentions_clock(value: Json) -> bool:
    """Return whether a spec holds an expression or a date, so that the clock of the evidence matters."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            if not _CLOCK_WORDS.isdisjoint(current) or current.get("matcher") == "date":
                return True
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple)):
            waiting.extend(current)
    return False
