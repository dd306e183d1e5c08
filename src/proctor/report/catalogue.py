"""The sentences that people read on pages, in reports and in a terminal, by language: `sentences/en/` is complete, the others say the same.

A sentence has a name (`run.cancel`) and may have places to fill in (`{count}`). Where the number decides how it is said, there are two of
it, `NAME.one` and `NAME.other`. What suites, agents and checks say is shown as it was said.

Fields and verbs are described where they are declared, in English. Those texts have no second name: `declared.json` of the other languages
lists them as they stand in the declaration.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, get_args

from proctor.model.typed import make_json_decoder

_SENTENCES = make_json_decoder(dict[str, str])
DEFAULT = "en"
Language = Literal["en", "de", "es"]
LANGUAGES: tuple[str, ...] = get_args(Language)
"""The first is complete by definition."""
TOPICS = (
    *("pages", "results", "overview", "cases", "traces", "labels", "alerts", "settings", "benchmarks"),
    *("report", "wording", "findings", "terminal", "comparison", "batch"),
)
"""The files of each language. No sentence stands in two of them."""
DECLARED = "declared"
"""The file of each language but English that has the texts of declarations."""
_OTHER_POINTS = {ord(","): ".", ord("."): ","}


class Catalogue:
    """The sentences of one language."""

    def __init__(self, language: str, sentences: dict[str, str], declared: Mapping[str, str] | None = None) -> None:
        self.language = language
        self.sentences = sentences
        self.declared = declared or {}

    def say(self, name: str, /, **places: Any) -> str:
        """Return a sentence with its places filled in; `count` also chooses between one and many."""
        count = places.get("count")
        sentence = self.sentences.get(name)
        if sentence is None and count is not None:
            sentence = self.sentences[f"{name}.{'one' if count == 1 else 'other'}"]
        elif sentence is None:
            raise KeyError(name)
        if not places:
            return sentence
        return sentence.format(**{place: self.write_number(value) if isinstance(value, int) else value for place, value in places.items()})

    def has(self, name: str) -> bool:
        """Return whether there is a sentence of this name."""
        return name in self.sentences

    def say_known(self, group: str, word: str, joined_by: str = ".") -> str:
        """Return the sentence for a word of ours, such as `fact.score` for `score`; the word itself where there is none."""
        return self.sentences.get(f"{group}{joined_by}{word.replace(' ', '_')}", word)

    def translate(self, text: str) -> str:
        """Return what a declaration says, in this language; as it stands there where nobody has translated it."""
        return self.declared.get(text, text)

    def write_number(self, number: float, places: int = 0) -> str:
        """Return a number as it is written in this language."""
        return self.write_figure(f"{number:,.{places}f}")

    def write_figure(self, text: str) -> str:
        """Return a figure that was written as in English, `1,234.5 %`, as it is written in this language."""
        return text if self.language == "en" else text.translate(_OTHER_POINTS)


@functools.cache
def read_catalogue(language: str) -> Catalogue:
    """Return the sentences of one of `LANGUAGES`."""
    sentences: dict[str, str] = {}
    for topic in TOPICS:
        found = _read_sentences(language, topic)
        assert not found.keys() & sentences.keys(), (language, topic)
        sentences |= found
    return Catalogue(language, sentences, {} if language == DEFAULT else _read_sentences(language, DECLARED))


def _read_sentences(language: str, topic: str) -> dict[str, str]:
    from pkgutil import get_data  # read through the loader, so a zipped installation works too

    content = get_data("proctor.report", f"sentences/{language}/{topic}.json")
    assert content is not None, (language, topic)
    return _SENTENCES.decode(content)


def speak(words: Catalogue | None) -> Catalogue:
    """Return the sentences that were given; English ones where none were."""
    return read_catalogue(DEFAULT) if words is None else words


def choose_language(accepted: str) -> str:
    """Return the language that a reader likes best of those there are, as `Accept-Language` tells it (RFC 9110, 12.5.4)."""
    liked: list[tuple[float, int, str]] = []
    for number, part in enumerate(accepted[:1000].split(",")[:50]):
        tag, _, quality = part.strip().partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=")) if quality.strip() else 1.0
        except ValueError:
            continue
        language = tag.strip().lower().partition("-")[0]
        if weight > 0 and language in LANGUAGES:
            liked.append((-weight, number, language))
    return min(liked)[2] if liked else DEFAULT
