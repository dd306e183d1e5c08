"""Pairs expected tool calls with the actual ones.

Two calls can pair when they have the same name and the arguments fit. Which pairs are looked for depends on the order:

* `strict`: position by position;
* `superset`: one forward walk over the actual calls, others may lie between; once an expected call is not found the walk
  is over, and all later expected calls stay unpaired as well;
* `ignore`: a maximum matching, so that a valid assignment is found whenever there is one.

Afterwards an unpaired expected call takes an unused actual call of the same name (strict: at its position; superset: from
where its search began; ignore: the first): both are used up and count as an argument mismatch, neither as missing nor as
extra. What is left is missing or extra. A missing call that could pair with an extra one was made after all: it is listed
as out of order too, in `superset` only where it was made on the wrong side of another expected call.

The verdict: nothing missing, no mismatch, and no more extra calls than allowed. A negative expectation holds when no call
was made at all, whatever is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Literal, get_args

import msgspec

from proctor.errors import CheckFault
from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.call_arguments import ArgumentMatch, ArgumentRule, Difference, build_argument_rule
from proctor.matchers.lists import estimate_work, find_maximum_pairing
from proctor.model.evidence import Json, ToolCall
from proctor.model.json_values import is_integer
from proctor.model.show import show, suggest_one
from proctor.model.verdict import TextRange
from proctor.work import spend

CallOrder = Literal["ignore", "strict", "superset"]

MOST_COMPARISONS = 2_000_000
"""The maximum number of comparisons of one expected with one actual call."""


_HEAVIEST = 10_000
"""The weight from which the arguments of a call count as heavy; counting stops there."""


class OutOfOrder(msgspec.Struct, frozen=True):
    """An expected call that was made in the wrong order."""

    tool_name: str
    expected_index: int
    actual_index: int


class ArgumentMismatch(msgspec.Struct, frozen=True):
    """An expected call whose tool was called with other arguments."""

    tool_name: str
    expected_args: Json
    actual_args: Json
    expected_index: int
    actual_index: int


class ToolCallMatch(msgspec.Struct, frozen=True):
    """How expected and actual calls pair up. Calls in `out_of_order` are in `missing` and `extra` too."""

    missing: tuple[ToolCall, ...]
    extra: tuple[ToolCall, ...]
    out_of_order: tuple[OutOfOrder, ...]
    argument_mismatches: tuple[ArgumentMismatch, ...]
    passed: bool


class MatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How expected and actual calls are compared. `check_options` validates the values."""

    order: CallOrder = "ignore"
    arguments: ArgumentMatch = "partial"
    max_extra: int | None = None
    negative: bool = False
    positive_only: bool = False
    """At least one call must have been made, even if none is expected by name."""


def check_options(options: MatchOptions) -> tuple[str, str] | None:
    """Return an invalid option and a message, or None if all options are valid."""
    # The values come from callers and files, so their types are checked here.
    closed: list[tuple[str, Json, tuple[str, ...]]] = [
        ("order", options.order, get_args(CallOrder)),
        ("arguments", options.arguments, get_args(ArgumentMatch)),
    ]
    for name, value, allowed in closed:
        if value not in allowed:
            suffix = suggest_one(value, allowed) if isinstance(value, str) else ""
            return name, f"{name}: expected one of {', '.join(allowed)}, found {show(value)}{suffix}"
    limit: Json = options.max_extra
    if limit is not None and (not is_integer(limit) or limit < 0):
        return "max_extra", f"max_extra: expected a whole number of at least 0, found {show(limit)}"
    if options.negative and options.positive_only:
        return "positive_only", "a negative expectation cannot be positive-only"
    return None


class Pairing:
    """Expected calls, prepared for comparison with the calls of many evidences."""

    __slots__ = ("_expected", "_options", "_rules")

    def __init__(self, expected: Sequence[ToolCall], options: MatchOptions) -> None:
        self._expected = tuple(expected)
        self._options = options
        self._rules: tuple[ArgumentRule | None, ...] = tuple(
            build_argument_rule(call.arguments or {}, match=options.arguments, values="placeholders") for call in self._expected
        )

    def match(self, actual: Sequence[ToolCall]) -> ToolCallMatch:
        """Pair the expected calls with the actual calls."""
        options = self._options
        if options.negative:
            return ToolCallMatch((), tuple(actual), (), (), passed=not actual)
        if options.positive_only and not actual:
            return ToolCallMatch(self._expected, (), (), (), passed=False)
        return _Attempt(self._expected, self._rules, tuple(actual), options).make_result()

    def iterate_ranges(self, actual: Sequence[ToolCall], find_path: Callable[[int], str]) -> Iterator[TextRange]:
        """Yield the ranges of characters in arguments that made calls pair up, if all did; `find_path` locates the arguments."""
        if self._options.negative:
            return
        attempt = _Attempt(self._expected, self._rules, tuple(actual), self._options)
        if not attempt.make_result().passed:
            return
        for index, at in sorted(attempt.pairs.items(), key=lambda pair: pair[1]):
            rule = self._rules[index]
            if rule is not None:
                yield from rule.iterate_ranges(actual[at].arguments, NO_SCOPE, find_path(at))

    def list_differences(self, mismatch: ArgumentMismatch, path: str) -> list[Difference]:
        """Return the differences of a mismatch by field; `path` is the path of the actual arguments in the evidence."""
        rule = self._rules[mismatch.expected_index]
        return [] if rule is None else rule.list_differences(mismatch.actual_args, NO_SCOPE, path)


class _Attempt:
    """One comparison: the actual call taken by each expected call."""

    def __init__(
        self, expected: tuple[ToolCall, ...], rules: tuple[ArgumentRule | None, ...], actual: tuple[ToolCall, ...], options: MatchOptions
    ) -> None:
        self.expected = expected
        self.rules = rules
        self.actual = actual
        self.options = options
        self.pairs: dict[int, int] = {}
        self.begins: list[int] = [0] * len(expected)
        """Superset: where the search for each expected call began."""
        self.comparisons = 0
        self.weights: dict[int, int] = {}
        # Only calls of the same name can pair, so with many names the work is far below the product of both lists.
        self.by_name: dict[str, list[int]] = {}
        for index, call in enumerate(actual):
            # A set, because an alias that equals the name must not list the call twice.
            for name in {call.name, *call.aliases}:
                self.by_name.setdefault(name, []).append(index)

    def make_result(self) -> ToolCallMatch:
        if self.options.order == "strict":
            self._pair_by_position()
        elif self.options.order == "superset":
            self._pair_forward()
        else:
            self.pairs = self._find_most_pairs(range(len(self.expected)), frozenset())
        # Before missing and extra calls are counted: a mismatch uses up one of each.
        mismatches = self._find_mismatches()
        used = set(self.pairs.values()) | {entry.actual_index for entry in mismatches}
        explained = {entry.expected_index for entry in mismatches}
        missing = [index for index in range(len(self.expected)) if index not in self.pairs and index not in explained]
        extra = [index for index in range(len(self.actual)) if index not in used]
        limit = self.options.max_extra
        return ToolCallMatch(
            tuple(self.expected[index] for index in missing),
            tuple(self.actual[index] for index in extra),
            self._find_out_of_order(missing, used, mismatches),
            tuple(mismatches),
            passed=not missing and not mismatches and (limit is None or len(extra) <= limit),
        )

    def _does_fit(self, expected_index: int, actual_index: int) -> bool:
        self.comparisons += 1
        # Limited by a count instead of a clock, so that the verdict is the same on every machine.
        if self.comparisons > MOST_COMPARISONS:
            raise CheckFault(
                "too_much_work",
                f"pairing {len(self.expected)} expected with {len(self.actual)} calls takes more than {MOST_COMPARISONS} comparisons",
            )
        # The cost of a comparison grows with the size of its arguments: a few huge calls cost as much as many small ones.
        known = self.weights.get(actual_index)
        if known is None:
            known = self.weights[actual_index] = estimate_work(self.actual[actual_index].arguments, _HEAVIEST)
        spend(1 + known)
        rule = self.rules[expected_index]
        call = self.actual[actual_index]
        return call.goes_by(self.expected[expected_index].name) and (rule is None or rule.fits(call.arguments, NO_SCOPE))

    def _pair_by_position(self) -> None:
        for index in range(min(len(self.expected), len(self.actual))):
            if self._does_fit(index, index):
                self.pairs[index] = index

    def _pair_forward(self) -> None:
        # The cursor never goes back, so each actual call is compared once; after a failed search it is at the end, so all later expected
        # calls are not found either, as the order requires.
        cursor = 0
        for index in range(len(self.expected)):
            self.begins[index] = cursor
            while cursor < len(self.actual):
                cursor += 1
                if self._does_fit(index, cursor - 1):
                    self.pairs[index] = cursor - 1
                    break

    def _find_most_pairs(self, wanted: Sequence[int], used: frozenset[int]) -> dict[int, int]:
        """Pair as many as possible of the expected calls `wanted` with the actual calls not in `used`.

        A greedy pairing is tried first: it compares far fewer calls and is usually enough.
        """
        pairs: dict[int, int] = {}
        names = {self.expected[index].name for index in wanted}
        # Used and taken calls are removed: passing them again for each expected call would cost the product of both lists.
        unused = {name: [at for at in self.by_name.get(name, ()) if at not in used] for name in names}
        free = {name: dict.fromkeys(places) for name, places in unused.items()}
        for index in wanted:
            at = next((at for at in free[self.expected[index].name] if self._does_fit(index, at)), None)
            if at is not None:
                pairs[index] = at
                # A call with aliases is listed under several names, and is removed from all of them when taken.
                for name in {self.actual[at].name, *self.actual[at].aliases} & names:
                    free[name].pop(at, None)
        if len(pairs) == len(wanted):
            return pairs
        # A call found no partner, perhaps because an earlier one took its only partner, so now all choices are compared.
        # At most as many candidates as there are expected calls: the others cannot use up all of them.
        edges = [
            list(islice((at for at in unused[self.expected[index].name] if self._does_fit(index, at)), len(wanted))) for index in wanted
        ]
        partners = find_maximum_pairing(edges, len(self.actual))
        return {index: at for index, at in zip(wanted, partners, strict=True) if at >= 0}

    def _find_mismatches(self) -> list[ArgumentMismatch]:
        mismatches: list[ArgumentMismatch] = []
        used = set(self.pairs.values())
        # Start positions and used calls only grow, so the list of each name is walked once.
        walks: dict[str, Iterator[int]] = {}
        for index, call in enumerate(self.expected):
            if index in self.pairs:
                continue
            if self.options.order == "strict":
                choices: Iterator[int] = iter((index,) if index < len(self.actual) and self.actual[index].goes_by(call.name) else ())
            else:
                choices = walks.setdefault(call.name, iter(self.by_name.get(call.name, ())))
            for at in choices:
                if at not in used and at >= self.begins[index]:
                    used.add(at)
                    mismatches.append(ArgumentMismatch(call.name, call.arguments, self.actual[at].arguments, index, at))
                    break
        return mismatches

    def _find_out_of_order(self, missing: list[int], used: set[int], mismatches: list[ArgumentMismatch]) -> tuple[OutOfOrder, ...]:
        if self.options.order == "ignore" or not missing:
            return ()
        made = self._find_most_pairs(missing, frozenset(used))
        if self.options.order == "superset":
            placed = {**self.pairs, **{entry.expected_index: entry.actual_index for entry in mismatches}, **made}
            # A call that the walk did not reach is only missing, unless it was made on the wrong side of another expected call.
            crossing = _find_crossing(placed)
            made = {index: at for index, at in made.items() if index in crossing}
        return tuple(OutOfOrder(self.expected[index].name, index, made[index]) for index in missing if index in made)


def _find_crossing(placed: dict[int, int]) -> set[int]:
    """Return the expected calls that were made before an earlier one or after a later one."""
    crossing: set[int] = set()
    indexes = sorted(placed)
    latest = -1
    for index in indexes:
        if placed[index] < latest:
            crossing.add(index)
        # One pass forward and one backward find every crossing; comparing all pairs would be quadratic.
        latest = max(latest, placed[index])
    earliest = max(placed.values(), default=0)
    for index in reversed(indexes):
        if placed[index] > earliest:
            crossing.add(index)
        earliest = min(earliest, placed[index])
    return crossing
