r"""The events of a YAML text, and readable messages about its faults.

PyYAML's parser on top of libyaml follows YAML 1.1 in two ways that matter for text. It treats U+0085, U+2028 and U+2029 as line breaks;
they are replaced by unused characters before parsing and restored after. And it rejects a backslash in double quotes that is not a YAML
escape, which the documentation of MCPLab itself writes (`"refund\s+(a|b)"`): such a text is read again by the pure Python scanner, which
here keeps the backslash and stores its position.

Importing this module imports PyYAML, which costs as much as checking a small suite: only `read_yaml` does so, and only if there is YAML to
read.
"""

from collections.abc import Iterator
from typing import Any, cast

import yaml
from yaml.events import Event
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from proctor.formats.text.located import MAX_VALUES, SPLIT
from proctor.model.lazy_pattern import lazy_pattern

try:
    from yaml import cyaml
except ImportError:  # a PyYAML built without libyaml; slower, the same answers
    cyaml = None

_FALSE_BREAKS = "\x85\u2028\u2029\ufeff"
_ESCAPE_FAULTS = ("found unknown escape character", "hexdecimal number", "invalid Unicode character escape code")
_HEX = lazy_pattern(r"[0-9a-fA-F]*")


class YamlFault(Exception):
    """Why the text is not YAML, and the offset of the fault."""

    def __init__(self, message: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.offset, self.hint = message, offset, hint


class EventStream:
    """The events of `text`, and after the last one the offsets of backslashes that are not escapes."""

    def __init__(self, text: str, *, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.unknown_escapes: list[int] = []
        # Unused private characters replace those that libyaml would read as line breaks.
        present = [char for char in _FALSE_BREAKS if char in text]
        used = set(text) if present else set[str]()
        spares = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in used)
        pairs = list(zip(present, spares, strict=False))
        self._hide = {ord(char): spare for char, spare in pairs}
        self._restore = {ord(spare): char for char, spare in pairs}

    def read_events(self) -> list[Event]:
        """Return everything up to the end of the text, or to the first value that is nested too deeply. Raises `YamlFault`."""
        text = self.text.translate(self._hide) if self._hide else self.text
        try:
            return list(self._drain_events(text, tolerant=cyaml is None))
        except yaml.MarkedYAMLError as error:
            if cyaml is None or not any(words in (error.problem or "") for words in _ESCAPE_FAULTS):
                raise _describe_fault(error, self.text) from None
        try:
            # A bad escape stops libyaml, so the slower parser reads the whole text again.
            return list(self._drain_events(text, tolerant=True))
        except yaml.MarkedYAMLError as error:
            raise _describe_fault(error, self.text) from None

    def restore_text(self, text: str) -> str:
        """Return a scalar with the characters restored that were hidden from the parser."""
        return text.translate(self._restore) if self._restore else text

    def _drain_events(self, text: str, *, tolerant: bool) -> Iterator[Event]:
        # libyaml's own composer recurses in C for every level and would crash the process; events do not.
        self.unknown_escapes.clear()
        parser: Any = _TolerantParser(text, self.unknown_escapes) if tolerant else cast(Any, cyaml).CParser(text)
        depth = 0
        values = 0
        while parser.check_event():
            event = cast(Event, parser.get_event())
            yield event
            values += isinstance(event, yaml.NodeEvent)
            if values > MAX_VALUES:
                raise YamlFault(f"more than {MAX_VALUES:,} values and keys", event.start_mark.index, SPLIT)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                # The builder reaches the same limit at this event and reports it; nothing after it needs parsing.
                if depth > self.max_depth:
                    return
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1


class _UnknownEscapes(dict[str, str]):
    """The escapes of YAML; any other character after a backslash means both characters."""

    def __init__(self, scanner: "_TolerantParser") -> None:
        super().__init__(Scanner.ESCAPE_REPLACEMENTS)
        self.scanner = scanner

    def __contains__(self, char: object) -> bool:
        if super().__contains__(char):
            return True
        # A backslash before a line break joins two lines, and NUL is the end of the text: the scanner handles both.
        if char in ("\0", "\r", "\n"):
            return False
        # The scanner looks here before it reads the digits of `\x`, `\u` and `\U`: an escape without its digits is handled here and stays
        # as written.
        length = Scanner.ESCAPE_CODES.get(str(char))
        if length is None:
            return True
        digits = _HEX.fullmatch(self.scanner.prefix(length + 1)[1:])
        valid = digits is not None and len(digits.group()) == length and int(digits.group(), 16) <= 0x10FFFF
        return not valid

    def __missing__(self, char: str) -> str:
        self.scanner.unknown_escapes.append(self.scanner.index - 1)
        return "\\" + char


class _TolerantParser(Reader, Scanner, Parser):
    """PyYAML's pure Python parser with `_UnknownEscapes`."""

    def __init__(self, text: str, unknown_escapes: list[int]) -> None:
        self.unknown_escapes = unknown_escapes
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        # On the instance only: all users of PyYAML in this process share the table of the class.
        self.ESCAPE_REPLACEMENTS = _UnknownEscapes(self)


_INDENTATION = "check the indentation: it must fit the lines above"
# The parser's words, our message, the next step, and whether the fault is at the beginning of the construct.
_KINDLY: tuple[tuple[str, str, str | None, bool], ...] = (
    (
        "mapping values are not allowed",
        "a ':' that cannot stand here",
        "put text with ': ' in it in quotes, or check the indentation",
        False,
    ),
    ("did not find expected key", "expected another key of the object here", "check the indentation, and quotes inside quotes", False),
    ("expected <block end>", "this line does not fit into the block above", _INDENTATION, False),
    ("did not find expected '-' indicator", "expected another '-' of the list here", _INDENTATION, False),
    ("could not find expected ':'", "expected ':' after the key", "write `key: value`, or check the indentation", False),
    ("found unexpected end of stream", "a quote that is never closed", None, True),
    ("found unexpected document separator", "a quote that is never closed", None, True),
    ("',' or ']'", "expected ',' or ']' in the list that begins with '['", None, False),
    ("',' or '}'", "expected ',' or '}' in the object that begins with '{'", None, False),
    ("node content", "expected a value here", "check for a bracket or comma too many, or a text that needs quotes", False),
    ("undefined tag handle", "a tag that is unknown", "remove it, or put text that begins with '!' in quotes", False),
    ("incompatible YAML document", "a version of YAML that is unknown", "remove the %YAML line", False),
    ("sequence entries are not allowed", "a '-' that cannot stand here", "a list begins on its own line below the key", False),
    ("block scalar", "text below '|' or '>' that is not well formed", "the text begins on the next line, indented", False),
    ("anchor", "an anchor or alias that is not well formed", "put text that begins with '&' or '*' in quotes", False),
    ("alias", "an anchor or alias that is not well formed", "put text that begins with '&' or '*' in quotes", False),
    ("tag", "a tag that is not well formed", "put text that begins with '!' in quotes", False),
    ("directive", "a line beginning with '%' that is not a directive", "put text that begins with '%' in quotes", False),
)


def _describe_fault(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    offset = min(mark.index if mark is not None else 0, len(text))
    if "cannot start any token" in problem:
        char = text[offset : offset + 1]
        if char == "\t":
            return YamlFault("a tab where only spaces may indent", offset, "indent with spaces")
        return YamlFault(f"text cannot begin with {char!r}", offset, "put it in quotes")
    for words, message, hint, at_start in _KINDLY:
        if words in problem or words in context:
            if at_start and error.context_mark is not None:
                offset = error.context_mark.index
            return YamlFault(message, offset, hint)
    return YamlFault(f"not readable as YAML: {problem or context}", offset)
