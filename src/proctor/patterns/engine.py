"""Regular expressions for every dialect: ECMAScript, searched anywhere, always within limits.

Two engines implement the same language. `regress` is fast but cannot be interrupted: it runs patterns that `plain_syntax` parses and that
are proven cheap below. All others, and texts longer than the proof covers, run on QuickJS, which can be. QuickJS is also used if
the two are known to differ (case folding beyond ASCII, characters outside the basic plane without the `u` flag).

A pattern of more than 10 000 characters is rejected, and so is a text of more than 1 000 000.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from proctor.errors import CheckFault
from proctor.model.show import show
from proctor.patterns import script_engine
from proctor.patterns.faults import PatternError, Span, from_utf8, from_utf16, has_surrogates, is_within_basic_plane
from proctor.patterns.plain_syntax import (
    EVERYTHING,
    Boundary,
    Chars,
    Choice,
    Group,
    Node,
    Plain,
    Repeat,
    Sequence,
    is_never_empty,
    read_plain,
)
from proctor.work import spend

if TYPE_CHECKING:
    from regress import Regex

# The cost of a plain pattern in a backtracking engine: the proof for the fast path

BUDGET: Final = 20_000_000
"""The maximum number of steps; about 70 ms."""
_LENGTHS: Final = (1_000_000, 250_000, 64_000, 16_000, 8_000, 4_000, 3_000, 2_000, 1_000, 500, 250)
"""The text lengths in characters for which the proof is tried, longest first."""
_LARGEST: Final = 4_000
"""The maximum length in steps of the shortest way through a pattern; beyond it the proof itself would take too long."""
_CAPTURE: Final = 10
"""The measured cost of storing or clearing a captured group, in steps."""
_HOPELESS: Final = BUDGET + 1
"""The cap on costs: exact figures beyond the budget do not matter and could have millions of digits."""


class _Cost(NamedTuple):
    work: int
    ways: int


def find_longest_text(node: Node) -> int:
    """Return the longest text on which a search for this pattern stays within the budget; 0 if there is none."""
    if _measure_size(node) > _LARGEST:
        return 0
    return next((length for length in _LENGTHS if compute_search_cost(node, length) <= BUDGET), 0)


def compute_search_cost(node: Node, length: int) -> int:
    """Return an upper bound of the steps of one search in a text of this length."""
    # If it is anchored at the start, every position but the first fails at its first step, which the factor below counts.
    if _is_anchored_at_start(node):
        failed_attempts = 1
    else:
        cost = _find_cost(_cut_last_loop(node), length, EVERYTHING)
        failed_attempts = cost.work + cost.ways
    # The one successful attempt may run through the last loop as well, so it is counted in full, once.
    last = _find_cost(node, length, EVERYTHING)
    return (length + 1) * failed_attempts + last.work + last.ways


def _cut_last_loop(node: Node) -> Node:
    """Return the part that a failed attempt can reach: a loop at the very end that has its minimum count means success."""
    match node:
        case Sequence(items) if items:
            return Sequence((*items[:-1], _cut_last_loop(items[-1])))
        case Repeat(body, least, _):
            return Repeat(body, least, least)
        case _:
            return node


def _find_cost(node: Node, length: int, follow: int) -> _Cost:
    match node:
        case Chars() | Boundary():
            return _Cost(1, 1)
        case Group(body):
            inner = _find_cost(body, length, follow)
            # A group costs at its start and end; it adds no alternative.
            return _Cost(inner.work + _CAPTURE, inner.ways)
        case Sequence(items):
            return _cost_sequence(items, length, follow)
        case Choice(options):
            return _cost_choice(options, length, follow)
        case Repeat():
            return _cost_repeat(node, length, follow)


def _cost_sequence(items: tuple[Node, ...], length: int, follow: int) -> _Cost:
    work, ways = 1, 1
    # Backwards: the cost of a loop depends on the characters that can follow it.
    for item in reversed(items):
        cost = _find_cost(item, length, follow)
        work, ways = _cap(cost.work + cost.ways * work), _cap(cost.ways * ways)
        # An item that can be empty lets its successors follow as well.
        follow = _find_first_characters(item) | (0 if is_never_empty(item) else follow)
    return _Cost(work, ways)


def _cost_choice(options: tuple[Node, ...], length: int, follow: int) -> _Cost:
    costs = [_find_cost(option, length, follow) for option in options]
    earlier = 0
    exclusive = True
    for option in options:
        # An option that can be empty continues with whatever follows, so no character can rule it out.
        first = _find_first_characters(option) if is_never_empty(option) else EVERYTHING
        exclusive = exclusive and not earlier & first
        earlier |= first
    # The first character decides which option can match; the others fail at their first step, which the addend counts.
    if exclusive:
        return _Cost(max(cost.work for cost in costs) + 2 * len(costs), max(cost.ways for cost in costs))
    return _Cost(_cap(sum(cost.work for cost in costs) + len(costs)), _cap(sum(cost.ways for cost in costs)))


def _cost_repeat(node: Repeat, length: int, follow: int) -> _Cost:
    first = _find_first_characters(node.body)
    # Every round takes at least one character (`plain_syntax` rejects other loops), so there are at most as many rounds as characters.
    rounds = length if node.most is None else min(node.most, length)
    # One round is followed by another round or by whatever follows the loop.
    inner = _find_cost(node.body, length, first | follow)
    # Entering a round also clears its captured groups.
    per_round = inner.work + 2 + _CAPTURE * _count_groups(node.body)
    # Every round has only one exit, so backtracking is linear: no round is retried in another way.
    if inner.ways == 1:
        # If no character can both begin a round and follow the loop, giving back a round cannot succeed and is not an exit.
        exits = 1 if not first & follow else rounds + 1
        return _Cost(_cap((rounds + 1) * (per_round + 1)), exits)
    # With two ways per round, 25 rounds have over 60 million paths, which exceeds the budget without computing the sum.
    if rounds > 24:
        return _Cost(_HOPELESS, _HOPELESS)
    paths = sum(inner.ways**turn for turn in range(rounds + 1))
    return _Cost(_cap(paths * (per_round + 1)), _cap(paths))


def _cap(number: int) -> int:
    return min(number, _HOPELESS)


def _find_first_characters(node: Node) -> int:
    """Return the characters that a non-empty match of this part can begin with."""
    match node:
        case Chars(mask):
            return mask
        case Boundary():
            # A boundary takes no character, so it excludes nothing.
            return EVERYTHING
        case Group(body) | Repeat(body, _, _):
            return _find_first_characters(body)
        case Choice(options):
            mask = 0
            for option in options:
                mask |= _find_first_characters(option)
            return mask
        case Sequence(items):
            mask = 0
            for item in items:
                # Items that may be empty are skipped; the first that cannot be empty ends the search.
                mask |= _find_first_characters(item)
                if is_never_empty(item):
                    break
            return mask


def _is_anchored_at_start(node: Node) -> bool:
    match node:
        case Boundary(at_start):
            return at_start
        case Group(body):
            return _is_anchored_at_start(body)
        case Sequence(items):
            return bool(items) and _is_anchored_at_start(items[0])
        case _:
            return False


def _count_groups(node: Node) -> int:
    match node:
        case Chars() | Boundary():
            return 0
        case Group(body):
            return 1 + _count_groups(body)
        case Repeat(body, _, _):
            return _count_groups(body)
        case Sequence(items) | Choice(items):
            return sum(_count_groups(item) for item in items)


def _measure_size(node: Node) -> int:
    """Return the maximum number of steps of the shortest way through, with loops unrolled to their minimum count."""
    match node:
        case Chars() | Boundary():
            return 1
        case Group(body):
            return 1 + _measure_size(body)
        case Repeat(body, least, _):
            return max(1, least) * _measure_size(body)
        case Sequence(items) | Choice(items):
            return 1 + sum(_measure_size(item) for item in items)


__all__ = ["FLAGS", "LONGEST_PATTERN", "LONGEST_TEXT", "Pattern", "PatternError", "PatternMatch", "compile_pattern"]

FLAGS: Final = "imsu"
LONGEST_PATTERN: Final = 10_000
"""The maximum length of a pattern in characters, because parsing and compiling take time too."""
LONGEST_TEXT: Final = 1_000_000
"""The maximum length in characters of a text for the slow engine."""
SLOW_SEARCH: Final = 1_000
"""The cost in steps of a search by the slow engine: each search is limited by itself, and this limits how many an assertion may make."""

_FLAG_REASONS: Final = {
    "g": "a search stops at the first match, so `g` means nothing here",
    "y": "a search may begin anywhere, so `y` cannot be used",
    "d": "positions are always recorded, so `d` has no effect",
    "v": "`v` is not supported; `u` is",
    "x": "ECMAScript has no extended mode",
}


_Pair = tuple[int, int] | list[int] | None
"""The ends of a group in the units of an engine; None for one that did not take part."""


class PatternMatch(msgspec.Struct, frozen=True):
    """The position of a match. Positions are Python indices; a group that did not take part is `None`."""

    start: int
    end: int
    text: str
    groups: tuple[str | None, ...]
    named: dict[str, str | None]


class Pattern:
    """A compiled pattern; safe to share between threads."""

    __slots__ = ("_fast", "_fold", "_plain", "_unicode", "fast_limit", "flags", "source")

    def __init__(self, source: str, flags: str, plain: Plain | None, fast_limit: int) -> None:
        self.source = source
        self.flags = flags
        self._plain = plain
        self.fast_limit = fast_limit
        """The longest text for the fast engine; 0 means none."""
        self._fold = "i" in flags
        self._unicode = "u" in flags
        self._fast: Regex | None = None

    def __repr__(self) -> str:
        return f"Pattern(/{self.source}/{self.flags})"

    def search(self, text: str) -> PatternMatch | None:
        """Return the leftmost match, or None. Raises `CheckFault` if a limit is reached."""
        # A limit of 0 means that nothing was proven; then even an empty text goes to the engine that can be stopped.
        if 0 < self.fast_limit >= len(text) and self._is_same_in_both(text):
            return self._search_fast(text)
        if len(text) > LONGEST_TEXT:
            raise CheckFault(
                "regex_limit",
                f"the text has {len(text)} characters; the pattern {show(self.source)} is searched in at most {LONGEST_TEXT}",
            )
        return self._search_script(text)

    def _is_same_in_both(self, text: str) -> bool:
        # The two engines fold case differently beyond ASCII, and count characters outside the basic plane differently without `u`. Checked
        # first, because CPython stores the answer with the text.
        if text.isascii():
            return True
        if self._fold:
            return False
        return not has_surrogates(text) if self._unicode else is_within_basic_plane(text)

    def _search_fast(self, text: str) -> PatternMatch | None:
        regex = self._fast
        if regex is None:
            from regress import Regex  # loaded when the first pattern needs it

            # Two threads may compile at the same time; both results are the same and one of them wins.
            regex = self._fast = Regex(self.source, self.flags or None)
        match, plain = regex.find(text), self._plain
        if match is None:
            return None
        assert plain is not None
        found = [match.group(number) for number in range(plain.groups + 1)]
        spans = [None if each is None else (each.start, each.stop) for each in found]
        return _make_match(text, from_utf8(text), tuple(spans), {name: spans[number] for name, number in plain.names})

    def _search_script(self, text: str) -> PatternMatch | None:
        # A loop over thousands of calls must not multiply the time limit of one search.
        spend(SLOW_SEARCH)
        match = script_engine.search(self.source, self.flags, text)
        return None if match is None else _make_match(text, from_utf16(text), tuple(match.spans), match.named)


def _make_match(text: str, to_characters: Callable[[int, int], Span], spans: tuple[_Pair, ...], named: Mapping[str, _Pair]) -> PatternMatch:
    def read(pair: _Pair) -> str | None:
        if pair is None:
            return None
        start, end = to_characters(pair[0], pair[1])
        return text[start:end]

    whole = spans[0]
    assert whole is not None
    start, end = to_characters(whole[0], whole[1])
    return PatternMatch(start, end, text[start:end], tuple(map(read, spans[1:])), {name: read(pair) for name, pair in named.items()})


@functools.lru_cache(maxsize=2048)
def compile_pattern(source: str, flags: str = "") -> Pattern:
    """Compile a pattern. Raises `PatternError` if it is not ECMAScript, too long, or has unknown flags."""
    # The result depends on pattern and flags alone, so one cache serves every suite of the process. Rejections are not cached.
    for position, flag in enumerate(flags):
        if flag not in FLAGS:
            reason = _FLAG_REASONS.get(flag, f"the flags are {', '.join(FLAGS)}")
            raise PatternError(f"unknown regular expression flag {show(flag)}: {reason}")
        if flag in flags[:position]:
            raise PatternError(f"the regular expression flag {show(flag)} is given twice")
    if len(source) > LONGEST_PATTERN:
        raise PatternError(f"the pattern has {len(source)} characters; at most {LONGEST_PATTERN} are allowed")
    plain = read_plain(source, flags)
    limit = 0 if plain is None else find_longest_text(plain.node)
    # `read_plain` has validated every pattern for the fast engine; only the others still need validation.
    if limit == 0:
        script_engine.validate(source, flags)
    return Pattern(source, flags, plain, limit)
