"""Takes a report apart: its markup, and the packets it carries."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Every element with its attributes, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, str] = {}
        self.seen = ""
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag
            self.blocks[self._inside] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.seen += data
        else:
            self.blocks[self._inside] += data

    def packet(self, name: str) -> Any:
        """The JSON of one packet."""
        return json.loads(zlib.decompress(base64.b64decode(self.blocks[name], validate=True)))

    @property
    def index(self) -> Any:
        """The list of cases."""
        return self.packet("index")

    def details(self, case_id: str) -> Any:
        """One case in full."""
        row = next(row for row in self.index["rows"] if row["id"] == case_id)
        return self.packet(f"packet-{row['packet']}")[row["place"]]

    def read_case(self, case_id: str) -> str:
        """Everything that a reader reads in one case, of all its attempts."""
        return "".join(read_text(node) for attempt in self.details(case_id)["attempts"] for node in attempt["view"])

    def find(self, tag: str, look: str) -> list[dict[str, str | None]]:
        """The attributes of every element of this kind in the page before any script runs."""
        return [attrs for name, attrs in self.elements if name == tag and look in (attrs.get("class") or "").split()]

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        return next(attrs["content"] or "" for _, attrs in self.elements if attrs.get("http-equiv") == "Content-Security-Policy")


def read_text(node: Any) -> str:
    """The text of an element as a packet carries it."""
    return node if isinstance(node, str) else "".join(read_text(child) for child in node[1:] if not isinstance(child, dict))
