"""The characters of values inside a document: of the texts in a structured one, of any value in one that is a JSON text.

A pointer leads to a value of a structured document, so there only texts have characters. It does not lead into a text: where the document
is one, the characters of the value in it say what a pointer cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

import msgspec

from proctor.checks.shared.answer import answer_json, find_fenced
from proctor.checks.shared.json_text import Keys, find_value_spans
from proctor.checks.shared.ranges import MOST_SPANS
from proctor.matchers.equal import deep_equal, join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend


class JsonDocument(msgspec.Struct, frozen=True):
    """A document, its path in the evidence, and its text if it is one."""

    value: Json
    pointer: str
    text: str | None = None
    start: int = 0
    """Where in the text the document begins."""

    def locate(self, places: Iterable[Keys]) -> Iterator[TextRange]:
        """Yield the characters of the values at these places, the first of them; in a JSON text in the order of the text."""
        wanted = list(islice(dict.fromkeys(places), MOST_SPANS))
        if self.text is not None:
            for start, end in sorted(find_value_spans(self.text, wanted, self.start).values()):
                yield TextRange(self.pointer, start, end)
            return
        for keys in wanted:
            value = _follow(self.value, keys)
            if isinstance(value, str) and value:
                yield TextRange(write_pointer(self.pointer, keys), 0, len(value))


def open_answer(evidence: Evidence, *, source: Literal["body", "text"] = "body", unfence: bool = True) -> JsonDocument | None:
    """Return the answer as the document that checks look into, or None where there is none.

    A body that equals the parsed text is located in the text, which is what a person sees.
    """
    answer = answer_json(evidence, source=source, unfence=unfence)
    if isinstance(answer, Verdict):
        return None
    spoken = answer if answer.pointer == "$.text" else answer_json(evidence, source="text", unfence=unfence)
    if evidence.text is None or isinstance(spoken, Verdict) or (spoken is not answer and not deep_equal(spoken.value, answer.value)):
        return JsonDocument(answer.value, answer.pointer)
    fenced = find_fenced(evidence.text) if unfence else None
    return JsonDocument(answer.value, "$.text", evidence.text, 0 if fenced is None else fenced[0])


def write_pointer(base: str, keys: Keys) -> str:
    """Return the pointer that leads from `base` along keys and positions."""
    for key in keys:
        base = join_path(base, key) if isinstance(key, str) else f"{base}[{key}]"
    return base


def find_keys(document: Json, base: str, pointers: Iterable[str]) -> Iterator[Keys]:
    """Yield the keys of the values of a document at these pointers; the document itself is at `base`."""
    wanted = set(pointers)
    waiting: list[tuple[Json, str, Keys]] = [(document, base, ())]
    while waiting and wanted:
        value, pointer, keys = waiting.pop()
        spend(1 + len(pointer) // 64)
        if pointer in wanted:
            wanted.discard(pointer)
            yield keys
        if isinstance(value, dict):
            waiting += [(item, join_path(pointer, key), (*keys, key)) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(item, f"{pointer}[{at}]", (*keys, at)) for at, item in enumerate(value)]


def _follow(value: Json, keys: Keys) -> Json:
    for key in keys:
        value = value[key]
    return value
