"""A language in which every sentence carries marks, so that a text without them is data, or a sentence that the catalogue lacks.

What is filled into a sentence stands outside of its marks. Data is written in capitals. So a word in small letters outside of marks was
written by the program itself, in English, whatever language was asked for.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, TypeVar

import msgspec

from proctor.report.catalogue import Catalogue, read_catalogue
from proctor.report.wording import split_reason

T = TypeVar("T")


class MarkedCatalogue(Catalogue):
    """Marks what is declared too."""

    def translate(self, text: str) -> str:
        return f"⟦{text}⟧" if text else ""


MARKED = MarkedCatalogue(
    "xx", {name: "⟦" + re.sub(r"(\{\w+\})", r"⟧\1⟦", text) + "⟧" for name, text in read_catalogue("en").sentences.items()}
)
UNITS = {"min", "native", "plain", "proctor", "show", "true", "false", "null"}
"""What is written alike in every language: units, names of formats, commands."""
_KEPT = {
    "outcome",
    "ended",
    "by",
    "code",
    "kind",
    "verdict",
    "started_at",
    "now",
    "dialect",
    "currency",
    "reader",
    "check",
    "parts",
    "change",
}
"""Fields whose values are words of the program, which reports look up or show as they are."""
_READ = ("title", "aria-label", "placeholder", "alt", "label", "data-label", "data-old", "data-damaged")
"""Attributes that people read, or hear."""
_SHOWN_AS_THEY_ARE = re.compile(
    r'pass\^\d+|…\([\d,]+ more\)…|(?:expected|, found) (?=[A-Z0-9/"])|"[^"\n]*"|\$[\w.\[\]]*|[^\s,]*[/_][^\s,]*'
)
"""JSON in its quotes, pointers, paths and codes; what the reason of a check says, which is data; what was cut out of data."""
_WORD = re.compile(r"(?<![\w.@-])[a-zäöüß]{3,}(?![\w.@-])")


def write_in_capitals(value: T) -> T:
    """Return data with its texts in capitals; what a reason expects and finds stays apart."""
    return _write(value)


def _write(value: Any) -> Any:
    if isinstance(value, str):
        parts = split_reason(value)
        if parts is None:
            return value.upper()
        return f"{parts.about.upper()}{': ' if parts.about else ''}expected {parts.expected.upper()}, found {parts.found.upper()}"
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _KEPT}
        written = {name: _write(part) for name, part in fields.items()}
        for field in {"tags", "axes"} & written.keys():
            # What the tags of a case are called is data too; the ones that reports group by have a `_`.
            written[field] = written[field] and {name if "_" in name else name.upper(): part for name, part in written[field].items()}
        return msgspec.structs.replace(value, **written)
    if isinstance(value, dict):
        return {name: part if name in _KEPT else _write(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_write(part) for part in value)
    return value


def find_unmarked(text: str) -> set[str]:
    """Return the words of a text that stand outside of marks and are no data."""
    outside, depth = [], 0
    for character in text:
        depth += (character == "⟦") - (character == "⟧")
        assert depth >= 0, text
        outside.append("\n" if character in "⟦⟧" or depth else character)
    return set(_WORD.findall(_SHOWN_AS_THEY_ARE.sub(" ", "".join(outside)))) - UNITS


class ReadTexts(HTMLParser):
    """Every text that a page shows or says."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._silent = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style")
        self.texts += [value for name, value in attrs if name in _READ and value]

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts.append(data)


def list_packet_texts(node: Any) -> list[str]:
    """Return every text that an element in a packet shows or says."""
    if isinstance(node, str):
        return [node]
    texts: list[str] = []
    for child in node[1:]:
        texts += [value for name, value in child.items() if name in _READ] if isinstance(child, dict) else list_packet_texts(child)
    return texts
