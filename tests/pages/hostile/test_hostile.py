"""Hostile text in every field that agents and tenants can write stays text on every screen."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote as quote_text

import pytest

from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.model.evidence import Evidence, Node, ToolCall
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.labels.annotations import NewAnnotation, create_annotation
from tests.pages.markup import Markup
from tests.pages.trace_seeds import START, add_trace
from tests.pages.world import World, add_run

CORPUS: list[str] = json.loads((Path(__file__).parents[1] / "cases" / "hostile.json").read_text(encoding="utf-8"))
HOSTILE = CORPUS if os.environ.get("PROCTOR_ON_REQUEST") == "1" else CORPUS[::3]
"""What the tests write into every field: all of it on request."""


def test_the_corpus_is_large_enough_and_has_no_twins() -> None:
    assert len(CORPUS) >= 200 and len(set(CORPUS)) == len(CORPUS)


def quote(text: str) -> str:
    return quote_text(text.encode("utf-8", errors="surrogatepass"), safe="")


def find_pages(world: World, path: str) -> list[str]:
    """A list page by page."""
    pages: list[str] = []
    address: str | None = path
    while address is not None:
        text = world.get(address, "organization").text
        pages.append(text)
        at = text.find('rel="next" href="')
        address = None if at < 0 else path.partition("?")[0] + html.unescape(text[at + 17 : text.index('"', at + 17)])
    return pages


def check_pages(pages: list[str]) -> str:
    words = ""
    for text in pages:
        page = Markup(text)
        assert page.problems == []
        words += page.words
    return words


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_names_of_projects_and_runs_stay_text(world: World) -> None:
    async def sow(hub: Hub) -> None:
        for text in HOSTILE:
            if text.strip() and "\0" not in text:
                await create_project(hub, LOCAL, NewProject(name=text[:200], description=text[:4000]))
        for number, text in enumerate(HOSTILE):
            more: dict[str, Any] = {"suite_name": text, "target": text, "note": text, "error": text, "status": "failed"}
            await add_run(hub, f"run_{number}", [], **more, at=f"2026-11-14T09:{number // 60:02}:{number % 60:02}.000Z")

    world.service.run(sow)
    words = check_pages(find_pages(world, "/ui/")) + check_pages(find_pages(world, "/ui/p/proj_home/runs"))
    assert words.count("<script>alert(") > 4
    check_pages([world.get(f"/ui/p/proj_home/runs/run_{number}", "organization").text for number in range(0, len(HOSTILE), 7)])


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_text_of_agents_stays_text(world: World) -> None:
    def observe(text: str) -> Evidence:
        calls = tuple(ToolCall(name=text, arguments={text: text}, result=text, error=text, server=text) for _ in range(2))
        steps = (Node(name=text, type=text, status=text, input=text, output={text: [text]}, error=text, notes=(text,)),)
        return Evidence(input=text, text=text, body={text: text}, tool_calls=calls, nodes=steps, error=text, metadata={text: text})

    def claim(number: int, text: str) -> dict[str, Any]:
        label = text[:200] or "x"
        return {"id": f"h{number}", "name": label, "tags": {"t": text}, "expect": [{"response_contains": "x", "label": label}]}

    cases = [claim(number, text) for number, text in enumerate(HOSTILE)]
    entries = [
        RunEntry(
            # Every other one is of a case that the suite does not have.
            case=text if number % 2 and text else f"h{number}",
            attempt=number,
            outcome="fail",
            code=text,
            reason=text,
            extracted={text: text},
            verdicts=(
                Verdict(outcome="fail", score=0.0, reason=text, details={"expected": text, "found": text, text: text}, pointers=(text,)),
            ),
            evidence=observe(text),
            started_at=text,
        )
        for number, text in enumerate(HOSTILE)
    ]
    document = json.dumps({"proctor": 1, "name": "said", "cases": cases})
    world.service.run(lambda hub: add_run(hub, "run_text", entries, at="2026-11-16T10:00:00.000Z", document=document))
    run = "/ui/p/proj_home/runs/run_text"
    assert "<script>alert(" in check_pages(find_pages(world, run))
    for number, text in enumerate(HOSTILE):
        if number % 3 == 0:
            words = check_pages([world.get(f"{run}/r/att_text_{number}", "organization").text])
            assert ("expected" in words) == (number % 2 == 0 or not text)
            if text.isascii() and text.isprintable() and len(text) < 100:
                assert " ".join(text.split()) in words
    check_pages([world.get("/ui/p/proj_home/compare?runs=run_before,run_text", "organization").text])
    world.service.run(lambda hub: add_run(hub, "run_again", entries[::-1], at="2026-11-16T11:00:00.000Z", document=document))
    for number in range(0, len(HOSTILE), 12):
        query = f"runs=run_text,run_again&case=h{number}"
        check_pages([world.get(f"/ui/p/proj_home/compare/answers?{query}", "organization").text])


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_text_of_traces_and_notes_stays_text(world: World) -> None:
    def say(text: str) -> list[Span]:
        carried = {"input.value": text, "output.value": text, text: {text: [text]}, "gen_ai.operation.name": "invoke_agent"}
        root = Span(
            trace_id="t", id=text or "x", name=text, attributes=carried, failed=True, message=text, scope=text, start_ns=1, end_ns=2
        )
        event = SpanEvent(text, {text: text})
        return [root, Span(trace_id="t", id="below", parent_id=text or "x", name=text, events=(event,), attributes=carried)]

    some = HOSTILE[::5]

    async def sow(hub: Hub) -> None:
        for number, text in enumerate(some):
            more = {"input_text": text, "error": text, "external_id": f"{number}{text}"[:200], "no_run": text}
            await add_trace(hub, f"h{number}", say(text), at=START + 10 + number, **more)
            if text.strip():
                annotation = NewAnnotation(subject="trace", subject_id=f"trc_h{number}", label="fail", note=text[:4000])
                await create_annotation(hub, LOCAL, annotation)

    world.service.run(sow)
    feed = "/ui/p/proj_home/traces"
    assert "<script>alert(" in check_pages(find_pages(world, feed))
    for number, text in enumerate(some):
        page = world.get(f"{feed}/trc_h{number}?span=below", "organization").text
        words = check_pages([page])
        if text.isascii() and text.isprintable() and text.strip() and len(text) < 60:
            assert " ".join(text.split()) in words
        check_pages([world.get(f"{feed}/trc_h{number}?q={quote(text[:100])}&span={quote(text[:500])}", "organization").text])
        check_pages([world.get(f"{feed}?q={quote(text[:100])}&agent={quote(text[:100])}&case={quote(text[:100])}", "organization").text])
        address = (
            f"{feed}/reevaluate?agent={quote(text[:100])}&case={quote(text[:100])}&since={quote(text[:100])}&trace_ids={quote(text[:100])}"
        )
        check_pages([world.get(address, "organization").text])
    check_pages([world.get("/ui/p/proj_home/labels", "organization").text])
    assert "<script>alert(" in check_pages(find_pages(world, "/ui/p/proj_home/labels/all"))
    for one in world.get("/api/annotations?limit=100", "organization").json()["data"]:
        place = f"/ui/p/proj_home/labels/{one['id']}"
        words = check_pages([world.get(place, "organization").text])
        assert not one["note"].isascii() or not one["note"].isprintable() or " ".join(one["note"].split()) in words
        check_pages([world.get(f"{place}/change", "organization").text])


@pytest.mark.timeout(60)
def test_hostile_addresses_are_answered_with_a_page(seen: World) -> None:
    for text in HOSTILE[::3]:
        part = "".join(f"%{byte:02X}" for byte in text.encode("utf-8", errors="surrogatepass"))[:3000]
        if not part or part in ("%2E", "%2E%2E"):
            continue
        for path in (f"/ui/p/{part}", f"/ui/p/proj_home/runs?status={part}&cursor={part}", f"/ui/login?next={part}"):
            answer = seen.get(path, None if "login" in path else "organization")
            assert answer.status_code in (200, 400, 404), (answer.status_code, path)
            assert Markup(answer.text).problems == [], path
