"""How much work a backtracking engine can be made to do by a plain pattern: the proof behind the fast path.

For a part of a pattern and a text of n characters two numbers are bounded from above: `work`, the steps spent inside the part when it is
entered once, and `ways`, how often what follows it can be entered because of that. From these:

    one character           work 1                          ways 1
    x y                     work(x) + ways(x) * work(y)     ways(x) * ways(y)
    x | y                   the sum of both                 the sum; only the larger one if no character can begin both
    x{a,b}, r rounds        work(x) * ways(x)^0..r          ways(x)^a..r; one if no character can both begin x and follow the loop

In the last row, giving back a round puts the engine before a character that begins x, so what follows fails at once unless some
character can do both. A search enters the pattern in vain at most once per position (never beyond the first step if it is tied to
the start of the text), and once with success.

The bound is compared with a budget, which gives the longest text the uninterruptible engine may see. Nested loops that can share
characters bound to something exponential, so no text is short enough and the slow, interruptible engine takes the pattern.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proctor.patterns.plain_syntax import EVERYTHING, Boundary, Chars, Choice, Group, Node, Repeat, Sequence, is_never_empty

BUDGET: Final = 20_000_000
"""Steps; about 70 ms."""
_LENGTHS: Final = (1_000_000, 250_000, 64_000, 16_000, 8_000, 4_000, 3_000, 2_000, 1_000, 500, 250)
"""Lengths of texts that the proof is tried for, in characters, the longest first."""
_LARGEST: Final = 4_000
"""Steps of the shortest way through a pattern beyond which the proof itself would take too long."""
_CAPTURE: Final = 10
"""What keeping or forgetting a captured group costs, in steps (measured)."""
_HOPELESS: Final = BUDGET + 1
"""The cost that numbers are cut at: an exact figure beyond the budget decides nothing, and could have millions of digits."""


class _Cost(NamedTuple):
    work: int
    ways: int


def find_longest_text(node: Node) -> int:
    """Return the longest text on which a search for this pattern stays within the budget; 0 when there is none worth having."""
    if _measure_size(node) > _LARGEST:
        return 0
    return next((length for length in _LENGTHS if search_cost(node, length) <= BUDGET), 0)


def search_cost(node: Node, length: int) -> int:
    """Return an upper bound of the steps of one search in a text of this length."""
    # Tied to the start of the text, every position but the first fails at its first step, which the factor below counts.
    if _is_tied_to_start(node):
        vain = 1
    else:
        cost = _find_cost(_cut_last_loop(node), length, EVERYTHING)
        vain = cost.work + cost.ways
    # The one attempt that succeeds may run through the last loop as well, so it is counted whole and once.
    last = _find_cost(node, length, EVERYTHING)
    return (length + 1) * vain + last.work + last.ways


def _cut_last_loop(node: Node) -> Node:
    """Return what an attempt in vain can get through: a loop at the very end that has its least count makes the attempt a success."""
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
            # A group costs where it begins and ends; it adds no way through.
            return _Cost(inner.work + _CAPTURE, inner.ways)
        case Sequence(items):
            return _cost_sequence(items, length, follow)
        case Choice(options):
            return _cost_choice(options, length, follow)
        case Repeat():
            return _cost_repeat(node, length, follow)


def _cost_sequence(items: tuple[Node, ...], length: int, follow: int) -> _Cost:
    work, ways = 1, 1
    # From the back: what a loop costs depends on which characters can follow it, and those are known only behind it.
    for item in reversed(items):
        cost = _find_cost(item, length, follow)
        work, ways = _cap(cost.work + cost.ways * work), _cap(cost.ways * ways)
        # An item that can be empty lets through to what stands behind it.
        follow = _find_first_characters(item) | (0 if is_never_empty(item) else follow)
    return _Cost(work, ways)


def _cost_choice(options: tuple[Node, ...], length: int, follow: int) -> _Cost:
    costs = [_find_cost(option, length, follow) for option in options]
    seen = 0
    exclusive = True
    for option in options:
        # An option that can be empty goes on with whatever follows, so no character can rule it out.
        first = _find_first_characters(option) if is_never_empty(option) else EVERYTHING
        exclusive = exclusive and not seen & first
        seen |= first
    # The first character decides which option can match at all; the others fail at their first step, which the addend pays for.
    if exclusive:
        return _Cost(max(cost.work for cost in costs) + 2 * len(costs), max(cost.ways for cost in costs))
    return _Cost(_cap(sum(cost.work for cost in costs) + len(costs)), _cap(sum(cost.ways for cost in costs)))


def _cost_repeat(node: Repeat, length: int, follow: int) -> _Cost:
    first = _find_first_characters(node.body)
    # Every round takes a character at least (`plain_syntax` lets no other loop through), so there are no more rounds than characters.
    rounds = length if node.most is None else min(node.most, length)
    # Behind one round stands the next round or what follows the loop.
    inner = _find_cost(node.body, length, first | follow)
    # Entering a round also forgets what its groups captured.
    per_round = inner.work + 2 + _CAPTURE * _count_groups(node.body)
    # Every round can be left in one way only, so giving back rounds is linear: no round is tried again in another way.
    if inner.ways == 1:
        # If no character can both begin a round and follow the loop, giving back a round leads nowhere and counts as no way out.
        exits = 1 if not first & follow else rounds + 1
        return _Cost(_cap((rounds + 1) * (per_round + 1)), exits)
    # With two ways per round 25 rounds have over 60 million paths, which is beyond the budget; the sum need not be built.
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
            # A boundary takes no character, so nothing can be excluded by it.
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
                # Items that may be empty are stepped over; the first one that cannot be ends the search.
                mask |= _find_first_characters(item)
                if is_never_empty(item):
                    break
            return mask


def _is_tied_to_start(node: Node) -> bool:
    match node:
        case Boundary(at_start):
            return at_start
        case Group(body):
            return _is_tied_to_start(body)
        case Sequence(items):
            return bool(items) and _is_tied_to_start(items[0])
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
    """Return how many steps the shortest way through has at most, loops unrolled to their least count."""
    match node:
        case Chars() | Boundary():
            return 1
        case Group(body):
            return 1 + _measure_size(body)
        case Repeat(body, least, _):
            return max(1, least) * _measure_size(body)
        case Sequence(items) | Choice(items):
            return 1 + sum(_measure_size(item) for item in items)
