"""Near misses: keys that differ from a known key by one letter or by two swapped letters."""

from __future__ import annotations

from collections.abc import Collection


def is_misspelt(key: str, known: Collection[str]) -> bool:
    """Return whether a key is a known one with one letter more, less or different, or with two neighbouring letters swapped."""
    return key not in known and any(_is_near(key, word) for word in known)


def _is_near(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    # After the first difference the rest must be equal, with one letter left out of the longer text, or of both if they are as long.
    same = next((index for index, letter in enumerate(one) if letter != other[index]), len(one))
    if len(one) < len(other):
        return one[same:] == other[same + 1 :]
    return one[same + 1 :] == other[same + 1 :] or (
        one[same : same + 2] == other[same : same + 2][::-1] and one[same + 2 :] == other[same + 2 :]
    )
