"""Pairing two groups as far as possible: a maximum matching of a bipartite graph (Hopcroft and Karp).

Taking the first partner that fits would miss pairings: with expected `["*", "a"]` and actual `["a", "b"]` the wildcard must leave
the `a` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

_FREE = -1


def find_maximum_pairing(edges: Sequence[Sequence[int]], width: int) -> list[int]:
    """Return for every left element the right one it is paired with, or -1; as many pairs as possible.

    `edges[left]` lists the right elements that fit it, of `width` in all.
    """
    partner_of_left = [_FREE] * len(edges)
    partner_of_right = [_FREE] * width
    while True:
        layer = _build_layers(edges, partner_of_left, partner_of_right)
        if layer is None:
            return partner_of_left
        for left in range(len(edges)):
            if partner_of_left[left] == _FREE:
                _augment_path(left, edges, layer, partner_of_left, partner_of_right)


def _build_layers(edges: Sequence[Sequence[int]], of_left: list[int], of_right: list[int]) -> list[int] | None:
    """Return how far every left element is from a free one over alternating paths, or None if no path can be improved."""
    # All shortest improvements are made in one round, so there are at most about the square root of the elements many rounds.
    layer = [0 if partner == _FREE else _FREE for partner in of_left]
    queue = [left for left, distance in enumerate(layer) if distance == 0]
    improvable = False
    # The list grows while it is walked: a queue without removals.
    for left in queue:
        for right in edges[left]:
            other = of_right[right]
            if other == _FREE:
                improvable = True
            elif layer[other] == _FREE:
                layer[other] = layer[left] + 1
                queue.append(other)
    return layer if improvable else None


def _augment_path(start: int, edges: Sequence[Sequence[int]], layer: list[int], of_left: list[int], of_right: list[int]) -> None:
    """Turn one alternating path from `start` round, if there is one along the layers. Keeps its own stack."""
    path: list[tuple[int, int]] = []
    # The iterators remember where the search of each element stopped: coming back to one goes on with its next edge.
    stack = [(start, iter(edges[start]))]
    while stack:
        left, choices = stack[-1]
        for right in choices:
            other = of_right[right]
            if other == _FREE:
                path.append((left, right))
                # Every pair on the path is exchanged, which frees no element and binds one more.
                for one, two in path:
                    of_left[one], of_right[two] = two, one
                return
            if layer[other] == layer[left] + 1:
                path.append((left, right))
                stack.append((other, iter(edges[other])))
                break
        else:
            layer[left] = -2  # A dead end for this round.
            stack.pop()
            if path:
                path.pop()
