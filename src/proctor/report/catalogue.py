"""The sentences that people read on pages, in reports and in a terminal, by language: `sentences/en/` is complete, the others say the same.

A sentence has a name (`run.cancel`) and may have places to fill in (`{count}`). Where the number decides how it is said, there are two of
it, `NAME.one` and `NAME.other`. What suites, agents and checks say is shown as it was said.

Fields and verbs are described where they are declared, in English. Those texts have no second name: `declared.json` of the other languages
lists them as they stand in the declaration. What the service refuses, it refuses in English, for programs as for people; `refusals.json`
lists these sentences as they stand in the source, with `{}` for what is filled in, `{!r}` where it stands in quotes: `there is no {} {!r}`.
"""

from __future__ import annotations

import functools
import re
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
REFUSALS = "refusals"
"""The file of each language but English that has what is said when something is refused."""
_PLACE = re.compile(r"\{(?:!r)?\}")
_PLACES = {"{}": "(.*?)", "{!r}": "('.*?'|\".*?\")"}
_LONGEST_REFUSAL = 2_000
"""Characters. Longer ones are documents, not sentences."""
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
        """Return what a declaration says, or a refusal, in this language; as it stands there where nobody has translated it."""
        known = self.declared.get(text)
        if known is not None or self.language == DEFAULT or len(text) > _LONGEST_REFUSAL:
            return text if known is None else known
        known, patterns = _read_refusals(self.language)
        for pattern, sentence in patterns:
            if found := pattern.fullmatch(text):
                # What is filled in may be a word of ours again, such as the name of a noun.
                return sentence.format(*(self.declared.get(part) or known.get(part, part) for part in found.groups()))
        return known.get(text, text)

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


@functools.cache
def _read_refusals(language: str) -> tuple[dict[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    """Return the refusals in which nothing is filled in, and the others as patterns, those that say most by themselves first."""
    listed = sorted(_read_sentences(language, REFUSALS).items(), key=lambda item: len(_PLACE.sub("", item[0])), reverse=True)
    patterns = ((_compile_refusal(said), sentence) for said, sentence in listed if _PLACE.search(said))
    return {said: sentence for said, sentence in listed if not _PLACE.search(said)}, tuple(patterns)


def _compile_refusal(said: str) -> re.Pattern[str]:
    texts, places = map(re.escape, _PLACE.split(said)), [_PLACES[place] for place in _PLACE.findall(said)]
    return re.compile("".join(text + place for text, place in zip(texts, [*places, ""], strict=True)), re.DOTALL)


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
    # The header is as long as its sender likes, and is read for every page.
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
