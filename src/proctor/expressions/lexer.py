r"""The tokens of an expression, with their positions.

A name is a letter or underscore, then letters, digits and underscores. A number is `[-] digits [. digits]`. Text is in single or
double quotes, with the escapes `\\`, `\'`, `\"`, `\n`, `\r`, `\t` and `\uXXXX`, of which two may make one
character, as in JSON. Then there are `(`, `)` and `,`, in conditions also comparisons, brackets and dots; white space between is free.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import shorten

T = TypeVar("T")
LONGEST = 10_000
"""The maximum length of an expression in characters."""
_LONGEST_NUMBER = 100
"""The maximum number of digits: converting a very long number takes quadratic time."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}

SYMBOLS = ("(", ")", ",")
"""Tokens between the values of an expression."""
CONDITION_SYMBOLS = (*SYMBOLS, "==", "!=", "<=", ">=", "<", ">", "[*]", "[", "]", ".")
"""Tokens between the values of a condition; longer ones come first."""
_HINTS = {
    "=": "equality is written ==",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or != for inequality",
    "*": "a path takes every item with [*]",
}


class Token(msgspec.Struct, frozen=True):
    """One token; `value` is its name, number or text."""

    kind: str
    """`name`, `number`, `text`, `end`, or the symbol itself."""
    value: Json
    offset: int
    source: str

    def describe(self) -> str:
        """Return the token for an error message."""
        return "the end" if self.kind == "end" else repr(shorten(self.source, 40))


class TokenReader:
    """Reads tokens one after the other."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return a token without reading it; beyond the last one, `end`."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        """Read one token."""
        token = self.peek()
        self._at += 1
        return token

    def read_items(self, closing: str, where: str, read_item: Callable[[], T]) -> tuple[T, ...]:
        """Return the items between commas, up to the closing symbol."""
        items: list[T] = []
        token = self.next() if self.peek().kind == closing else None
        while token is None or token.kind != closing:
            items.append(read_item())
            token = self.next()
            if token.kind not in (",", closing):
                raise SpecError(f"expected ',' or {closing!r} {where}, found {token.describe()}", offset=token.offset)
        return tuple(items)


def split_tokens(text: str, symbols: tuple[str, ...] = SYMBOLS) -> list[Token]:
    """Return all tokens of `text` and a final `end`. Raises `SpecError` with the offset of an invalid character."""
    if len(text) > LONGEST:
        raise SpecError(f"the expression has {len(text)} characters; at most {LONGEST} are read", offset=LONGEST)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        token = _read_token(text, at, char, symbols)
        tokens.append(token)
        at += len(token.source)
    tokens.append(Token("end", None, len(text), ""))
    return tokens


def _read_token(text: str, at: int, char: str, symbols: tuple[str, ...]) -> Token:
    symbol = next((candidate for candidate in symbols if text.startswith(candidate, at)), None)
    if symbol is not None:
        return Token(symbol, symbol, at, symbol)
    if char in "'\"":
        return _read_quoted(text, at)
    if (number := _NUMBER.match(text, at)) is not None:
        source = number.group()
        if len(source) > _LONGEST_NUMBER:
            raise SpecError(f"a number of {len(source)} digits is too long", offset=at)
        return Token("number", float(source) if "." in source else int(source), at, source)
    if (name := _NAME.match(text, at)) is not None:
        return Token("name", name.group(), at, name.group())
    hint = None
    if symbols is CONDITION_SYMBOLS:
        hint = _HINTS.get(char)
    elif char == ".":
        hint = "write JSON_EXTRACT(NAME, 'path.to.value') to look into a variable"
    elif char in "+-*/&|=<>":
        hint = "there are no operators; use functions such as DATE_ADD or CONCAT"
    raise SpecError(f"unexpected {char!r} in the expression", offset=at, hint=hint)


def _read_quoted(text: str, start: int) -> Token:
    if (quoted := _QUOTED.match(text, start)) is None:
        raise SpecError("text without a closing quote", offset=start)
    value = _ESCAPE.sub(lambda found: _unescape(found, start + 1), quoted[0][1:-1])
    return Token("text", value, start, quoted[0])


def _unescape(found: re.Match[str], start: int) -> str:
    high, low, unit, letter = found.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    at = start + found.start()
    if unit is None:
        raise SpecError(f"unknown escape {found[0]!r}", offset=at, hint="a backslash itself is written \\\\")
    if 0xD800 <= int(unit, 16) <= 0xDFFF:
        raise SpecError(f"{found[0]} is half of a character", offset=at, hint="both halves are written, as in \\ud83d\\ude00")
    return chr(int(unit, 16))
