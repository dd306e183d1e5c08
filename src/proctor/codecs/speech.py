"""How spoken words are compared: transcripts write the same words differently.

1. Text is brought to Unicode form NFKC and case-folded.
2. Apostrophes are dropped (`don't` is `dont`); every other character that is no letter, mark or digit (hyphens too) ends a word.
3. The words `zero` to `nine` are digits, and so are `oh` and `o` next to a digit; `double` and `triple` before a digit repeat it.
4. Digits stand alone: `42`, `4 2` and `four two` are the same. A match may not begin or end inside a word, so `42` is not
   found in `421`; but it is in `four two one`, where each digit is its own word.
5. Invisible characters (soft hyphens, zero-width spaces) are dropped, a soft hyphen with the line break after it.
6. Letters that are spelled out are one word as well: `H.I.V.`, `H-I-V` and `H I V` also read as `HIV`.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from proctor.work import Spend

_APOSTROPHES = re.compile("['\u2018\u2019\u02bc\u0060\u00b4]|\u00ad[ \\t]*\r?\n[ \\t]*")
_SPELLED = re.compile("(?<= )[^\\W\\d_]( [^\\W\\d_])+(?= )")
_DIGITS = {word: str(value) for value, word in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))}
_REPEATS = {"double": 2, "triple": 3}
_ZEROS = ("oh", "o")


class Speech(msgspec.Struct, frozen=True):
    """Normalised words: units between spaces, and the positions where words begin and end."""

    text: str
    """` member id 4 2 `: every unit has a space on both sides."""
    begins: frozenset[int]
    """Positions in `text` of the space before a word."""
    ends: frozenset[int]
    """Positions in `text` of the space after a word."""
    joined: Speech | None = None
    """The same with spelled-out letters read as one word, if there are any."""

    def contains(self, phrase: Speech, spend: Spend = lambda steps: None) -> bool:
        """Return whether the units of `phrase` occur here in sequence, from the beginning of a word to the end of one."""
        texts, phrases = ([one, one.joined] if one.joined is not None else [one] for one in (self, phrase))
        return any(text._contains_units(wanted.text, spend) for text in texts for wanted in phrases)

    def _contains_units(self, wanted: str, spend: Spend) -> bool:
        at = self.text.find(wanted)
        # A long number may contain the digits of a phrase at every position, but begins a word at only one.
        each = 1 + len(wanted) // 64
        while at >= 0:
            spend(each)
            if at in self.begins and at + len(wanted) - 1 in self.ends:
                return True
            at = self.text.find(wanted, at + 1)
        return False


def normalize(text: str) -> Speech:
    """Return text in the form in which speech is compared."""
    folded = _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text)).casefold()
    words = "".join(map(_read_character, folded)).split()
    speech = _join_units(_split_units(words))
    joined = _SPELLED.sub(lambda match: match.group().replace(" ", ""), f" {' '.join(words)} ").split()
    return speech if joined == words else msgspec.structs.replace(speech, joined=_join_units(_split_units(joined)))


def _join_units(words: list[list[str]]) -> Speech:
    parts: list[str] = [" "]
    begins: set[int] = set()
    ends: set[int] = set()
    length = 1
    for units in words:
        begins.add(length - 1)
        for unit in units:
            parts.append(unit + " ")
            length += len(unit) + 1
        ends.add(length - 1)
    return Speech("".join(parts), frozenset(begins), frozenset(ends))


def _read_character(char: str) -> str:
    if char.isalnum():
        return char
    category = unicodedata.category(char)
    return char if category[0] == "M" else "" if category == "Cf" else " "


def _split_units(words: list[str]) -> list[list[str]]:
    """Return each word as its units: one for a word, one per digit for a number; `double five` is two words."""
    folded = _read_zeros([_DIGITS.get(word, word) for word in words])
    units: list[list[str]] = []
    position = 0
    while position < len(folded):
        word = folded[position]
        following = folded[position + 1] if position + 1 < len(folded) else ""
        if word in _REPEATS and len(following) == 1 and following.isdecimal():
            units.extend([[_read_digit(following)]] * _REPEATS[word])
            position += 2
        else:
            units.append(_split_word(word))
            position += 1
    return units


def _read_zeros(words: list[str]) -> list[str]:
    """Read `oh` next to a digit as zero, from the end, so that several before a digit (`oh oh seven`) are all read."""
    for step, order in ((1, range(len(words) - 2, -1, -1)), (-1, range(1, len(words)))):
        for position in order:
            neighbour = words[position + step]
            if words[position] in _ZEROS and (neighbour[:1] if step > 0 else neighbour[-1:]).isdecimal():
                words[position] = "0"
    return words


def _split_word(word: str) -> list[str]:
    if word.isalpha():
        return [word]
    units: list[str] = []
    for char in word:
        if char.isdecimal():
            units.append(_read_digit(char))
        elif units and not units[-1][-1].isdecimal():
            units[-1] += char
        else:
            units.append(char)
    return units


def _read_digit(char: str) -> str:
    """Return an ASCII digit, also for the digits of other scripts."""
    return str(unicodedata.decimal(char))
