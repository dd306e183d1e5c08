"""Near misses: keys that differ from a known key by one letter or by how words are joined."""

from __future__ import annotations

from collections.abc import Collection


def is_misspelt(key: str, known: Collection[str]) -> bool:
    """Return whether a key is a known one with one letter more, less or different."""
    return key not in known and any(_one_letter_apart(key, word) for word in known)


def _one_letter_apart(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    # After the first difference the rest must be equal, with one letter left out of the longer text, or of both if they are as long.
    same = next((index for index, letter in enumerate(one) if letter != other[index]), len(one))
    return one[same + (len(one) == len(other)) :] == other[same + 1 :]
