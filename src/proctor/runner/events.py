"""What happens during a run, for whoever wants to show it."""

from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.model.result import CaseResult


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened."""

    kind: Literal["planned", "started", "finished", "retrying", "slowed", "stopping"]
    case: str = ""
    attempt: int = 0
    result: CaseResult | None = None
    message: str = ""
    total: int = 0
    """Of `planned`: how many attempts there will be."""


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listens to nothing."""
