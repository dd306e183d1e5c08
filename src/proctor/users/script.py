"""A user played from a script: rules that answer what the agent said, and lines that are said one after the other.

After each answer the first rule (`when`) that holds of it is used, as often as it holds. Where none holds, the next line that has not been
said yet is. A script with nothing left to say gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.model.case import Assertion, UserLine
from proctor.model.evidence import Usage
from proctor.users.claims import Holds
from proctor.users.player import Exchange, Move

NOTHING_LEFT = "the script has nothing more to say"


class ScriptPlayer:
    """Plays one user from a script."""

    name = "script"
    model_calls = 0
    usage: Usage | None = None

    def __init__(self, lines: Sequence[UserLine], prepare: Callable[[Assertion], Holds]) -> None:
        """`prepare` makes ready what a rule waits for."""
        self._rules = [(line, prepare(line.when)) for line in lines if line.when is not None]
        self._lines = iter([line for line in lines if line.when is None])

    async def choose(self, exchanges: Sequence[Exchange]) -> Move:
        """Return the rule that the last answer calls for, else the next line."""
        for line, holds in self._rules if exchanges else ():
            if await holds(exchanges[-1].evidence):
                return _make_move(line)
        line = next(self._lines, None)
        return Move(ends="gave_up", reason=NOTHING_LEFT) if line is None else _make_move(line)


def _make_move(line: UserLine) -> Move:
    if line.ends is None:
        return Move(say=line.say)
    label = "" if line.when is None else f": {line.when.label or line.when.check}"
    return Move(ends=line.ends, reason=f"a line of the script says so{label}")
