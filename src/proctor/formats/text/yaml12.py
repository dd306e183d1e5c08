"""YAML 1.2 with the line and column of every key and value.

The parser is PyYAML's; plain scalars follow the YAML 1.2 core schema, as in MCPLab's own loader: only `true` and `false` are booleans
(`yes`, `no`, `on` are text), `012` is 12, `0o17` is 15, `1e3` is a number, dates stay text. Values that JSON cannot represent (`.inf`,
`.nan`, other tags, keys that are not scalars) are problems, as are repeated keys and a second document. A scalar key of another kind
(`1:`) is read as text. `<<` is an ordinary key: merging is not part of YAML 1.2.

Aliases are expanded, because every value must know its path; the number of expanded values and the depth are limited.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from proctor.formats.text.located import Located, Places, Reading, item_path, member_path
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import kind_of

if TYPE_CHECKING:
    from yaml.events import AliasEvent, CollectionStartEvent, Event, ScalarEvent

    from proctor.formats.text.yaml_events import EventStream

MAX_DEPTH: Final = 200
"""The maximum nesting; documents are walked recursively."""
MAX_EXPANDED: Final = 100_000
"""The maximum number of values that aliases may add to a document; long texts and keys count as several."""
_CHARACTERS_OF_A_VALUE: Final = 100
"""The number of characters that count as one value in the limit on aliases."""
MAX_NUMBER: Final = 1000
"""The maximum number of digits: converting a very long number takes quadratic time."""
MAX_COMPLAINTS: Final = 100
"""The maximum number of problems of one kind in one file; more would only hide the first."""

_TAG: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, Json]] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# All linear: no character can match two parts of a pattern.
_DECIMAL = lazy_pattern(r"[-+]?[0-9]+")
_OCTAL = lazy_pattern(r"0o[0-7]+")
_HEXADECIMAL = lazy_pattern(r"0x[0-9a-fA-F]+")
_FLOAT = lazy_pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# Lone surrogates too, which UTF-8 cannot represent.
_FORBIDDEN = lazy_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_PYYAML_FORBIDDEN = "[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_NOT_A_NUMBER = lazy_pattern(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def read_yaml(text: str, reading: Reading) -> Located | None:
    """Return the document in `text`; problems go to `reading`, and None is returned if it cannot be read at all."""
    text = text.removeprefix("\ufeff")
    places = Places(text)
    if forbidden := _FORBIDDEN.search(text):
        line, column = places.locate(forbidden.start())
        message = f"the character U+{ord(forbidden.group()):04X} is not allowed in YAML"
        hint = "remove it, or write it as an escape"
        reading.error(Located(value=None, line=line, column=column), message, hint=hint, code="invalid_yaml")
        return None
    # PyYAML writes the same set as everything but the allowed characters, which takes longer to compile than a small check. `re` finds the
    # short form under that text instead; where its cache has another form, PyYAML only starts more slowly.
    with contextlib.suppress(AttributeError, TypeError):
        getattr(re, "_cache").setdefault((str, _PYYAML_FORBIDDEN, 0), re.compile(_FORBIDDEN.pattern))  # noqa: B009 - a private name
    # A JSON suite must not pay for importing PyYAML.
    from proctor.formats.text.yaml_events import EventStream, YamlFault

    stream = EventStream(text, max_depth=MAX_DEPTH)
    try:
        events = stream.read_events()
    except YamlFault as error:
        line, column = places.locate(error.offset)
        reading.error(Located(value=None, line=line, column=column), error.message, hint=error.hint, code="invalid_yaml")
        return None
    builder = _Builder(reading, places, stream)
    document = builder.build(events)
    if document is not None:
        warned: set[int] = set()
        for offset in stream.unknown_escapes:
            line, column = places.locate(offset)
            if line not in warned and len(warned) < MAX_COMPLAINTS:
                warned.add(line)
                message = f"{stream.text[offset : offset + 2]} is not a YAML escape; the backslash stays as written"
                hint = "write the text in single quotes, where a backslash is a backslash"
                reading.warn(Located(value=None, line=line, column=column, width=2), message, hint=hint, code="kept_escape")
    return document


class _Broken(Exception): ...


class _Open(msgspec.Struct):
    """A list or object that is not closed yet."""

    node: Located
    key: str | None = None
    """The key of the next value."""
    drop: bool = False
    """Whether that value is dropped, because its key is invalid."""


class _Builder:
    def __init__(self, reading: Reading, places: Places, stream: EventStream) -> None:
        self.reading = reading
        self.places = places
        self.stream = stream
        self.open: list[_Open] = []
        self.anchors: dict[str, Located] = {}
        self.root: Located | None = None
        self.expanded = 0
        self.complaints = 0

    def build(self, events: list[Event]) -> Located | None:
        try:
            for event in events:
                self._take(event)
        except _Broken:
            return None
        if self.root is None:
            self.reading.error(Located(value=None, line=1, column=1), "the document is empty", code="invalid_yaml")
        return self.root

    def _take(self, event: Event) -> None:
        # By name: importing the classes at the top would import PyYAML for every JSON suite.
        match event.__class__.__name__:
            case "ScalarEvent":
                self._add_scalar(event)  # pyright: ignore[reportArgumentType] - its class was just compared by name
            case "SequenceStartEvent" | "MappingStartEvent":
                self._open_collection(event)  # pyright: ignore[reportArgumentType] - its class was just compared by name
            case "SequenceEndEvent" | "MappingEndEvent":
                self._place(self.open.pop().node)
            case "AliasEvent":
                self._add_alias(event)  # pyright: ignore[reportArgumentType] - its class was just compared by name
            case "DocumentStartEvent" if self.root is not None:
                self._stop(self._locate(event, width=3), "a second document", hint="a file holds one document; remove the line '---'")
            case _:
                pass

    def _add_scalar(self, event: ScalarEvent) -> None:
        text = self.stream.restore_text(event.value)
        # Escapes in double quotes may write one character as a surrogate pair, as JSON does.
        if any("\ud800" <= char <= "\udfff" for char in text):
            text = join_surrogates(text)
        block = event.style in ("|", ">")
        node = self._locate(event, width=1 if block else None)
        plain = bool(event.implicit[0])
        if self.open and self.open[-1].node.is_object and self.open[-1].key is None:
            # A key is always text, whatever it would mean as a value; only an empty plain key is a mistake.
            self._is_known_tag(node, event.tag, ("str", "int", "float", "bool", "null"))
            node.value = None if plain and text == "" else text
        else:
            node.value = self._resolve(node, text, event.tag, plain=plain)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._place(node, quoted=event.style in ("'", '"'))

    def _resolve(self, node: Located, text: str, tag: str | None, *, plain: bool) -> Json:
        # The tag `!` alone turns any scalar into text.
        if tag is None or tag == "!":
            return self._resolve_plain(node, text) if plain and tag is None else text
        known = self._is_known_tag(node, tag, ("str", "int", "float", "bool", "null"))
        kind_name = tag.removeprefix(_TAG)
        if not known or kind_name == "str":
            return text
        value = self._resolve_plain(node, text)
        if kind_of(value) != {"bool": "true/false", "null": "null"}.get(kind_name, "number"):
            self._report(node, f"{text[:60]!r} cannot be read as !!{kind_name}")
        return value

    def _resolve_plain(self, node: Located, text: str) -> Json:
        """Return the value of a plain scalar in the core schema."""
        if text in _WORDS:
            return _WORDS[text]
        # Nearly every scalar is a word, and checking its first character avoids five patterns.
        if text[0] not in "-+.0123456789":
            return text
        if _DECIMAL.fullmatch(text) or _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
            if len(text) > MAX_NUMBER:
                self._report(node, f"a number of {len(text)} characters is too long", hint="put it in quotes")
                return text
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text[2:] if base != 10 else text, base)
        if _FLOAT.fullmatch(text):
            value = float(text)
            if math.isfinite(value):
                return value
        elif not _NOT_A_NUMBER.fullmatch(text):
            return text
        self._report(node, f"{text[:60]} is not a number that JSON can represent", hint="put it in quotes if it is meant as text")
        return text

    def _open_collection(self, event: CollectionStartEvent) -> None:
        node = self._locate(event, width=1)
        is_list = event.__class__.__name__ == "SequenceStartEvent"
        self._is_known_tag(node, event.tag, ("seq",) if is_list else ("map",))
        node.value = [] if is_list else {}
        node.key_at = {}
        # Before its end, so that an alias inside it is reported as self-referencing and not as unknown.
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        if len(self.open) >= MAX_DEPTH:
            self._stop(node, f"nested more than {MAX_DEPTH} levels deep")
        self.open.append(_Open(node=node))

    def _add_alias(self, event: AliasEvent) -> None:
        at = self._locate(event)
        target = self.anchors.get(event.anchor)
        if target is None:
            self._report(at, f"the alias *{event.anchor} refers to no anchor above", hint="put text that begins with '*' in quotes")
            self._place(at)
        elif any(level.node is target for level in self.open):
            self._stop(at, f"the alias *{event.anchor} refers to a value that contains it")
        else:
            self._place(self._copy(target, at, at.path, len(self.open)))

    def _copy(self, node: Located, alias: Located, path: str, depth: int) -> Located:
        """Return the value again, at the path of the alias; its lines and columns stay where it was written."""
        # Limited, because a few lines of nested aliases can mean billions of values. Long texts count too: they are shared in memory here,
        # but not in the output.
        value = node.value
        length = len(value) if isinstance(value, str) else sum(map(len, value)) if isinstance(value, dict) else 0
        self.expanded += 1 + length // _CHARACTERS_OF_A_VALUE
        if self.expanded > MAX_EXPANDED or depth > MAX_DEPTH:
            self._stop(alias, "aliases make this document too large", expected=f"at most {MAX_EXPANDED} values and {MAX_DEPTH} levels")
        if isinstance(value, dict):
            value = {key: self._copy(item, alias, member_path(path, key), depth + 1) for key, item in value.items()}
        elif isinstance(value, list):
            value = [self._copy(item, alias, item_path(path, index), depth + 1) for index, item in enumerate(value)]
        return Located(value=value, line=node.line, column=node.column, path=path, width=node.width, key_at=node.key_at)

    def _place(self, node: Located, *, quoted: bool = False) -> None:
        if not self.open:
            self.root = node
            return
        level = self.open[-1]
        if level.node.is_list:
            level.node.value.append(node)
        elif level.key is None:
            self._add_key(level, node, quoted=quoted)
        else:
            if not level.drop:
                level.node.value[level.key] = node
            level.key, level.drop = None, False

    def _add_key(self, level: _Open, node: Located, *, quoted: bool) -> None:
        key = node.value
        if not isinstance(key, str):
            message = "a key is missing before ':'" if key is None else "a key that is not text"
            self._report(node, message, hint="a key is one word or a text in quotes")
            # The value is still read, and dropped: its own problems are reported in the same pass.
            level.key, level.drop = "", True
            return
        level.key = key
        place = (node.line, node.column + (1 if quoted else 0))
        if key in level.node.key_at:
            line, column = level.node.key_at[key]
            at = Located(value=key, line=place[0], column=place[1], path=member_path(level.node.path, key), width=len(key))
            self._report(at, f"duplicate key {key!r}: first at line {line}, column {column}", code="duplicate_key")
            level.drop = True
        else:
            level.node.key_at[key] = place

    def _locate(self, event: Event, width: int | None = None) -> Located:
        # Marks count lines as in YAML 1.1; offsets are plain characters.
        start, end = event.start_mark.index, event.end_mark.index
        line, column = self.places.locate(start)
        shown = self.places.measure_width(start, end) if width is None else width
        path = self.open[-1].node.path if self.open else "$"
        if self.open and self.open[-1].node.is_list:
            path = item_path(path, len(self.open[-1].node.value))
        elif self.open and self.open[-1].key is not None:
            path = member_path(path, self.open[-1].key)
        return Located(value=None, line=line, column=column, path=path, width=shown)

    def _is_known_tag(self, node: Located, tag: str | None, known: tuple[str, ...]) -> bool:
        if tag is None or tag == "!" or (tag.startswith(_TAG) and tag.removeprefix(_TAG) in known):
            return True
        shown = tag.replace(_TAG, "!!") if tag.startswith(_TAG) else tag
        self._report(node, f"the tag {shown[:60]!r} is not understood here", hint="remove it; a suite is plain data")
        return False

    def _report(self, node: Located, message: str, *, code: str = "invalid_yaml", **more: Json) -> None:
        self.reading.error(node, message, code=code, **more)
        self.complaints += 1
        if self.complaints >= MAX_COMPLAINTS:
            raise _Broken

    def _stop(self, node: Located, message: str, **more: Json) -> NoReturn:
        self._report(node, message, **more)
        raise _Broken
