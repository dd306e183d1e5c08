"""Claims about the runs of one name, prepared once: of a node, or of a tool inside a node.

One satisfying run is enough for arguments, `strict`, position and the positive claims about nested tools, all in the same run. What is
forbidden must hold for every run of the name: forbidden arguments, and tools that the node must not call. When no run satisfies
the reason describes the closest run field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.shared.node_runs import Execution, View
from proctor.checks.shared.ranges import iterate_whole_texts
from proctor.expressions.scope import Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.matchers.equal import join_path
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.model.verdict import TextRange
from proctor.work import spend

CallCondition = Literal["called", "not_called", "count"]
_MOST_COMPARED = 100
"""How many runs are looked at to find the closest miss."""
_MOST_LISTED = 20_000
"""Stop collecting differences after this many; the closest of the runs seen so far is described."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What must, or must not, be true of the runs of `name`."""

    name: str
    condition: CallCondition
    rule: ArgumentRule | None
    index: int | None
    count: int | None
    count_items: bool = False
    forbidden_arguments: dict[str, int]
    """The names that no run may be given, each with its place in the list."""
    nested: tuple[Claim, ...] = ()
    dynamic: bool
    """Whether deciding looks at variables, clock or zone."""
    prohibits: bool
    """Whether there is anything that no run may do."""

    def is_narrowed(self) -> bool:
        """Return whether only some runs of the name are meant."""
        return self.rule is not None or self.index is not None or bool(self.nested)

    def allows_absence(self) -> bool:
        """Return whether the claim holds when nothing of the name ran."""
        return self.condition == "not_called" or (self.condition == "count" and self.count == 0)

    def describe(self) -> str:
        """Return the claim in words, after the name."""
        manner = self._describe_manner()
        if self.condition == "count":
            return f"called{manner} exactly {_describe_count(self.count or 0, self.count_items)}"
        return f"called{manner}" if self.condition == "called" else f"not called{manner}"

    def list_problems(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return everything that speaks against the claim over all runs of a level; none: it holds."""
        # Prohibitions first: one run that does what none may do is not outweighed by another that satisfies the claim.
        if self.prohibits and (found := self._list_violations(runs, scope)):
            return found
        return [] if self._is_supplied(runs, scope) else self._describe_shortfall(runs, scope)

    def find_decisive_run(self, runs: Sequence[Execution], scope: Scope) -> Execution | None:
        """Return the run that could break the claim, if an expression in its parameters gave a certain value, or None where none could."""
        if self.rule is None or self.condition == "called":
            return None
        named = (run for run in runs if run.is_named(self.name))
        return next((run for run in named if not run.fits(self.rule, scope) and run.may_fit(self.rule, scope)), None)

    def iterate_ranges(self, runs: Sequence[Execution], scope: Scope) -> Iterator[TextRange]:
        """Yield the characters that made the claim hold, or those of what is forbidden and was done."""
        if self.prohibits and self._list_violations(runs, scope):
            yield from self._iterate_forbidden(runs, scope)
        elif self.condition != "not_called" and self._is_supplied(runs, scope):
            yield from self._iterate_satisfied(runs, scope, every=self.condition == "count")

    def _iterate_forbidden(self, runs: Sequence[Execution], scope: Scope) -> Iterator[TextRange]:
        for run in runs:
            if not run.is_named(self.name):
                continue
            for view in run.list_views():
                for name in self._find_forbidden_in(view.value):
                    yield from iterate_whole_texts(view.value[name], join_path(view.homes.get(name, view.path), name))
            for claim in self.nested if self.condition != "not_called" else ():
                yield from claim._iterate_forbidden(run.calls or (), scope)
        if self.condition == "not_called":
            yield from self._iterate_satisfied(runs, scope, every=True)

    def _iterate_satisfied(self, runs: Sequence[Execution], scope: Scope, *, every: bool) -> Iterator[TextRange]:
        """Yield what made the first run fit, or every run, and the calls inside of it."""
        for run in runs:
            spend(1)
            if not run.is_named(self.name) or not self._is_satisfied_by(run, len(runs), scope):
                continue
            if self.rule is not None:
                yield from _iterate_fitting_view(self.rule, run, scope)
            for claim in self.nested:
                yield from claim.iterate_ranges(run.calls or (), scope)
            if not every:
                return

    # Deciding is one thing, explaining another: most claims hold, and then no sentence is needed.

    def _is_supplied(self, runs: Sequence[Execution], scope: Scope) -> bool:
        """Return whether there is a run that satisfies the claim, or the right number of them."""
        # Nested claims walk the calls of every run, so the cost is a product, and is counted.
        spend(1 + len(runs))
        if self.condition == "called":
            return any(run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope) for run in runs)
        return self.condition == "not_called" or self._count_runs(runs, scope) == self.count

    def _count_runs(self, runs: Sequence[Execution], scope: Scope) -> int:
        good = (run for run in runs if run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope))
        return sum(run.items if self.count_items else 1 for run in good)

    def _is_satisfied_by(self, run: Execution, total: int, scope: Scope) -> bool:
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
            return False
        if self.rule is not None and not run.fits(self.rule, scope):
            return False
        # Only nodes have calls inside: of a tool call no claim about nested ones holds, not even that there are none.
        return not self.nested or (run.calls is not None and all(claim._is_supplied(run.calls, scope) for claim in self.nested))

    def _list_violations(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return what no run of the name may do, and did."""
        spend(1 + len(runs))
        named = [run for run in runs if run.is_named(self.name)]
        found = [problem for run in named for problem in self._list_forbidden_arguments(run)]
        if self.condition == "not_called":
            for run in named:
                if self._is_satisfied_by(run, len(runs), scope):
                    found.append(
                        Difference(run.path, f"{run.path} calls {show(run.name)}, which must not be called{self._describe_manner()}")
                    )
            return found
        for run in named:
            for claim in self.nested:
                found.extend(claim._list_violations(run.calls or (), scope))
        return found

    def _describe_shortfall(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return what the closest run lacks."""
        named = [run for run in runs if run.is_named(self.name)]
        if self.condition == "count":
            at = named[0].path if named else ""
            count = _describe_count(self._count_runs(runs, scope), self.count_items)
            return [Difference(at, f"{show(self.name)} was called {count}{self._describe_manner()}")]
        if not named:
            called = ", ".join(dict.fromkeys(show(run.name, 80) for run in runs[:12])) or "none"
            return [Difference("", f"{show(self.name)} was never called; calls there: {called}")]
        return _find_shortest(self._list_problems_of(run, len(runs), scope) for run in named[:_MOST_COMPARED])

    def _describe_manner(self) -> str:
        return " in this way" if self.is_narrowed() else ""

    def _list_problems_of(self, run: Execution, total: int, scope: Scope) -> list[Difference]:
        """Return what speaks against this one run."""
        found: list[Difference] = []
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
            found.append(Difference(run.path, f"{run.path} is call {run.position} of {total}, expected position {self.index}"))
        if self.rule is not None:
            found.extend(_find_closest_view(self.rule, run.list_views(), scope))
        for claim in self.nested:
            if run.calls is None:
                found.append(Difference(run.path, f"{run.path} is a tool call, not a node: it has no tool calls of its own"))
                break
            if not claim._is_supplied(run.calls, scope):
                found.extend(claim._describe_shortfall(run.calls, scope))
        return found

    def _find_forbidden_in(self, value: Json) -> list[str]:
        """Return the forbidden names that an object has, in the order the claim lists them."""
        if not isinstance(value, dict):
            return []
        # Along the shorter of the two: a long list of names times many runs would cost their product.
        if len(self.forbidden_arguments) <= len(value):
            return [name for name in self.forbidden_arguments if name in value]
        return sorted((name for name in value if name in self.forbidden_arguments), key=self.forbidden_arguments.__getitem__)

    def _list_forbidden_arguments(self, run: Execution) -> list[Difference]:
        found: list[Difference] = []
        if not self.forbidden_arguments:
            return found
        for view in run.list_views():
            for name in self._find_forbidden_in(view.value):
                at = join_path(view.homes.get(name, view.path), name)
                found.append(Difference(at, f"{at} is a forbidden argument of {show(run.name)}"))
        return found


def _iterate_fitting_view(rule: ArgumentRule, run: Execution, scope: Scope) -> Iterator[TextRange]:
    """Yield the characters of the first view that fits, at their own place where a key was merged in from elsewhere."""
    for view in run.list_views():
        if rule.fits(view.value, scope):
            for found in rule.iterate_ranges(view.value, scope, view.path):
                yield TextRange(_relocate(Difference(found.path, ""), view).path, found.start, found.end)
            return


def _find_closest_view(rule: ArgumentRule, views: Sequence[View], scope: Scope) -> list[Difference]:
    """Return None when a view fits, else what is wrong with the closest one."""
    if any(rule.fits(view.value, scope) for view in views):
        return []
    differences = (
        [_relocate(entry, view) for entry in rule.list_differences(view.value, scope, view.path)] for view in views[:_MOST_COMPARED]
    )
    return _find_shortest(differences)


def _find_shortest(lists: Iterable[list[Difference]]) -> list[Difference]:
    """Return the shortest of the lists, the first of equal ones; those after the first `_MOST_LISTED` differences are not looked at."""
    best: list[Difference] | None = None
    entry_count = 0
    for entries in lists:
        best = entries if best is None or len(entries) < len(best) else best
        entry_count += len(entries)
        # The lists are made one by one, so what is left is not even written.
        if entry_count >= _MOST_LISTED:
            break
    return best or []


def _relocate(difference: Difference, view: View) -> Difference:
    """Return the difference with the path of a key that was merged in from elsewhere."""
    for key, home in view.homes.items():
        here, there = join_path(view.path, key), join_path(home, key)
        if difference.path == here or difference.path.startswith((f"{here}.", f"{here}[")):
            return Difference(there + difference.path[len(here) :], difference.sentence.replace(here, there, 1))
    return difference


def _describe_count(count: int, items: bool) -> str:
    if items:
        return f"for {count} item{'' if count == 1 else 's'}"
    return f"{count} time{'' if count == 1 else 's'}"
