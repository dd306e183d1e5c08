"""Markup as values: elements with text, written as HTML or as JSON.

The web pages write elements as HTML. The HTML report carries them as JSON, and its script draws them node by node, so text is never
parsed as markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from proctor.model.evidence import Json

_WITHOUT_END = frozenset(("use", "circle", "rect", "path", "line"))
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
    if isinstance(node, str):
        return html.escape(node)
    tag, _, look = node[0].partition(" ")
    attributes = f' class="{html.escape(look)}"' if look else ""
    attributes += "".join(f' {name}="{html.escape(_place(tag, name, value, prefix))}"' for name, value in node.attributes.items())
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
