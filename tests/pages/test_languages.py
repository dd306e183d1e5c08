"""Every page in every language: what it says is of the catalogue, of a declaration that is translated, or data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

import proctor
from proctor import pages
from proctor.checks.registry import default_registry
from proctor.errors import StoreError
from proctor.pages import nouns, rendering
from proctor.pages.screens import alerts, keys, project_settings, retention
from proctor.pages.words import show_duration, show_figure, show_share
from proctor.report.catalogue import LANGUAGES, read_catalogue
from proctor.rest.view import make_view_app
from proctor.service.hub import Hub
from proctor.service.traces.search import NO_CASE
from proctor.service.verification.fields import Table, label_of
from proctor.store.bodies import unpack
from proctor.store.columns import METADATA
from tests.pages.test_noun_pages import READS, route_of
from tests.pages.test_screens import PAGES
from tests.pages.test_settings_pages import HOME, add_results, make_rule, send
from tests.pages.test_view import keep
from tests.pages.world import BAD, GOOD, SUITE, World, add_run, decide_all
from tests.report.marked_words import MARKED, find_unmarked
from tests.rest.seeds import sow

NOUN_PAGES = ["/ui" + row.get("path", route_of(row).partition(" ")[2]) for row in READS]
NOUN_FORMS = [f"/ui/{one.path[1:]}/new" for one in nouns.OPERATIONS if one.method == "POST" and one.path.count("/") == 1 and one.takes]
MORE = [f"{HOME}/alerts", f"{HOME}/alerts/ALERT", f"{HOME}/alerts/ALERT/change", f"{HOME}/alerts/new?kind=failing_case",
        f"{HOME}/alerts/new?kind=missing_evidence", f"{HOME}/runs/run_live", "/ui/audit", "/ui/login"]  # fmt: skip
CODE = ("code", "pre", "kbd", "textarea", "script", "style", "datalist")
"""Elements whose text is data, a command or a key; or names of checks with what their documentation says."""
READ = ("title", "aria-label", "placeholder", "alt", "label")
SAID = re.compile(r"data-(said|label|lost|confirm|waiting|paused|following|words)")
KEPT = {"native", "mcpjam", "mcplab", "verial", "mibo", "flowise", "custom", "fhir", "llm", "target", "kind", "error", "skip", "home"}
"""Names of formats, kinds and fields, and words that are typed as they are: the same in every language."""


@pytest.fixture(scope="module")
def told(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with one of everything."""
    home = tmp_path_factory.mktemp("languages")
    (home / "proctor.db").write_bytes(sqlite_template.read_bytes())
    with World(f"sqlite:///{home / 'proctor.db'}", home) as opened:
        opened.service.run(sow)
        opened.service.run(lambda hub: add_results(hub, "pppfffppf"))
        going = {"status": "running", "outcome": None, "completed_at": None, "attempts": 4}
        observed = {name: {"text": "no", "tool_calls": []} for name in ("refund-twice", "opening-hours", "greeting")}
        opened.service.run(lambda hub: add_run(hub, "run_live", decide_all(observed)[:2], **going))
        opened.rule = make_rule(opened)  # type: ignore[attr-defined]
        opened.data = opened.service.run(read_words)  # type: ignore[attr-defined]
        yield opened


async def read_words(hub: Hub) -> set[str]:
    """Every word in the database: what a page says of it, somebody said."""
    found: set[str] = set()
    async with hub.database.reading() as connection:
        for table in METADATA.sorted_tables:
            for row in await connection.execute(sa.select(table)):
                for value in row:
                    found |= _list_words(value)
    return found


def _list_words(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(re.findall(r"[^\W\d_]+", value))
    if isinstance(value, bytes):
        try:
            return _list_words(unpack(value))
        except StoreError:
            return set()
    if isinstance(value, dict):
        # What a field of a record is called is ours, and to be translated; in a document of a case it is the writer's.
        return set().union(*map(_list_words, value.values()))
    return set().union(*map(_list_words, value)) if isinstance(value, (list, tuple)) else set()


class Read(HTMLParser):
    """Every text that a page shows or says but code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside += [tag] if tag in CODE else []
        self.texts += [value for name, value in attrs if value and (name in READ or SAID.match(name))]

    def handle_endtag(self, tag: str) -> None:
        if self._inside[-1:] == [tag]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.texts.append(data)


def find_untold(page: str, data: set[str]) -> dict[str, set[str]]:
    """The texts of a page with the words in them that nobody could translate; `{count}` is a place that a script fills in."""
    texts = (re.sub(r"\{\w+\}", "", text) for text in Read(page).texts)
    return {text: words for text in texts if (words := find_unmarked(text) - data)}


@pytest.mark.parametrize("path", dict.fromkeys([*PAGES, *NOUN_PAGES, *NOUN_FORMS, *MORE]))
def test_every_text_of_a_page_is_of_the_catalogue_or_data(told: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "read_catalogue", lambda language: MARKED)
    answer = told.get(path.replace("ALERT", told.rule), None if path == "/ui/login" else "organization")  # type: ignore[attr-defined]
    assert answer.status_code == 200, answer.text
    data: set[str] = told.data | KEPT  # type: ignore[attr-defined]
    wrong = find_untold(answer.text, data)
    assert "⟦" in answer.text
    assert not wrong


def test_every_text_of_a_folder_is_of_the_catalogue_or_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "read_catalogue", lambda language: MARKED)
    home = tmp_path / "shop" / ".proctor"
    first, second = "20261115-090000-a", "20261116-090000-b"
    keep(home, first, decide_all(GOOD), planned=3)
    keep(home, second, decide_all(BAD)[:2], ended="interrupted", planned=3)
    client = TestClient(make_view_app(home), base_url="http://127.0.0.1:8000")
    data = _list_words([SUITE, str(tmp_path), msgspec.to_builtins([decide_all(GOOD), decide_all(BAD)])]) | KEPT | {"app", "run"}
    both = f"runs={first},{second}"
    for path in (
        "",
        "/runs",
        f"/runs/{second}",
        f"/runs/{second}/r/0",
        f"/compare?{both}",
        f"/compare/answers?{both}&case=opening-hours",
    ):
        answer = client.get(f"/ui/p/local{path}")
        assert "⟦" in answer.text
        assert not find_untold(answer.text, data), path


def test_what_would_be_deleted_is_told_in_the_readers_language(told: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "read_catalogue", lambda language: MARKED)
    answer = send(told, f"{HOME}/retention", {"trace_days": "2", "run_days": ""})
    assert answer.status_code == 200 and "⟦" in answer.text
    assert not find_untold(answer.text, KEPT)


@pytest.mark.parametrize(("language", "point"), [("en", "."), ("de", ","), ("es", ",")])
def test_shares_and_durations_are_written_as_the_language_writes_them(told: World, language: str, point: str) -> None:
    words = read_catalogue(language)
    assert show_share(1 / 3, words) == f"33{point}3 %" and show_share(0.9999, words) == f">99{point}9 %" and show_share(1, words) == "100 %"
    assert show_duration(1500, words) == f"1{point}5 s" and show_duration(None, words) == ""
    assert show_figure(3.0, words) == "3" and show_figure(0.25, words) == f"0{point}25"
    assert show_figure(12_345, words) == ("12,345" if language == "en" else "12.345")
    page = told.get(f"{HOME}/runs/run_after", "organization", headers={"accept-language": language}).text
    assert f"33{point}3 %" in page and f"1{point}9 s" in page
    assert not re.search(r">[^<]*\d[.](?:\d) (?:%|s)\b[^<]*<", page) or language == "en"


# --- declarations ---------------------------------------------------------------------------------------------------------------------


def list_declared() -> set[str]:
    """Every text of a declaration that a page shows."""
    found: set[str] = set()
    known = read_catalogue("en")

    def add_table(table: Table) -> None:
        for name, field in table.items():
            found.add(field.about)
            if not known.has(f"field.{name}"):
                found.add(label_of(name))
            # What can be chosen.
            found.update(map(str, field.kind.schema.get("enum", ())))
            if field.kind.shape is not None:
                add_table(field.kind.shape.fields)

    for one in nouns.OPERATIONS:
        found |= {one.noun.called, one.noun.about} | ({one.about} if one.method != "GET" else set())
        found |= {label_of(one.ids[-1]).lower()} if len(one.ids) > 1 else set()
        for shape in (one.takes, one.gives):
            add_table({} if shape is None else shape.fields)
        if one.path.endswith("}") and one.takes is None and len(one.ids) > 1:
            add_table(nouns.make_link_field(one))
    for table in (alerts.FIELDS, keys.FIELDS, project_settings.FIELDS, project_settings.SECRET, retention.FIELDS):
        add_table(table)
    return found - {""}


def list_summaries() -> set[str]:
    """What the editor says of each check that it proposes."""
    return {entry.summary.split("\n")[0] for entry in default_registry()} - {""}


TOLD = {"the form cannot be read", "expected a number", "expected a number without separators between thousands", "required",
        "the rule cannot be kept", "the key cannot be made", "some fields cannot be used", "expected a share from 0 to 1"}  # fmt: skip
"""What pages themselves say of a form; each stands in one of their screens."""
NOTED = re.compile(r'await note\(\s*connection, hub, caller, (?:"([a-z_]+)"(?: if [^,]+ else "([a-z_]+)")?|\w+[^,]*), (?:"([a-z_]+)")?')
STATES = {"active", "created", "started"}
"""What a record of a benchmark is, beside what the log has words for."""
WORDS_OF_THE_LOG = {"pause", "resume", "publish", "unpublish", "teardown", "cancel", "completed", "cancelled", "failed", "timed out", "run"}
"""What is done under a name that a variable has."""


def list_noted() -> set[str]:
    """Every word that the audit log has for what was done, and to what."""
    folder = Path(proctor.__file__).parent / "service"
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    # Also of records that have no page of their own, such as links that share a run.
    kinds = [kind for text in texts for kind in re.findall(r'= Resource\(\s*kind="([a-z_]+)"', text)]
    found = [word for path in folder.rglob("*.py") for match in NOTED.findall(path.read_text(encoding="utf-8")) for word in match if word]
    return {word.replace("_", " ") for word in found} | {kind.replace("_", " ") for kind in kinds} | WORDS_OF_THE_LOG


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_a_language_has_everything_that_declarations_say_and_nothing_else(language: str) -> None:
    there, wanted = read_catalogue(language).declared, list_declared() | list_noted() | STATES | TOLD | {NO_CASE}
    place = f"src/proctor/report/sentences/{language}/declared.json"
    missing, gone = sorted(wanted - there.keys()), sorted(there.keys() - wanted - list_summaries())
    assert not missing, f"add to {place}, each with its words in that language: {missing}"
    assert not gone, f"take out of {place}, since nothing says it any more: {gone}"
    alike = [text for text, other in there.items() if other == text and " " in text]
    assert not alike
    for text, other in there.items():
        assert re.findall(r"`[^`]*`|\$\{\w+\}", text) == re.findall(r"`[^`]*`|\$\{\w+\}", other), text
        assert other.strip() == other and other


@pytest.mark.parametrize("text", sorted(TOLD))
def test_what_is_said_of_a_form_is_still_said(text: str) -> None:
    assert any(f'"{text}"' in path.read_text(encoding="utf-8") for path in Path(pages.__file__).parent.rglob("*.py"))


def test_a_field_that_is_wrong_is_told_in_the_readers_language(told: World) -> None:
    proof = told.find_proof(f"{HOME}/retention", "organization")
    answer = told.ask(
        "POST", f"{HOME}/retention", "organization", data={"proof": proof, "trace_days": "x"}, headers={"accept-language": "de"}
    )
    assert "eine Zahl wird erwartet" in answer.text and "das Formular kann nicht gelesen werden" in answer.text


def test_english_says_what_was_declared() -> None:
    assert read_catalogue("en").translate("what it is called") == "what it is called"
    assert read_catalogue("de").translate("nobody has translated this") == "nobody has translated this"
