"""What the service refuses is told in the reader's language: every sentence of the source is there, with what is filled in."""

from __future__ import annotations

import re

import pytest

from proctor.report.catalogue import LANGUAGES, REFUSALS, _read_sentences, read_catalogue  # pyright: ignore[reportPrivateUsage]
from tests.pages.said_refusals import list_refusals
from tests.pages.world import World

TO_PROGRAMS = (
    *("rest/decompression.py", "rest/routes/otlp.py", "rest/routes/public_traces.py", "rest/routes/sandbox_surfaces.py"),
    *("rest/trace_bodies.py", "rest/write_queue.py", "service/traces/intake.py", "service/traces/routing.py"),
    *("service/traces/unknown_agents.py", "service/verification/sandbox_requests.py", "service/verification/public_runs.py"),
)
"""What only answers programs that send traces, or agents that work in a sandbox: no page has a form for it."""
WITHOUT_WORDS = {"{} has {}", "{}: {}", "{} (--sandbox-rows, --sandbox-bytes)"}
"""Nothing but what is filled in."""
OF_MCP = {
    "sandboxes {action: list}, then sandboxes {action: teardown}",
    "task runs are started and completed with the run's token or an organization key",
}
"""Told to coding agents, and to those that have no session."""


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_refusal_that_a_page_may_show_is_translated(language: str) -> None:
    there, declared = _read_sentences(language, REFUSALS), read_catalogue(language).declared
    said = list_refusals()
    wanted = {text for text, path in said.items() if path not in TO_PROGRAMS} - WITHOUT_WORDS - OF_MCP - declared.keys()
    assert wanted - there.keys() == set()
    assert there.keys() - said.keys() == set(), "nobody says this any more"
    for text, other in there.items():
        assert text != other and len(re.findall(r"\{(?:!r)?\}", text)) == len(re.findall(r"(?<!\{)\{\d?\}(?!\})", other)), text
        assert re.findall(r"`[^`]+`|--[\w-]+", text) == re.findall(r"`[^`]+`|--[\w-]+", other), text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("there is no run 'run_9'", "Lauf 'run_9' gibt es nicht"),
        ("there is no such claim in this project", "diese Behauptung gibt es in diesem Projekt nicht"),
        ("expected 2 to 6 runs, got 7", "2 bis 6 Läufe werden erwartet, es sind 7"),
        ('expected a JSON object such as {"name": "value"}: {x', 'ein JSON-Objekt wie {"name": "value"} wird erwartet: {x'),
        ("there is no benchmark run '{0}'", "Benchmark-Lauf '{0}' gibt es nicht"),
        ("the task run is completed already", "der Aufgabenlauf ist schon abgeschlossen"),
        ("nobody has ever said this", "nobody has ever said this"),
        ("there is no " + "x" * 5_000, "there is no " + "x" * 5_000),
    ],
)
def test_what_is_filled_in_stays(said: str, told: str) -> None:
    assert read_catalogue("de").translate(said) == told
    assert read_catalogue("en").translate(said) == said


def test_a_page_that_cannot_be_shown_says_why_in_the_readers_language(seen: World) -> None:
    for language, told in (("de", "Lauf &#39;run_gone&#39; gibt es nicht"), ("es", "no existe ejecución &#39;run_gone&#39;")):
        answer = seen.get("/ui/p/proj_home/runs/run_gone", "organization", headers={"accept-language": language})
        assert answer.status_code == 404 and told in answer.text, answer.text
    answer = seen.get("/ui/p/proj_home/compare?runs=a,b,c,d,e,f,g", "organization", headers={"accept-language": "de"})
    assert "7 Läufe sind gewählt" in answer.text and "höchstens 6 Läufe werden auf einmal verglichen" in answer.text
