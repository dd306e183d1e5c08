"""Simulated systems: changes before and after, and requests."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.evidence import Json
from proctor.report.blocks.attempt_layout import Document, draw_folded
from proctor.report.words.html_text import Element, Node, make, make_table_head
from proctor.report.words.wording import count_noun

_SIGNS = {"added": "+", "changed": "±", "removed": "−"}


def draw_systems(systems: Json) -> list[Node]:
    """Return the changes in the systems, and the requests folded."""
    if not systems:
        return []
    return [*_draw_changes(systems), *_draw_requests(systems)]


def _draw_changes(systems: Document) -> list[Node]:
    changes: list[Document] | None = systems["changes"]
    if changes is None:
        return []
    if not changes:
        return [make("p", "muted", "No changes in the systems.")]
    count = len(changes) + systems["more_changes"]
    heads = make_table_head(("What", "Before and after"))
    rows = [_draw_change(number, change) for number, change in enumerate(changes, 1)]
    table = make("table", "known systems", heads, make("tbody", "", rows))
    return [make("details", "", make("summary", "", f"{count_noun(count, 'change')}"), table, _draw_more(systems, "changes"), open="")]


def _draw_change(number: int, change: Document) -> Element:
    kind: str = change["kind"]
    title = make("span", "", make("b", "", _SIGNS[kind]), " ", kind)
    place = make(
        "th", "", title, make("code", "", change["place"], dir="auto"), make("small", "", change["system"], dir="auto"), scope="row"
    )
    fields = [_draw_field(name, was, now) for name, was, now in change["fields"]]
    more = make("p", "muted small", "More fields changed.") if change["more"] else None
    return make("tr", kind, place, make("td", "", fields, more), id=f"c{number}", tabindex="-1")


def _draw_field(name: str, was: str | None, now: str | None) -> Element:
    sides: list[Node] = []
    for tag, word, text in (("del", "Before: ", was), ("ins", "After: ", now)):
        if text is not None:
            sides.append(make(tag, "", make("span", "hidden", word), make("bdi", "pre", text)))
    return make("div", "change", make("code", "", name, dir="auto") if name else None, sides)


def _draw_requests(systems: Document) -> list[Node]:
    requests: list[Document] = systems["requests"]
    if not requests:
        return []
    count = len(requests) + systems["more_requests"]
    summary = make("summary", "", f"{count_noun(count, 'request')} to the systems")
    return [make("details", "", summary, draw_request_table(requests), _draw_more(systems, "requests"))]


def draw_request_table(requests: Sequence[Document]) -> Element:
    """Return requests with bodies and responses; `when` shows the time."""
    heads = make_table_head(("Request", "Answer"))
    rows = [_draw_request(number, request) for number, request in enumerate(requests, 1)]
    return make("table", "known systems", heads, make("tbody", "", rows))


def _draw_request(number: int, request: Document) -> Element:
    status: int | None = request["status"]
    folded = [draw_folded(side, request.get(side)) for side in ("sent", "answered")]
    line = make("code", "", request["line"], dir="auto"), make("small", "", request["system"], dir="auto")
    answered = make("td", "number", "" if status is None else str(status), make("small", "", request["took"]), request.get("when"))
    look = "lacking" if status is not None and status >= 400 else ""
    return make("tr", look, make("th", "", *line, folded, scope="row"), answered, id=f"q{number}", tabindex="-1")


def _draw_more(systems: Document, name: str) -> Element | None:
    hidden: int = systems[f"more_{name}"]
    return make("p", "muted small", f"and {hidden:,} more") if hidden else None
