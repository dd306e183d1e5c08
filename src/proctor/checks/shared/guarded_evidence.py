"""Evidence as own checks see it: whoever touches what nobody recorded is stopped, instead of finding nothing there.

The objects look like `Evidence`, `ToolCall` and so on, and are read by the table of `proctor.model.recorded`. What was touched is
remembered, so that a check that catches every exception, or that looks at nothing at all, does not pass for one that has looked.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import msgspec

from proctor.errors import CheckFault
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.recorded import Unrecorded, read_recorded


class NotRecorded(CheckFault):
    """Own code touched evidence that was not recorded."""

    def __init__(self, why: str) -> None:
        super().__init__("missing_evidence", why)


class Watch:
    """What one check has touched of one evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self.account = evidence.account
        self.touched = False
        self.lacking: list[str] = []

    def refuse(self, why: str) -> NoReturn:
        """Remember what is lacking, and stop whoever asks."""
        self.lacking.append(why)
        raise NotRecorded(why)


def guard_evidence(evidence: Evidence) -> tuple[Evidence, Watch]:
    """Return evidence to hand to own code, and what will be known of its use."""
    watch = Watch(evidence)
    return cast(Evidence, _Guarded(evidence, watch)), watch


class _Guarded:
    __slots__ = ("_inner", "_watch")
    _inner: msgspec.Struct
    _watch: Watch

    def __init__(self, inner: msgspec.Struct, watch: Watch) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_watch", watch)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleVariableOverride,reportIncompatibleMethodOverride] - it stands in for the other
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        inner: msgspec.Struct = object.__getattribute__(self, "_inner")
        watch: Watch = object.__getattribute__(self, "_watch")
        watch.touched = True
        if name in inner.__struct_fields__:
            found = read_recorded(inner, name, watch.account)
            return watch.refuse(found.why) if isinstance(found, Unrecorded) else _wrap(found, watch)
        method = getattr(inner, name)
        if isinstance(inner, ToolCall) and name in ("failed", "failure", "failure_kind"):
            ending = read_recorded(inner, "error", watch.account)
            if isinstance(ending, Unrecorded):
                watch.refuse(ending.why)
        if isinstance(inner, Usage) and name == "total":
            return lambda: self.total_tokens
        if isinstance(inner, Evidence) and name == "is_recorded":
            return lambda field: not isinstance(read_recorded(inner, field, watch.account), Unrecorded)
        return method

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"evidence cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        self._watch.touched = True
        return self._inner == (other._inner if type(other) is _Guarded else other)

    def __hash__(self) -> int:
        return id(self._inner)

    def __repr__(self) -> str:
        return f"<{type(self._inner).__name__} of this run>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("evidence cannot be copied out of a check")


def _wrap(value: Json, watch: Watch) -> Json:
    if isinstance(value, msgspec.Struct):
        return _Guarded(value, watch)
    if isinstance(value, tuple):
        return tuple(_wrap(item, watch) for item in value)
    if isinstance(value, (dict, list)):
        # A copy: what one check changes must not be what the next one looks at.
        return msgspec.to_builtins(value)
    return value
