"""Whether a page is nothing but our own markup: elements, attributes and addresses that templates write."""

from __future__ import annotations

import functools
import re
from collections import Counter
from html.parser import HTMLParser

_ELEMENTS = """
    html head meta title link script body svg symbol circle rect path use polyline line a header nav ul ol li form input button main
    h1 h2 h3 p span b bdi small code pre div section table thead tbody tr th td time details summary dl dt dd footer kbd dialog label select
    option progress mark textarea fieldset legend ins del text datalist br strong em blockquote
"""
ELEMENTS = frozenset(_ELEMENTS.split())
ATTRIBUTES = re.compile(
    r"(aria|data)-[a-z]+(-[a-z]+)?|class|id|href|src|type|name|value|content|charset|lang|dir|role|title|for|method|action|rel|datetime|scope|tabindex|hidden|"
    r"focusable|viewbox|preserveaspectratio|d|cx|cy|r|rx|x|y|x1|x2|y1|y2|width|height|points|stroke-dasharray|text-anchor|required|autofocus|spellcheck|"
    r"maxlength|inputmode|autocomplete|start|checked|selected|placeholder|max|min|rows|wrap|open|target|list|formnovalidate|disabled|download"
)
ADDRESS = re.compile(r"|/(ui|static|api|shared)/[^\s]*|[?#][^\s]*")
EMPTY = frozenset(["meta", "link", "input", "br"])


@functools.cache
def is_ours(attribute: str) -> bool:
    """Whether templates write an attribute of this name."""
    return ATTRIBUTES.fullmatch(attribute) is not None


class Markup(HTMLParser):
    """Reads a page and notes everything that is not ours."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.elements = 0
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self._open]
        self.problems += [f"id {id!r} is there twice" for id in {id: count for id, count in Counter(self.ids).items() if count > 1}]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements += 1
        if tag not in ELEMENTS:
            self.problems.append(f"<{tag}>")
        for name, value in attrs:
            if not is_ours(name):
                self.problems.append(f"<{tag} {name}>")
            if name in ("href", "src", "action") and not ADDRESS.fullmatch(value or ""):
                self.problems.append(f"<{tag} {name}={value!r}>")
            if name == "id":
                self.ids.append(value or "")
        if tag == "script" and not dict(attrs).get("src", ""):
            self.problems.append("an inline script")
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"a comment: {data[:40]!r}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        """Everything a reader reads, with single spaces."""
        return " ".join("".join(self.text).split())
