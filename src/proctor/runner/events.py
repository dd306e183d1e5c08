"""Events of a run, for whoever shows its progress."""

from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.model.result import CaseResult


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened during a run."""

    kind: Literal["planned", "started", "finished", "retrying", "slowed", "stopping"]
    case: str = ""
    attempt: int = 0
    result: CaseResult | None = None
    message: str = ""
    total: int = 0
    """Of `planned`: how many attempts there will be."""


Listener = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Do nothing with an event."""
