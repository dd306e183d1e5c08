"""JSON with the line and column of every key and value.

Strict JSON (RFC 8259), and in addition a repeated key is a problem. Faults with only one sensible reading (an extra comma, a comment,
`NaN`, a repeated key) are reported and reading continues, so that the rest of the file is checked in the same pass; any other fault ends
the reading. Integers of any size are exact, a lone surrogate escape becomes the replacement character, and nesting is limited, because
everything after this reader walks the tree recursively.
"""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn, cast

from proctor.formats.text.located import MAX_VALUES, SPLIT, Located, Places, Reading, item_path, member_path
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates

MAX_DEPTH: Final = 200
"""The maximum nesting, which is read recursively."""
MAX_NUMBER: Final = 1000
"""The maximum number of characters of one number. Python refuses to print integers of more than 4300 digits."""
MAX_COMPLAINTS: Final = 100
"""The maximum number of reported faults: a file of a million commas needs no million messages."""

# Every pattern is anchored by `match` and linear: no alternative can match the same character twice.
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_TEXT = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
"""A text without its closing quote: it ends there, or at the fault."""
_WORD = re.compile(r"[-+]?[A-Za-z_$][A-Za-z0-9_$]*")
_COMMENT = re.compile(r"(?s:/\*.*?\*/)|(?://|#)[^\n\r]*")
_WORDS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS: Final = ("nan", "infinity", "-infinity", "+infinity", "-nan", "inf", "-inf")


def read_json(text: str, reading: Reading) -> Located | None:
    """Return the document in `text`; problems go to `reading`, and None is returned if it cannot be read at all."""
    return _Scanner(text, reading).read_document()


class _Broken(Exception): ...


class _Scanner:
    def __init__(self, text: str, reading: Reading) -> None:
        self.text = text.removeprefix("\ufeff")  # a byte order mark is not part of the document
        self.places = Places(self.text)
        self.reading = reading
        self.at = 0
        self.complaints = 0
        self.values = 0

    def read_document(self) -> Located | None:
        try:
            self._skip_space()
            if self.at >= len(self.text):
                self._stop(self.at, "the document is empty", hint="expected one JSON value")
            root = self._read_value("$", 0)
            self._skip_space()
            if self.at < len(self.text):
                self._stop(self.at, "there is more text after the end of the document", hint="a file holds one JSON value")
            return root
        except _Broken:
            return None

    def _read_value(self, path: str, depth: int) -> Located:
        start = self.at
        self.values += 1
        if self.values > MAX_VALUES:
            self._stop(start, f"more than {MAX_VALUES:,} values", hint=SPLIT)
        line, column = self.places.locate(start)
        located = Located(value=None, line=line, column=column, path=path)
        first = self._peek()
        if first in ("{", "["):
            if depth >= MAX_DEPTH:
                self._stop(start, f"nested more than {MAX_DEPTH} levels deep")
            self.at += 1
            if first == "{":
                self._read_object(located, depth)
            else:
                items: list[Located] = []
                located.value = items
                while not self._reads_end("]", has_members=bool(items)):
                    items.append(self._read_value(item_path(path, len(items)), depth + 1))
            return located
        if first == '"':
            located.value = self._read_string()
        elif first and first in "-0123456789":
            located.value = self._read_number()
        else:
            located.value = self._read_word()
        located.width = self.at - start
        return located

    def _read_object(self, located: Located, depth: int) -> None:
        members: dict[str, Located] = {}
        located.value = members
        located.key_at = {}
        while not self._reads_end("}", has_members=bool(members)):
            if self._peek() != '"':
                single = self._peek() == "'" or _WORD.match(self.text, self.at)
                hint = "keys stand in double quotes" if single else None
                self._stop(self.at, f"expected a key in double quotes, found {self._describe_found()}", hint=hint)
            # The position is that of the key itself, one column after its quote.
            start = self.at + 1
            key = self._read_string()
            self._skip_space()
            if self._peek() != ":":
                self._stop(self.at, f"expected ':' after the key {key!r}, found {self._describe_found()}")
            self.at += 1
            self._skip_space()
            item = self._read_value(member_path(located.path, key), depth + 1)
            if key in members:
                line, column = located.key_at[key]
                message = f"duplicate key {key!r}: first at line {line}, column {column}"
                self._report(start, message, width=len(key), path=item.path, code="duplicate_key")
            else:
                members[key] = item
                located.key_at[key] = self.places.locate(start)

    def _reads_end(self, end: str, *, has_members: bool) -> bool:
        """Return whether the container ends here; otherwise move to the next member, past its comma."""
        self._skip_space()
        if self._peek() == end:
            self.at += 1
            return True
        if not has_members:
            if self.at >= len(self.text):
                self._stop(self.at, f"the text ends before {end!r}")
            return False
        comma = self.at
        if self._peek() != ",":
            self._stop(comma, f"expected ',' or {end!r}, found {self._describe_found()}")
        self.at += 1
        self._skip_space()
        if self._peek() == end:
            self._report(comma, f"a comma before {end!r}", hint="remove it: JSON has no trailing commas")
            self.at += 1
            return True
        return False

    def _read_string(self) -> str:
        start = self.at
        matched = _TEXT.match(self.text, start)
        assert matched is not None, "called at a quotation mark"
        self.at = matched.end()
        char = self._peek()
        if char == '"':
            self.at += 1
            text = self.text[start + 1 : self.at - 1]
            if "\\" in text:
                import json  # few suites have escapes

                text = cast(str, json.loads(f'"{text}"'))
            # A lone surrogate cannot be written in UTF-8.
            return join_surrogates(text) if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text) else text
        if char == "\\":
            escaped = self.text[self.at + 1 : self.at + 2]
            if escaped == "u":
                self._stop(self.at, "\\u is not followed by four hexadecimal digits")
            self._stop(self.at, f"\\{escaped} is not a JSON escape", hint="a backslash itself is written \\\\" if escaped else None)
        if char in ("", "\n", "\r"):
            self._stop(start, "a text that is not closed on its line", hint='close it with ", or write \\n for a line break')
        self._stop(self.at, f"a control character ({char!a}) inside a text", hint=f"write \\u{ord(char):04x} instead")

    def _read_number(self) -> int | float | None:
        start = self.at
        match = _NUMBER.match(self.text, start)
        # Letters directly after the digits, or after a lone minus (`12abc`, `-Infinity`), belong to the same value.
        following = _WORD.match(self.text, match.end() if match else start)
        if match is None or following is not None:
            word = self.text[start : following.end()] if following else "-"
            if word.lower() in _NOT_NUMBERS:
                return self._refuse_number(word)
            self._stop(start, f"{word[:40]!r} is not a JSON number")
        digits = match.group()
        # The grammar ends a number after its leading zero, so a digit directly after it was meant to belong to it.
        if len(digits) < 3 and self.text[match.end() : match.end() + 1].isdigit():
            self._stop(start, "a number cannot begin with 0", hint="remove the leading zero, or put it in quotes")
        self.at = match.end()
        if len(digits) > MAX_NUMBER:
            self._report(start, f"a number of {len(digits)} characters is too long", hint="put it in quotes")
            return None
        if match.group(1) is None and match.group(2) is None:
            return int(digits)
        value = float(digits)
        if math.isinf(value):
            self._report(start, f"{digits[:40]} is too large for a number", hint="put it in quotes", width=len(digits))
            return None
        return value

    def _read_word(self) -> Json:
        match = _WORD.match(self.text, self.at)
        if match is None:
            if self._peek() == "'":
                self._stop(self.at, "a text in single quotes", hint="JSON writes texts in double quotes")
            self._stop(self.at, f"expected a value, found {self._describe_found()}")
        word = match.group()
        if word in _WORDS:
            self.at = match.end()
            return _WORDS[word]
        if word.lower() in _NOT_NUMBERS:
            return self._refuse_number(word)
        nearest = tuple(known for known in _WORDS if known == word.lower())
        self._stop(self.at, f"{word[:40]!r} is not a JSON value", width=len(word), nearest=nearest, hint="put texts in double quotes")

    def _refuse_number(self, word: str) -> None:
        self._report(self.at, f"JSON has no {word}", width=len(word), hint="write null, or a text in double quotes")
        self.at += len(word)

    def _skip_space(self) -> None:
        while True:
            blanks = _SPACE.match(self.text, self.at)
            assert blanks is not None  # the pattern also matches an empty text
            self.at = blanks.end()
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self._report(self.at, "a comment", hint="JSON has no comments; a .yaml file may have them", width=2)
            self.at = comment.end()

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _describe_found(self) -> str:
        return repr(self._peek()) if self._peek() else "the end of the text"

    def _report(self, offset: int, message: str, *, width: int = 1, path: str = "$", code: str = "invalid_json", **more: Json) -> None:
        line, column = self.places.locate(offset)
        self.reading.error(Located(value=None, line=line, column=column, width=width, path=path), message, code=code, **more)
        self.complaints += 1
        if self.complaints >= MAX_COMPLAINTS:
            raise _Broken

    def _stop(self, offset: int, message: str, *, width: int = 1, **more: Json) -> NoReturn:
        self._report(offset, message, width=width, **more)
        raise _Broken
