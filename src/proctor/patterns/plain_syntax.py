"""Parses the subset of ECMAScript patterns that the fast engine may run.

It is a filter, not a validator. What it accepts is valid ECMAScript and means the same in both engines, which a differential test checks.
Everything else (look-around, back references, property escapes, modifiers, Annex B leniencies, an empty loop body) gives `None` and goes to
the slow engine.

Character sets are bit masks: bits 0 to 127 are the ASCII characters, bit 128 is all others together. A mask may contain too
much, never too little, so disjoint masks mean disjoint sets.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_DEEPEST: Final = 40
"""The maximum nesting of groups; a deeper pattern is left to the slow engine."""
_MOST_REPEATS: Final = 1000
"""The largest count in braces; a pattern with a larger one is left to the slow engine."""

OTHERS: Final = 1 << 128
"""The bit for every character beyond ASCII: the proof need not distinguish them."""
EVERYTHING: Final = (1 << 129) - 1
"""The mask of all characters."""


def _make_mask(characters: str) -> int:
    total = 0
    for character in characters:
        total |= 1 << ord(character)
    return total


_DIGITS: Final = _make_mask("0123456789")
_LETTERS_UPPER: Final = _make_mask("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# In ASCII a lower-case letter is its capital plus 32.
_LETTERS_LOWER: Final = _LETTERS_UPPER << 32
_WORD: Final = _DIGITS | _LETTERS_UPPER | _LETTERS_LOWER | _make_mask("_")
# White space beyond ASCII (U+00A0, U+FEFF and more) shares its bit with all other characters there, so both `\s` and `\S` have that bit.
_SPACE: Final = _make_mask("\t\n\v\f\r ") | OTHERS
_CLASSES: Final = {
    "d": _DIGITS,
    "D": EVERYTHING & ~_DIGITS,
    "w": _WORD,
    "W": EVERYTHING & ~_WORD,
    "s": _SPACE,
    "S": (EVERYTHING & ~_SPACE) | OTHERS,
}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_SYNTAX: Final = "^$\\.*+?()[]{}|/"
_BOUNDS: Final = re.compile(r"\{([0-9]{1,4})(,([0-9]{1,4})?)?\}")
_HEX: Final = "0123456789abcdefABCDEF"


class Chars(NamedTuple):
    """One character out of a set."""

    mask: int


class Boundary(NamedTuple):
    r"""`^`, `$`, `\b` or `\B`: has no width. `at_start` marks the `^` that holds only at the start of the text."""

    at_start: bool


class Sequence(NamedTuple):
    """A sequence of parts."""

    items: tuple[Node, ...]


class Choice(NamedTuple):
    """Alternatives, tried in order."""

    options: tuple[Node, ...]


class Group(NamedTuple):
    """A capturing group."""

    body: Node


class Repeat(NamedTuple):
    """A quantifier; `most` is `None` if it is unlimited."""

    body: Node
    least: int
    most: int | None


Node = Chars | Boundary | Sequence | Choice | Group | Repeat


class Plain(NamedTuple):
    """A fully parsed pattern."""

    node: Node
    groups: int
    names: tuple[tuple[str, int], ...]
    """Named groups and their numbers."""


class _NotPlain(Exception):
    """The pattern uses syntax that this parser leaves to the slow engine."""


def read_plain(source: str, flags: str) -> Plain | None:
    """Return the structure of a plain pattern, or `None`."""
    if not (source.isascii() or all(character < "\ud800" or "\udfff" < character <= "\uffff" for character in source)):
        return None
    try:
        return _Reader(source, flags).read()
    except _NotPlain:
        return None


class _Reader:
    def __init__(self, source: str, flags: str) -> None:
        self.source = source
        self.at = 0
        self.fold = "i" in flags
        self.unicode = "u" in flags
        self.multiline = "m" in flags
        self.dot_all = "s" in flags
        self.groups = 0
        self.names: list[tuple[str, int]] = []
        self.depth = 0

    def read(self) -> Plain:
        node = self.read_choice()
        if self.at != len(self.source):
            raise _NotPlain
        return Plain(node, self.groups, tuple(self.names))

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise _NotPlain
        self.at += 1
        return character

    def accept(self, text: str) -> bool:
        if self.source.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def read_choice(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotPlain
        options = [self.read_sequence()]
        while self.accept("|"):
            options.append(self.read_sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def read_sequence(self) -> Node:
        items: list[Node] = []
        while (character := self.peek()) and character not in "|)":
            atom = self.read_atom()
            items.append(atom if isinstance(atom, Boundary) else self.read_quantified(atom))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def read_atom(self) -> Node:
        character = self.take()
        match character:
            case "^":
                return self.read_boundary(Boundary(not self.multiline))
            case "$":
                return self.read_boundary(Boundary(False))
            case ".":
                # It excludes U+2028 and U+2029 as well, but they share a bit with all characters beyond ASCII: too much is allowed, too
                # little is not.
                return Chars(EVERYTHING if self.dot_all else EVERYTHING & ~_make_mask("\n\r"))
            case "(":
                return self.read_group()
            case "[":
                return self.read_class()
            case "\\":
                if self.peek() in ("b", "B"):
                    self.at += 1
                    return self.read_boundary(Boundary(False))
                return Chars(self.fold_case(self.read_escape(in_class=False)[0]))
            # Without `u` an unmatched bracket is a literal (Annex B); with `u` it is an error.
            case _ if character in "*+?{}]":
                raise _NotPlain
            case _:
                return Chars(self.fold_case(self.make_character_set(character)))

    def read_boundary(self, boundary: Boundary) -> Boundary:
        # A quantified boundary is an error or an Annex B leniency, never plain.
        if self.peek() in ("*", "+", "?", "{"):
            raise _NotPlain
        return boundary

    def make_character_set(self, character: str) -> int:
        if ord(character) < 128:
            return 1 << ord(character)
        if self.fold:
            # The engines use different folding tables beyond ASCII.
            raise _NotPlain
        return OTHERS

    def fold_case(self, mask: int) -> int:
        if not self.fold:
            return mask
        return mask | ((mask & _LETTERS_UPPER) << 32) | ((mask & _LETTERS_LOWER) >> 32)

    def read_group(self) -> Node:
        captures = True
        if self.accept("?:"):
            captures = False
        elif self.accept("?<"):
            end = self.source.find(">", self.at)
            name = self.source[self.at : end] if end != -1 else ""
            # Newer editions allow a duplicate name if only one of the two can take part; only the slow engine knows when.
            if not (name.isascii() and name.isidentifier()) or any(name == known for known, _ in self.names):
                raise _NotPlain
            self.names.append((name, self.groups + 1))
            self.at = end + 1
        elif self.peek() == "?":
            raise _NotPlain
        if captures:
            self.groups += 1
            if self.groups > 100:
                raise _NotPlain
        body = self.read_choice()
        if not self.accept(")"):
            raise _NotPlain
        return Group(body) if captures else body

    def read_escape(self, *, in_class: bool) -> tuple[int, int | None]:
        """Return the set of an escape, and its code if it is one character."""
        character = self.take()
        if character in _CLASSES:
            if in_class and self.fold and character == "W":
                # The fast engine applies case folding to such a class; ECMAScript does not.
                raise _NotPlain
            return _CLASSES[character], None
        if character in _CONTROLS:
            code = ord(_CONTROLS[character])
        elif character in _SYNTAX or (character == "-" and (in_class or not self.unicode)):
            code = ord(character)
        elif character in "xu":
            length = 2 if character == "x" else 4
            digits = self.source[self.at : self.at + length]
            if len(digits) != length or any(digit not in _HEX for digit in digits):
                raise _NotPlain
            self.at += length
            code = int(digits, 16)
            if 0xD800 <= code <= 0xDFFF:
                raise _NotPlain
        else:
            raise _NotPlain
        return self.make_character_set(chr(code)), code

    def read_class(self) -> Chars:
        negated = self.accept("^")
        mask = 0
        while not self.accept("]"):
            item, low = self.read_class_atom()
            if self.peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                _, high = self.read_class_atom()
                # `[\d-x]` is a leniency of Annex B, and an error with `u`.
                if low is None or high is None or high < low:
                    raise _NotPlain
                item = OTHERS if high > 127 else 0
                if low < 128:
                    item |= ((1 << (min(high, 127) + 1)) - 1) & ~((1 << low) - 1)
                if self.fold and item & OTHERS:
                    raise _NotPlain
            mask |= item
        mask = self.fold_case(mask)
        # The bit for non-ASCII characters stays: the class may exclude some of them and include the rest.
        return Chars((EVERYTHING & ~mask) | OTHERS if negated else mask)

    def read_class_atom(self) -> tuple[int, int | None]:
        character = self.take()
        if character == "\\":
            if self.peek() == "b":
                self.at += 1
                return self.make_character_set("\b"), 8
            return self.read_escape(in_class=True)
        return self.make_character_set(character), ord(character)

    def read_quantified(self, atom: Node) -> Node:
        character = self.peek()
        if character in ("*", "+", "?"):
            self.at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        elif character == "{":
            least, most = self.read_bounds()
        else:
            return atom
        # Lazy or greedy changes the order of attempts, not their number, so the limit applies to both.
        self.accept("?")
        if self.peek() and self.peek() in "*+?{":
            raise _NotPlain
        # A round without a character would break the proof, which counts at most as many rounds as characters; and engines end such a loop
        # differently.
        if not is_never_empty(atom):
            raise _NotPlain
        return Repeat(atom, least, most)

    def read_bounds(self) -> tuple[int, int | None]:
        if (bounds := _BOUNDS.match(self.source, self.at)) is None:
            raise _NotPlain
        self.at = bounds.end()
        least = int(bounds[1])
        most = least if bounds[2] is None else int(bounds[3]) if bounds[3] else None
        if least > _MOST_REPEATS or (most is not None and (most > _MOST_REPEATS or most < least)):
            raise _NotPlain
        return least, most


def is_never_empty(node: Node) -> bool:
    """Return whether every match of this part takes at least one character."""
    match node:
        case Chars():
            return True
        case Boundary():
            return False
        case Sequence(items):
            return any(is_never_empty(item) for item in items)
        case Choice(options):
            return all(is_never_empty(option) for option in options)
        case Group(body):
            return is_never_empty(body)
        case Repeat(body, least, _):
            return least > 0 and is_never_empty(body)
