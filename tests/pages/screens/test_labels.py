"""Labelling on the pages, and a large trace in windows."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from proctor.evidence.otlp.spans import SpanGroup
from proctor.pages.screens import trace as trace_screen
from proctor.service.hub import Hub
from proctor.service.traces.span_trees import ExpandedRows, choose_level, list_visible
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import trace_parts
from tests.pages.markup import Markup
from tests.pages.trace_seeds import add_trace, make_spans
from tests.pages.world import World

LABELS = "/ui/p/proj_home/labels"


def answer(world: World, who: str = "organization", **fields: str) -> int:
    proof = world.find_proof("/ui/", who)
    sent = {"subject": "result", "id": "res_shop", "claim": "1", "label": "pass", "proof": proof, **fields}
    return world.post(LABELS, who, **sent).status_code


def test_answers_are_labelled_one_after_the_other_until_none_waits(world: World) -> None:
    for left in (4, 3, 2, 1):
        text = world.get(LABELS, "organization").text
        assert f"{left} to label" in Markup(text).words
        fields = dict(re.findall(r'name="(subject|id|claim)" value="([^"]+)"', text))
        label = "pass" if fields["id"] == "res_shop" else "fail"
        sent = world.post(LABELS, "organization", **fields, label=label, note="as I see it", proof=world.find_proof(LABELS, "organization"))
        assert sent.status_code == 303 and re.fullmatch(rf"{LABELS}\?done=ann_\w+#ask", sent.headers["location"])
    text = world.get(LABELS, "organization").text
    words = Markup(text).words
    assert Markup(text).problems == []
    assert "Nothing to label." in words and "Set a judge in the project's settings" in words and "4 answers are labelled" in words
    assert "Accuracy" in words and "100 %" in words and "as I see it" in words and "Threshold" in words
    lines = [json.loads(line) for line in world.get(f"{LABELS}/export", "organization").text.splitlines()]
    assert [line["label"] for line in lines].count(True) == 2 and {line["why"] for line in lines} == {"as I see it"}


def test_a_label_needs_a_proof_a_key_that_writes_and_one_of_three_words(world: World) -> None:
    assert answer(world, proof="00" * 32) == 403
    assert answer(world, "project") == 403
    assert answer(world, label="maybe") == 400
    assert answer(world, claim="x") == 400
    assert answer(world, subject="planet") == 400
    assert answer(world, id="res_gone") == 404
    assert answer(world) == 303
    assert answer(world, label="fail") == 303, "on second thought"
    assert "1 answer is labelled" in Markup(world.get(LABELS, "organization").text).words


def test_readers_get_no_form(seen: World) -> None:
    text = seen.get(LABELS, "project").text
    assert '<form class="answer"' not in text and "An organization key is required" in text


def test_a_note_on_a_trace_is_shown_with_it(world: World) -> None:
    path = "/ui/p/proj_home/traces/trc_shop"
    fields = {"label": "fail", "note": "too long", "proof": world.find_proof(path, "organization")}
    assert world.post(f"{path}/label", "organization", **fields).headers["location"] == f"{path}#comments"
    words = Markup(world.get(path, "organization").text).words
    assert "too long" in words and "key_" in words
    assert world.post(f"{path}/label", "organization", **{**fields, "label": "", "note": " "}).status_code == 400


def test_a_verdict_leads_to_the_span_of_the_call_it_is_about(seen: World) -> None:
    page = seen.get("/ui/p/proj_home/traces/trc_shop?span=0000000000000004", "organization").text
    assert 'aria-current="true"' in page and "invoke_agent shop" in page[page.index('class="small muted above"') :]


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_a_large_trace_is_shown_in_windows_and_each_of_them_is_small(world: World) -> None:
    world.service.run(lambda hub: add_trace(hub, "large", make_spans(more=100_000)))
    path = "/ui/p/proj_home/traces/trc_large"
    for query in ("", "?level=99", "?level=99&from=40000", "?span=f000000000000f9f", "?q=step 77"):
        sent = world.get(path + query, "organization", headers={"accept-encoding": "gzip"})
        page = Markup(sent.text)
        assert page.problems == [] and page.elements <= 2_000 and int(sent.headers["content-length"]) <= 30_000, query
        assert sent.text.count('class="span in') <= trace_screen.WINDOW
    assert "100,006" in world.get(path, "organization").text
    assert 'id="r40000"' in world.get(f"{path}?level=99&from=40000", "organization").text
    there = world.get(f"{path}?span=f000000000000f9f", "organization").text
    assert re.search(r'class="span in\d+ current"', there) and "step 3999" in there
    rows = world.get(f"{path}?level=99&from=99990&part=rows", "organization").text
    assert rows.lstrip().startswith("<ol") and 'data-first="99906"' in rows and "step" in rows


def test_a_span_is_read_from_the_piece_it_came_in_and_from_all_where_it_came_in_several(world: World) -> None:
    spans = make_spans()
    later = msgspec.structs.replace(spans[0], attributes={"told.later": "yes"})
    parts = [pack([SpanGroup({}, spans[3:])]), pack([SpanGroup({}, [later])])]

    async def add_parts(hub: Hub) -> None:
        await add_trace(hub, "parts", spans[:3], revision=3)
        more = [{"trace_id": "trc_parts", "number": number, "body": body, "created_at": "t"} for number, body in enumerate(parts, 2)]
        async with hub.database.writing() as connection:
            await connection.execute(trace_parts.insert(), more)

    world.service.run(add_parts)
    path = "/ui/p/proj_home/traces/trc_parts"
    assert "told.later" in world.get(f"{path}?span={spans[0].id}", "organization").text
    for span in spans[1:]:
        page = world.get(f"{path}?span={span.id}", "organization").text
        assert "told.later" not in page and all(name in page for name in span.attributes), span.id


def test_rows_are_opened_and_closed_one_by_one() -> None:
    from proctor.evidence.traces.rows import list_span_rows
    from proctor.service.traces.span_trees import SpanTree

    rows = list_span_rows(make_spans())
    tree = SpanTree(rows=rows, places={}, start_ns=0, end_ns=0, deepest=2)
    assert [row.depth for row in rows] == [0, 1, 1, 2, 1, 1] and rows[0].below == 5
    assert list_visible(tree, ExpandedRows(level=0)) == [0]
    assert list_visible(tree, ExpandedRows(level=1)) == [0, 1, 2, 4, 5]
    assert list_visible(tree, ExpandedRows(level=1, turned=frozenset([rows[2].id]))) == [0, 1, 2, 3, 4, 5]
    assert list_visible(tree, ExpandedRows(level=0), also={0, 2}) == [0, 1, 2, 3, 4, 5]
    assert choose_level((1, 4, 1), 120) == 2 and choose_level((1, 4, 1), 3) == 1
