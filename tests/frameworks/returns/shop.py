"""The tools of every agent here, which log their runs, and the registry of the cases.

Imported in every framework's environment, so only the standard library is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ASK = "Where is order 17?"
BOTH = "Compare order 17 and order 23."
FAILS = "Refund order 99."
ENDLESS = "Keep looking at order 17 forever."
BREAKS = "Look at order 17 and break."
FORM = "Fill in the form of order 17."
EXPERT = "Let an expert look at order 17."
CUT = "Tell at length of order 17."
FILTERED = "Say what is forbidden of order 17."
QUIET = "Hello, who are you?"
TURNS = (ASK, QUIET, "Where is order 23?")

DONE: list[dict[str, Any]] = []
"""The runs of the tools, in the order in which they ended."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Case:
    """A function under test, and its messages."""

    function: Callable[..., Any]
    messages: tuple[str, ...]


CASES: dict[str, Case] = {}


def case(name: str, *messages: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a case; the first letter of the name is the column of the report."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[name] = Case(function, messages or (ASK,))
        return function

    return keep


def lookup_order(id: int) -> str:
    """Look up an order by its number."""
    result = f"order {id}: shipped"
    with _LOCK:
        DONE.append({"name": "lookup_order", "arguments": {"id": id}, "result": result})
    return result


def refund(id: int) -> str:
    """Refund an order."""
    with _LOCK:
        DONE.append({"name": "refund", "arguments": {"id": id}, "error": f"order {id} not found"})
    raise ValueError(f"order {id} not found")
