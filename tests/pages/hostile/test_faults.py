"""Faults while a page is open: the page shows what happened and what to do, and no input is lost."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.evidence.otlp.spans import SpanGroup
from proctor.pages.routes import NOUN_SCREENS, SCREENS, SERVICE_SCREENS
from proctor.rest import security
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key, open_session, revoke_key
from proctor.service.access.projects import delete_project
from proctor.service.decisions.trace_evidence import read_evidence
from proctor.service.hub import Hub
from proctor.service.traces import feed
from proctor.store.sql.compressed_json import pack
from tests.pages.markup import Markup
from tests.pages.screens.test_proposal_pages import propose
from tests.pages.screens.test_schedule_pages import make as make_schedule
from tests.pages.screens.test_settings_pages import make_rule
from tests.pages.trace_seeds import START, add_result, add_trace, make_spans, score_by_words
from tests.pages.world import GOOD, SUITE, World, WorldTemplate, add_run, copy_world, decide_all
from tests.pages.world_cases import FIRST

HOME = "/ui/p/proj_home"
TYPED = 'a long story </textarea></script><script>alert("1")</script> \u05e9\u05dc\u05d5\u05dd \u202e he\u200bre'
RULE = {"name": TYPED, "below": "0.9", "window_s": "3600", "minimum": "2", "webhook_url": "https://example.com/hook", "active": "on"}
TARGET = '{"type": "http", "url": "https://example.com/", "response_path": "text"}'
RUN = {"do": "start", "what": "suite", "suite": SUITE, "target": "other:", "own_target": TARGET, "repeat": "1", "concurrency": "1",
       "timeout_s": "9", "note": TYPED}  # fmt: skip
SCHEDULE = {"name": "nightly", "note": TYPED, "cron": "30 2 * * *", "timezone": "Europe/Berlin", "overlap": "skip", "active": "on",
            "cases": "case_manners", "repeat": "2", "concurrency": "4", "timeout_s": "60", "tags": "smoke", "target": TARGET}  # fmt: skip
CLAIM = {"subject": "result", "id": "res_shop", "claim": "1", "label": "pass", "note": TYPED}
FORMS: dict[str, dict[str, str]] = {
    "/ui/projects/new": {"name": TYPED, "description": "", "settings": "{}"},
    "/ui/keys/new": {"kind": "organization", "name": TYPED},
    "/ui/benchmarks": {"name": TYPED},
    "/ui/solvers/slv_home/change": {"alias": "solver-home", "real_name": TYPED},
    f"{HOME}/settings/change": {"name": TYPED, "description": "", "settings": "{}"},
    f"{HOME}/retention": {"trace_days": "30", "run_days": "", "previewed": "30,"},
    f"{HOME}/secrets": {"name": "A_LONG_STORY", "value": "hush"},
    f"{HOME}/alerts/new?kind=pass_rate": RULE,
    f"{HOME}/alerts/ALERT/change": RULE,
    f"{HOME}/runs/new": RUN,
    f"{HOME}/schedules/new": SCHEDULE,
    f"{HOME}/schedules/SCHEDULE/change": SCHEDULE,
    f"{HOME}/cases/new": {"do": "save", "document": FIRST, "name": TYPED, "sample": "1"},
    f"{HOME}/cases/case_manners/edit": {"do": "save", "document": FIRST, "name": TYPED, "sample": "1", "expected_version": "2"},
    f"{HOME}/cases/case_manners/backtest": {"limit": "4321"},
    f"{HOME}/proposals": {"agent": "", "limit": "321"},
    f"{HOME}/proposals/PROPOSAL/edit": {"do": "save", "document": FIRST, "name": TYPED, "dialect": "native", "expected_version": "1"},
    f"{HOME}/examinations/new": {"server": "https://example.com/mcp", "areas": "tools", "note": TYPED},
    f"{HOME}/agents/new": {"name": TYPED, "kind": "http"},
    f"{HOME}/agents/agent_home_1/edit": {"name": TYPED, "kind": "http"},
    f"{HOME}/traces/reevaluate": {"trace_ids": TYPED},
    f"{HOME}/traces/trc_shop/label": {"note": TYPED, "label": "fail"},
    f"{HOME}/labels": CLAIM,
    f"{HOME}/labels/ann_note/change": {"note": TYPED, "label": "pass"},
}
"""Every form with input fields, filled in with valid values."""
BUTTONS = frozenset(
    ("cancel", "active", "delete", "switch", "test", "pause", "revoke", "check", "undo", "example", "{action}")
)  # nothing is typed there: `check` reads the text of an editor, which stays where it is


@pytest.fixture(scope="module")
def copied(world_template: WorldTemplate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world for tests after which everything is as it was."""
    with copy_world(world_template, tmp_path_factory.mktemp("faults")) as opened:
        opened.rule = make_rule(opened)  # type: ignore[attr-defined]
        opened.schedule = make_schedule(opened)  # type: ignore[attr-defined]
        opened.proposal = propose(opened)  # type: ignore[attr-defined]
        yield opened


def open_other_session(world: World) -> str:
    """Log in another user, as `other`, and return the id of their key."""
    row, plain = world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="organization", name="other")))
    world.sessions["other"] = world.service.run(lambda hub: open_session(hub, plain))[1]
    return str(row["id"])


def away(*_: object, **__: object) -> Any:
    raise StoreError("the database did not answer")


def test_every_form_is_tried_here() -> None:
    posted = [path for method, path, _ in (*SCREENS, *SERVICE_SCREENS, *NOUN_SCREENS) if method == "POST"]
    patterns = {path: re.compile(re.sub(r"\{rest:path\}", ".+", re.sub(r"\{\w+\}", "[^/]+", path))) for path in posted}
    tried = {next(path for path in posted if patterns[path].fullmatch(form.partition("?")[0])) for form in FORMS}
    assert {path for path in posted if path.rpartition("/")[2] not in BUTTONS} == tried


@pytest.mark.in_turn
@pytest.mark.parametrize("path", FORMS)
def test_a_form_that_cannot_be_saved_comes_back_with_everything_in_it(copied: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = FORMS[path]
    path = path.replace("ALERT", copied.rule).replace("SCHEDULE", copied.schedule).replace("PROPOSAL", copied.proposal)  # type: ignore[attr-defined]
    proof = copied.find_proof("/ui/", "organization")
    database = type(copied.service.hub.database)

    def check(answer: Any, status: int, message: str) -> None:
        page = Markup(answer.text)
        assert answer.status_code == status and page.problems == [] and message in page.words, page.words
        shown = html.unescape(answer.text).replace("\r\n", "\n")
        for name, value in fields.items():
            assert (value in shown) == (name != "value"), (name, "a secret is never shown again" if name == "value" else "it is lost")

    with monkeypatch.context() as broken:
        broken.setattr(database, "writing", away)
        # Without traces that have tools in common nothing is proposed, and nothing written.
        if path != f"{HOME}/proposals":
            check(copied.post(path, "organization", proof=proof, **fields), 503, "did not answer")
        broken.setattr(database, "reading", away)
        check(copied.post(path, "organization", proof=proof, **fields), 503, "Database unavailable")
    key = open_other_session(copied)
    theirs = copied.find_proof("/ui/", "other")
    check(copied.post(path, "organization", proof=theirs, **fields), 403, "another session")
    copied.service.run(lambda hub: revoke_key(hub, LOCAL, key))
    check(copied.post(path, "other", proof=theirs, **fields), 401, "Log in and try again")


# --- streams ----------------------------------------------------------------------------------------------------------

STREAMS = {
    f"{HOME}/runs/run_live": "/api/runs/run_live/events?after=2",
    f"{HOME}/traces": "/api/traces/events?project_id=proj_home",
}


@pytest.fixture
def live(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """An unfinished run, and streams with a short interval."""
    more = {"status": "running", "outcome": None, "completed_at": None, "attempts": 4}
    world.service.run(lambda hub: add_run(hub, "run_live", decide_all(GOOD)[:2], **more))
    monkeypatch.setattr(security, "RECHECK_S", 0.05)
    monkeypatch.setattr(feed, "LOOK_EVERY_S", 0.05)
    return world


def follow(world: World, stream: str, who: str, end: Callable[[], object]) -> Any:
    """Return the response of a stream when it ended; `end` is called once it has begun."""
    answers: list[Any] = []
    headers = {"cookie": f"proctor_session={world.sessions[who]}"}
    reader = threading.Thread(target=lambda: answers.append(world.service.client.get(stream, headers=headers)))
    reader.start()
    deadline = time.monotonic() + 10
    while not world.service.app.state.streams._open and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.join(0.3)
    assert reader.is_alive(), "it ended by itself"
    end()
    reader.join(10)
    assert not reader.is_alive(), "it goes on"
    return answers[0]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("page", STREAMS)
def test_a_stream_ends_with_the_key_of_its_session_and_the_page_leads_to_the_way_in(live: World, page: str) -> None:
    key = open_other_session(live)
    assert STREAMS[page].partition("?")[0] in live.get(page, "other").text, "the page follows this stream"
    stream = follow(live, STREAMS[page], "other", lambda: live.service.run(lambda hub: revoke_key(hub, LOCAL, key)))
    assert stream.status_code == 200
    # The page's script then requests the stream, which is refused, and the page itself, which shows the reason.
    assert live.get(STREAMS[page], "other").status_code == 401
    door = live.get(page, "other")
    assert door.status_code == 303 and door.headers["location"].startswith("/ui/login?next=")
    words = Markup(live.get(door.headers["location"], "other").text).words
    assert "Your session has ended" in words and "Log in and try again" in words


@pytest.mark.timeout(60)
def test_deleting_a_followed_run_ends_its_stream_and_the_page_shows_it(live: World) -> None:
    page = f"{HOME}/runs/run_live"
    stream = follow(live, STREAMS[page], "organization", lambda: live.service.run(lambda hub: delete_project(hub, LOCAL, "proj_home")))
    assert stream.status_code == 200
    assert live.get(STREAMS[page], "organization").status_code == 404
    gone = live.get(page, "organization")
    assert gone.status_code == 404 and "was deleted" in Markup(gone.text).words


@pytest.mark.timeout(60)
@pytest.mark.parametrize("page", STREAMS)
def test_a_stream_whose_database_goes_away_breaks_off_and_can_be_taken_up(live: World, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        database = type(live.service.hub.database)
        follow(live, STREAMS[page], "organization", lambda: broken.setattr(database, "reading", away))
        refused = live.get(STREAMS[page], "organization")
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert "Database unavailable" in live.get(page, "organization").text
    assert not live.service.app.state.streams._open, "closed streams are not counted"
    assert live.get(page, "organization").status_code == 200


# --- very large input -------------------------------------------------------------------------------------------------


async def add_long_trace(hub: Hub) -> None:
    spans = make_spans("Sorry, 42.50. " + " ".join(map(str, range(1_500_000)))[:10_000_000])
    await add_trace(hub, "long", spans, at=START + 5)
    await add_result(hub, "long", read_evidence([pack([SpanGroup({}, spans)])], None), score_by_words, at=START + 5)


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_an_answer_of_ten_megabytes_fits_every_page_about_a_trace(world: World) -> None:
    world.service.run(add_long_trace)
    fields = {"subject": "result", "id": "res_long", "claim": "1"}
    proof = world.find_proof("/ui/", "organization")
    assert world.post(f"{HOME}/labels", "organization", proof=proof, label="pass", note="", **fields).status_code == 303
    label = world.get("/api/annotations?subject=result", "organization").json()["data"][0]["id"]
    trace = f"{HOME}/traces/trc_long"
    for path in (trace, f"{trace}?span=0000000000000001", f"{trace}?q=42.50", f"{HOME}/traces?q=charged",
                 f"{HOME}/labels?subject=result&id=res_long&claim=1", f"{HOME}/labels/{label}", f"{HOME}/labels/all"):  # fmt: skip
        answer = world.get(path, "organization", headers={"accept-encoding": "gzip"})
        page = Markup(answer.text)
        assert answer.status_code == 200 and page.problems == [] and page.elements <= 2_000, path
        assert int(answer.headers["content-length"]) <= 30_000, (path, answer.headers["content-length"])
    assert "Sorry, 42.50. 0 1 2" in Markup(world.get(f"{HOME}/labels/{label}", "organization").text).words
