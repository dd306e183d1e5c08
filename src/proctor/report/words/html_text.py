"""Text, values and elements for HTML reports: limited in length and with misleading characters escaped.

JSON is formatted here and sent as text, since JavaScript would read 9007199254740993 as 9007199254740992 and 1.0 as 1.

The web pages write elements as HTML. The HTML report carries them as JSON, and its script draws them node by node, so text is never
parsed as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import encode_any_json
from proctor.model.show import show
from proctor.report.words.neutral import to_lines, to_one_line

MOST_TEXT = 6000
"""Characters of one text: an answer, an argument object, a result."""
_MOST_LINES = 400
"""Lines of one text."""
_MOST_TAG_VALUES = 20
"""Values of one tag."""
_ONE_LINE = 72
"""Values up to this many characters stay on one line."""
_MOST_LAID_OUT = 200_000
"""Bytes; longer JSON is not indented, since only its ends are shown."""


def write_block(text: str, limit: int = MOST_TEXT) -> str:
    """Return a text that may have several lines."""
    return "\n".join(to_lines(text, limit=limit, most_lines=_MOST_LINES))


def write_clean_block(text: str) -> str:
    """Return a shortened text with misleading characters escaped."""
    return write_block(text, len(text))


def lay_out_value(value: Json) -> str:
    """Return a value as JSON, indented if long; the caller shortens it."""
    try:
        return _lay_out(encode_any_json(value))
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return show(value, _MOST_LAID_OUT)


def write_pretty(value: Json, limit: int = MOST_TEXT) -> str:
    """Return a value as JSON, indented if long; text as it is, JSON inside text indented."""
    if isinstance(value, str):
        laid_out = _find_json_inside(value)
        return write_block(value if laid_out is None else laid_out, limit)
    return write_block(lay_out_value(value), limit)


def write_tool_result(value: Json) -> str:
    """Return the result of a tool; the text of an MCP result that is only text."""
    texts = _list_mcp_texts(value)
    return write_pretty(value) if texts is None else "\n".join(write_pretty(text) for text in texts)


_LONG = (
    (47.5 * 3_600_000, "d", 86_400_000, "h", 3_600_000),
    (119.5 * 60_000, "h", 3_600_000, "min", 60_000),
    (59_950, "min", 60_000, "s", 1_000),
)
"""Unit pairs by minimum duration, longest first."""


def duration_words(ms: float) -> str:
    """Return a duration: `812 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `7 d`."""
    if ms != ms or ms in (float("inf"), float("-inf")):
        return "unknown"
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.3g} ms"
    # Longer values would round to `60.0 s`.
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    for least_ms, large, large_ms, small, small_ms in _LONG:
        if ms >= least_ms:
            first, rest = divmod(round(ms / small_ms), large_ms // small_ms)
            return f"{first:,} {large} {rest} {small}" if rest else f"{first:,} {large}"
    raise AssertionError(ms)


def list_tag_pairs(tags: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return the tags of a case as names and values; a list has several values."""
    return [
        (write_label(name, 80), write_label(write_pretty(item, 80), 80))
        for name, value in tags.items()
        for item in (value[:_MOST_TAG_VALUES] if isinstance(value, (list, tuple)) else (value,))
        if item is not None
    ]


def write_label(text: str, limit: int = 200) -> str:
    """Return a name or title on one line."""
    return to_one_line(text, limit)


def _lay_out(encoded: bytes) -> str:
    # Of longer values only the ends are shown.
    return (msgspec.json.format(encoded, indent=2) if _ONE_LINE < len(encoded) <= _MOST_LAID_OUT else encoded).decode()


def _find_json_inside(text: str) -> str | None:
    if len(text) > _MOST_LAID_OUT or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        # Not decoded: that would change long numbers.
        return _lay_out(msgspec.json.format(text.strip().encode(), indent=-1))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _list_mcp_texts(value: Json) -> list[str] | None:
    if not isinstance(value, dict) or not value.keys() <= {"content", "isError"} or not isinstance(value.get("content"), list):
        return None
    parts: list[Json] = value["content"]
    texts = [part["text"] for part in parts if isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str)]
    return texts if texts and len(texts) == len(parts) else None


_WITHOUT_END = frozenset(("use", "circle", "rect", "path", "line", "input"))
"""SVG elements without content."""


class Element(list[Json]):
    """One element, stored compactly as a list.

    First the tag and its classes, `li sheet fail`; then the attributes, if any; then the children.
    """

    __slots__ = ()

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes except the classes."""
        return self[1] if len(self) > 1 and isinstance(self[1], dict) else {}

    @property
    def children(self) -> list[Node]:
        """Elements and texts."""
        return self[2:] if self.attributes else self[1:]

    def __html__(self) -> str:
        """Return HTML; Jinja does not escape it again."""
        return write_markup(self)


Node: TypeAlias = Element | str
Child: TypeAlias = "Node | Iterable[Child] | None"


def make(tag: str, look: str = "", *children: Child, **attributes: str | None) -> Element:
    """Return an element with the classes in `look`; `aria_label` is the attribute `aria-label`, and None omits an attribute."""
    known = {name.replace("_", "-"): value for name, value in attributes.items() if value is not None}
    return Element([f"{tag} {look}" if look else tag, *([known] if known else ()), *_flatten(children)])


def make_table_head(heads: Iterable[Child]) -> Element:
    """Return a table head."""
    return make("thead", "", make("tr", "", [make("th", "", head, scope="col") for head in heads]))


def _flatten(children: Iterable[Child]) -> Iterable[Node]:
    for child in children:
        if isinstance(child, (str, Element)):
            if child != "":
                yield child
        elif child is not None:
            yield from _flatten(child)


def write_markup(node: Node, prefix: str = "") -> str:
    """Return HTML; `prefix` is added to every id and local link, so that two attempts fit on one page."""
    from html import escape  # it loads the names of all characters; a report in a terminal needs none

    if isinstance(node, str):
        return escape(node)
    tag, _, look = node[0].partition(" ")
    attributes = f' class="{escape(look)}"' if look else ""
    attributes += "".join(f' {name}="{escape(_place(tag, name, value, prefix))}"' for name, value in node.attributes.items())
    if tag in _WITHOUT_END:
        return f"<{tag}{attributes}/>"
    return f"<{tag}{attributes}>{''.join(write_markup(child, prefix) for child in node.children)}</{tag}>"


def _place(tag: str, name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    # Symbols are defined once per page.
    return f"#{prefix}{value[1:]}" if name == "href" and tag == "a" and value.startswith("#") else value


def read_text(node: Node) -> str:
    """Return the text of an element."""
    return node if isinstance(node, str) else "".join(read_text(child) for child in node.children)
