"""Claims about the runs of one name, prepared once: of a node, or of a tool inside a node.

One satisfying run is enough for arguments, `strict`, position and the positive claims about nested tools, all in the same run. What is
forbidden must hold for every run of the name: forbidden arguments, and tools that the node must not call. When no run satisfies
the claim the closest miss is told, field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.checks._levels import Run, View
from proctor.expressions.scope import Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.matchers.equal import child
from proctor.model.show import show
from proctor.work import spend

CallCondition = Literal["called", "not_called", "count"]
_MOST_COMPARED = 100
"""How many runs are looked at to find the closest miss."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What must, or must not, be true of the runs of `name`."""

    name: str
    condition: CallCondition
    rule: ArgumentRule | None
    index: int | None
    count: int | None
    count_items: bool = False
    forbidden_arguments: tuple[str, ...]
    nested: tuple[Claim, ...] = ()
    dynamic: bool
    """Whether deciding looks at variables, clock or zone."""
    prohibits: bool
    """Whether there is anything that no run may do."""

    def narrowed(self) -> bool:
        """Whether only some runs of the name are meant."""
        return self.rule is not None or self.index is not None or bool(self.nested)

    def absent_is_fine(self) -> bool:
        """Whether the claim holds when nothing of the name ran."""
        return self.condition == "not_called" or (self.condition == "count" and self.count == 0)

    def wording(self) -> str:
        """The claim in words, after the name."""
        manner = self._manner()
        if self.condition == "count":
            return f"called{manner} exactly {_times(self.count or 0, self.count_items)}"
        return f"called{manner}" if self.condition == "called" else f"not called{manner}"

    def problems(self, runs: Sequence[Run], scope: Scope) -> list[Difference]:
        """Everything that speaks against the claim over all runs of a level; none: it holds."""
        if self.prohibits and (found := self._violations(runs, scope)):
            return found
        return [] if self._supplied(runs, scope) else self._shortfall(runs, scope)

    def hangs_on(self, runs: Sequence[Run], scope: Scope) -> Run | None:
        """The run that could break the claim, if an expression in its parameters gave a certain value; nothing where none could."""
        if self.rule is None or self.condition == "called":
            return None
        named = (run for run in runs if run.is_named(self.name))
        return next((run for run in named if not run.fits(self.rule, scope) and run.may_fit(self.rule, scope)), None)

    # Deciding is one thing, explaining another: most claims hold, and then no sentence is needed.

    def _supplied(self, runs: Sequence[Run], scope: Scope) -> bool:
        """Whether there is a run that satisfies the claim, or the right number of them."""
        spend(1 + len(runs))
        if self.condition == "called":
            return any(run.is_named(self.name) and self._satisfied(run, len(runs), scope) for run in runs)
        return self.condition == "not_called" or self._counted(runs, scope) == self.count

    def _counted(self, runs: Sequence[Run], scope: Scope) -> int:
        good = (run for run in runs if run.is_named(self.name) and self._satisfied(run, len(runs), scope))
        return sum(run.items if self.count_items else 1 for run in good)

    def _satisfied(self, run: Run, total: int, scope: Scope) -> bool:
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
            return False
        if self.rule is not None and not run.fits(self.rule, scope):
            return False
        return not self.nested or (run.calls is not None and all(claim._supplied(run.calls, scope) for claim in self.nested))

    def _violations(self, runs: Sequence[Run], scope: Scope) -> list[Difference]:
        """What no run of the name may do, and did."""
        spend(1 + len(runs))
        named = [run for run in runs if run.is_named(self.name)]
        found = [problem for run in named for problem in self._forbidden_arguments(run)]
        if self.condition == "not_called":
            for run in named:
                if self._satisfied(run, len(runs), scope):
                    found.append(Difference(run.path, f"{run.path} calls {show(run.name)}, which must not be called{self._manner()}"))
            return found
        for run in named:
            for claim in self.nested:
                found.extend(claim._violations(run.calls or (), scope))
        return found

    def _shortfall(self, runs: Sequence[Run], scope: Scope) -> list[Difference]:
        """What is lacking, told of the closest run."""
        named = [run for run in runs if run.is_named(self.name)]
        if self.condition == "count":
            at = named[0].path if named else ""
            return [Difference(at, f"{show(self.name)} was called {_times(self._counted(runs, scope), self.count_items)}{self._manner()}")]
        if not named:
            called = ", ".join(dict.fromkeys(show(run.name, 80) for run in runs[:12])) or "none"
            return [Difference("", f"{show(self.name)} was never called; calls there: {called}")]
        return min((self._against(run, len(runs), scope) for run in named[:_MOST_COMPARED]), key=len)

    def _manner(self) -> str:
        return " in this way" if self.narrowed() else ""

    def _against(self, run: Run, total: int, scope: Scope) -> list[Difference]:
        """What speaks against this one run."""
        found: list[Difference] = []
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
            found.append(Difference(run.path, f"{run.path} is call {run.position} of {total}, expected position {self.index}"))
        if self.rule is not None:
            found.extend(_closest_view(self.rule, run.views(), scope))
        for claim in self.nested:
            if run.calls is None:
                found.append(Difference(run.path, f"{run.path} is a tool call, not a node: it has no tool calls of its own"))
                break
            if not claim._supplied(run.calls, scope):
                found.extend(claim._shortfall(run.calls, scope))
        return found

    def _forbidden_arguments(self, run: Run) -> list[Difference]:
        found: list[Difference] = []
        if not self.forbidden_arguments:
            return found
        for view in run.views():
            for name in self.forbidden_arguments:
                if isinstance(view.value, dict) and name in view.value:
                    at = child(view.beside.get(name, view.path), name)
                    found.append(Difference(at, f"{at} is a forbidden argument of {show(run.name)}"))
        return found


def _closest_view(rule: ArgumentRule, views: Sequence[View], scope: Scope) -> list[Difference]:
    """Nothing when a view fits, else what is wrong with the closest one."""
    if any(rule.fits(view.value, scope) for view in views):
        return []
    told = ([_relocated(entry, view) for entry in rule.differences(view.value, scope, view.path)] for view in views[:_MOST_COMPARED])
    return min(told, key=len)


def _relocated(difference: Difference, view: View) -> Difference:
    """The difference with the path of a key that was merged in from elsewhere."""
    for key, home in view.beside.items():
        here, there = child(view.path, key), child(home, key)
        if difference.path == here or difference.path.startswith((f"{here}.", f"{here}[")):
            return Difference(there + difference.path[len(here) :], difference.sentence.replace(here, there, 1))
    return difference


def _times(count: int, items: bool) -> str:
    if items:
        return f"for {count} item{'' if count == 1 else 's'}"
    return f"{count} time{'' if count == 1 else 's'}"
