"""The letters of JSONPath: blanks, names, numbers and quoted text, each with the place where it went wrong."""

from __future__ import annotations

import re
from typing import Final

from proctor.paths.query import PathError

# All of these are linear: each repetition is over one set of characters and none can follow itself.
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_SHORTHAND: Final = re.compile("[A-Za-z_\x80-\ud7ff\ue000-\U0010ffff][A-Za-z_0-9\x80-\ud7ff\ue000-\U0010ffff]*")
_LOOSE_NAME: Final = re.compile(r"[^\s.\[\]^~*(),'\"`?@:;=<>&|!{}$\ud800-\udfff]+")
_FUNCTION: Final = re.compile(r"[a-z][a-z_0-9]*(?=\()")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_LARGEST: Final = 2**53 - 1
"""The largest integer that JSON readers agree on (RFC 9535, section 2.1)."""
_MOST_DIGITS: Final = 400
"""Digits of a number: converting a very long one takes time that grows with the square of its length."""


class Scanner:
    """A position in the text of a path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def make_fault(self, message: str, *, at: int | None = None, hint: str | None = None) -> PathError:
        """Return an error at the current place, or at another one."""
        return PathError(f"invalid JSONPath: {message}", offset=self.at if at is None else at, hint=hint)

    def make_unexpected_fault(self, wanted: str) -> PathError:
        """Return an error that says what stands here instead of what was wanted."""
        found = f"found {self.text[self.at]!r}" if self.at < len(self.text) else "the path ends here"
        return self.make_fault(f"expected {wanted}, {found}")

    def peek(self) -> str:
        """Return the character here; empty at the end."""
        return self.text[self.at : self.at + 1]

    def sees(self, token: str) -> bool:
        """Return whether the text goes on with `token`."""
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        """Step over `token` if it stands here."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        """Step over `token`; anything else is an error."""
        if not self.accept(token):
            raise self.make_unexpected_fault(f"`{token}`")

    def skip_blanks(self) -> None:
        """Step over blanks."""
        match = _BLANKS.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def read_shorthand(self) -> str | None:
        """Return a name as it may stand after a dot."""
        return self._take(_SHORTHAND)

    def read_loose_name(self) -> str | None:
        """Return a name as MCPLab's library takes it after a dot: nearly anything."""
        return self._take(_LOOSE_NAME)

    def read_function_name(self) -> str | None:
        """Return the name of a function, directly before its bracket."""
        return self._take(_FUNCTION)

    def read_integer(self) -> int | None:
        """Return a position or bound."""
        start = self.at
        digits = self._take(_INTEGER)
        if digits is None:
            # `-0` is no position in RFC 9535; later nobody would know that a number was meant.
            if self.peek() == "-":
                raise self.make_fault("`-` must be followed by a number from 1 up")
            return None
        # `isdigit` alone is also true of digits of other scripts, which no number here is made of.
        if self.peek().isdigit() and self.peek().isascii():
            raise self.make_fault("a number must not begin with 0", at=start)
        # The bound has sixteen digits, and there may be a sign: what is longer is not even converted.
        if len(digits) > 17 or abs(int(digits)) > _LARGEST:
            raise self.make_fault(f"the number {digits[:20]} is out of range", at=start)
        return int(digits)

    def number(self) -> int | float | None:
        """Return a number literal."""
        start = self.at
        match = _NUMBER.match(self.text, start)
        if match is None:
            return None
        if len(match[0]) > _MOST_DIGITS:
            raise self.make_fault("this number is too long")
        self.at = match.end()
        if self.peek().isdigit() and self.peek().isascii():
            raise self.make_fault("a number must not begin with 0", at=start)
        if match[2] is None and match[3] is None:
            return int(match[1])
        return float(match[0])

    def read_quoted(self) -> str | None:
        """Return a text in single or double quotes."""
        quote = self.peek()
        if quote not in ("'", '"') or not quote:
            return None
        start = self.at
        self.at += 1
        parts: list[str] = []
        while (character := self.peek()) != quote:
            if not character:
                raise self.make_fault("this text is never closed", at=start)
            if character == "\\":
                parts.append(self._escape(quote))
                continue
            if character < " " or "\ud800" <= character <= "\udfff":
                raise self.make_fault(f"the character {character!r} must be written as an escape")
            parts.append(character)
            self.at += 1
        self.at += 1
        return "".join(parts)

    def _escape(self, quote: str) -> str:
        start = self.at
        self.at += 1
        kind = self.peek()
        self.at += 1
        # Only the quote that encloses the text is escaped; the other one stands for itself (RFC 9535, section 2.3.1.1).
        if kind == quote:
            return quote
        if kind in _ESCAPES and kind:
            return _ESCAPES[kind]
        if kind != "u":
            raise self.make_fault(f"unknown escape `\\{kind}`", at=start)
        code = self._read_four_digits(start)
        # Half a pair is no character, and no text with it could be written as UTF-8.
        if 0xDC00 <= code <= 0xDFFF:
            raise self.make_fault("the second half of a surrogate pair stands alone", at=start)
        if not 0xD800 <= code <= 0xDBFF:
            return chr(code)
        if not self.accept("\\u"):
            raise self.make_fault("the first half of a surrogate pair stands alone", at=start)
        low = self._read_four_digits(start)
        if not 0xDC00 <= low <= 0xDFFF:
            raise self.make_fault("the first half of a surrogate pair stands alone", at=start)
        return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))

    def _read_four_digits(self, start: int) -> int:
        digits = self.text[self.at : self.at + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise self.make_fault("`\\u` must be followed by four hexadecimal digits", at=start)
        self.at += 4
        return int(digits, 16)
