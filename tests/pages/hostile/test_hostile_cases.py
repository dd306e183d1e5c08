"""Hostile text in the fields of cases, agents and new runs stays text on their screens and in returned forms."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import agents, case_versions, cases, traces
from tests.pages.hostile.test_hostile import HOSTILE, check_pages, find_pages
from tests.pages.markup import Markup
from tests.pages.world import World

HOME = "/ui/p/proj_home"
# No database of ours keeps halves of characters or NUL in a text: neither gets that far.
STORABLE = [text for text in HOSTILE if ("\0" not in text and text.isprintable()) or "\u202e" in text]
TYPED = [text for text in STORABLE if text.strip()][::9]


async def sow(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        for number, text in enumerate(STORABLE):
            at = {"created_at": f"2026-11-14T09:{number // 60:02}:{number % 60:02}.000Z", "updated_at": hub.now()}
            ours = {"organization_id": LOCAL.organization_id, "project_id": "proj_home", **at}
            settings = {"response_path": text, text: text}
            agent = {
                "id": f"agent_h{number}",
                "name": text,
                "kind": "http",
                "service_name": text,
                "external_ref": text,
                "settings": settings,
            }
            await connection.execute(agents.insert().values(**agent, **ours))
            document = json.dumps({"proctor": 1, "name": text, "cases": [{"id": "h", "input": text, "expect": [{text: text}]}]})
            case = {"id": f"case_h{number}", "agent_id": f"agent_h{number}", "name": text, "dialect": "native", "document": document}
            when = {"input": text, "tags": [text], "metadata": {text: text}, text: text}
            await connection.execute(cases.insert().values(**case, version=2, when_matches=when, **ours))
            for version in (1, 2):
                fields = {"case_id": case["id"], "version": version, "dialect": "native", "document": document if version == 2 else text}
                await connection.execute(case_versions.insert().values(**fields, created_at=hub.now()))
            trace = {
                "id": f"trc_h{number}",
                "agent_id": f"agent_h{number}",
                "external_id": text[:100],
                "format": "mibo",
                "status": "failed",
            }
            texts = {"input_text": text, "error": text, "body": pack({"data": {"output": text}})}
            await connection.execute(traces.insert().values(**trace, **texts, **ours))


@pytest.mark.in_turn
@pytest.mark.timeout(120)
def test_cases_and_agents_with_hostile_text_stay_text(world: World) -> None:
    world.service.run(sow)
    words = check_pages(find_pages(world, f"{HOME}/cases")) + check_pages(find_pages(world, f"{HOME}/agents"))
    assert words.count("<script>alert(") > 4
    for number in range(0, len(STORABLE), 6):
        for path in (
            f"cases/case_h{number}?from=1&to=2",
            f"cases/case_h{number}/edit",
            f"agents/agent_h{number}",
            f"agents/agent_h{number}/edit",
        ):
            answer = world.get(f"{HOME}/{path}", "organization")
            assert answer.status_code == 200, (path, STORABLE[number])
            check_pages([answer.text])
    check_pages([world.get(f"{HOME}/runs/new", "organization").text])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", ["cases/new", "runs/new", "agents/new"])
def test_a_form_with_hostile_text_comes_back_with_all_of_it(world: World, path: str) -> None:
    proof = world.find_proof(f"{HOME}/{path}", "organization")
    names = ("document", "suite", "own_target", "settings", "name", "selection", "tags", "note", "when_input", "when_metadata", "sample")
    for text in TYPED:
        for do in ("check", "try", "save", "start", "plan"):
            fields: dict[str, Any] = {
                **dict.fromkeys(names, text),
                "do": do,
                "what": "suite",
                "target": "other:",
                "agent": text,
                "kind": text,
            }
            answer = world.post(f"{HOME}/{path}", "organization", proof=proof, **fields)
            assert answer.status_code in (200, 400, 404), (answer.status_code, text)
            assert Markup(answer.text).problems == []
            areas = [html.unescape(area) for area in re.findall(r"<textarea[^>]*>\n?(.*?)</textarea>", answer.text, re.DOTALL)]
            assert text in areas, (text, areas)


def test_a_form_that_was_refused_at_the_door_comes_back_as_text(world: World) -> None:
    world.sessions["gone"] = "x" * 43
    for text in TYPED:
        typed = f"{text}\n{text}"
        answer = world.post(f"{HOME}/cases/new", "gone", document=typed, name=text, proof="00")
        assert answer.status_code == 401 and Markup(answer.text).problems == []
        assert typed in html.unescape(answer.text)
