"""Every sentence there is exists in every language, and every sentence a page asks for exists."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from proctor import cli
from proctor.actions import compare_rows
from proctor.pages import rendering
from proctor.report import catalogue, html
from proctor.report.catalogue import LANGUAGES, choose_language, read_catalogue

ASKED = re.compile(r"""\bt\(\s*["']([a-z_.]+)["']""")
MADE = re.compile(r"""\bt\(\s*["']([a-z_]+\.[a-z_.]*)["'] ~""")
CHOSEN = {"login.wrong", "login.forbidden", "history.said_runs", "history.said_days"}
SAID = re.compile(r"""["']([a-z_]+\.[a-z_]+)["']""")


def places(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


REPORT, DOOR = Path(catalogue.__file__).parent, Path(cli.__file__).parent
FAMILY = [*sorted(REPORT.glob("*.py")), *sorted(REPORT.glob("templates/*.js")), *sorted(DOOR.rglob("*.py")), Path(compare_rows.__file__)]
BEGUN = re.compile(r"""say(?:_known)?\(\s*f?["'`]([a-z_]+\.[a-z_.]*)\$?\{""")


def find_said_by_screens() -> set[str]:
    """Sentences that screens, conditions in templates and the report in one file name."""
    folder = Path(rendering.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in (*folder.rglob("*.py"), *folder.rglob("*.html"), *FAMILY)]
    # The places of the static page name theirs with `_` for the dot.
    texts.append(" ".join(f'"{place.replace("_", ".", 1)}"' for place in html._SAID))
    known = {name.removesuffix(".one").removesuffix(".other") for name in read_catalogue("en").sentences}
    return {name for text in texts for name in SAID.findall(text)} & known


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_a_language_has_every_sentence_with_the_same_places(language: str) -> None:
    english, other = read_catalogue("en").sentences, read_catalogue(language).sentences
    assert english.keys() == other.keys()
    assert {name: places(text) for name, text in english.items()} == {name: places(text) for name, text in other.items()}
    untranslated = [name for name, text in english.items() if other[name] == text and len(text) > 12]
    assert not untranslated


def test_templates_ask_for_sentences_that_exist_and_none_is_left_over() -> None:
    sentences = set(read_catalogue("en").sentences)
    bare = {name.removesuffix(".one").removesuffix(".other") for name in sentences}
    environment = rendering.make_environment()
    assert environment.loader is not None
    asked, begun = (
        set(CHOSEN) | find_said_by_screens(),
        {
            "act.",
            "alert.",
            "error.",
            "outcome.",
            "count.",
            "status.",
            "fact.",
            "about.",
            "rest.",
            "step.",
            "change.",
            "amount.",
            "group.",
            "labels.curve.",
            "list.",
            "why.",
        },
    )
    begun |= {name for path in FAMILY for name in BEGUN.findall(path.read_text(encoding="utf-8"))} | {"part.", "known.is_"}
    for name in environment.list_templates():
        text = environment.loader.get_source(environment, name)[0]
        begun |= set(MADE.findall(text))
        asked |= set(ASKED.findall(text)) - set(MADE.findall(text))
    assert asked <= bare, asked - bare
    assert not {name for name in bare - asked if not name.startswith(tuple(begun))}


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"), ("de", "de"), ("de-AT, en;q=0.8", "de"), ("fr, es;q=0.7, de;q=0.8", "de"), ("fr", "en"), ("es;q=0, de;q=0.1", "de"),
        ("*", "en"), ("de;q=nonsense", "en"), ("," * 5000, "en"), ("EN-us,de", "en"), (";;;,q=1", "en"),
    ],
)  # fmt: skip
def test_the_language_is_the_one_the_reader_likes_best(header: str, language: str) -> None:
    assert choose_language(header) == language


def test_numbers_are_written_as_the_language_writes_them() -> None:
    assert [read_catalogue(language).write_number(1234.5, 1) for language in LANGUAGES] == ["1,234.5", "1.234,5", "1.234,5"]
    assert read_catalogue("de").say("run.progress", finished=1000, attempts=2000) == "1.000 von 2.000 Versuchen fertig"
    assert read_catalogue("en").say("count.attempts", count=1) == "1 attempt"
