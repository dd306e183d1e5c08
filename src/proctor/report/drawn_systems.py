"""What happened in simulated systems, as every page of the family shows it: before and after, and the requests."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.evidence import Json
from proctor.report.attempt_layout import Document
from proctor.report.catalogue import Catalogue
from proctor.report.drawn_text import draw_folded
from proctor.report.elements import Element, Node, make, make_table_head

_SIGNS = {"added": "+", "changed": "±", "removed": "−"}


def draw_systems(systems: Json, words: Catalogue) -> list[Node]:
    """Return what differs in the systems from before, open, and which requests were made, behind their number."""
    if not systems:
        return []
    return [*_draw_changes(systems, words), *_draw_requests(systems, words)]


def _draw_changes(systems: Document, words: Catalogue) -> list[Node]:
    changes: list[Document] | None = systems["changes"]
    if changes is None:
        return []
    if not changes:
        return [make("p", "muted", words.say("systems.unchanged"))]
    count = len(changes) + systems["more_changes"]
    heads = make_table_head(words.say(f"systems.{name}") for name in ("place", "difference"))
    rows = [_draw_change(number, change, words) for number, change in enumerate(changes, 1)]
    table = make("table", "known systems", heads, make("tbody", "", rows))
    return [
        make(
            "details",
            "",
            make("summary", "", words.say("systems.changes", count=count)),
            table,
            _draw_more(systems, "changes", words),
            open="",
        )
    ]


def _draw_change(number: int, change: Document, words: Catalogue) -> Element:
    kind: str = change["kind"]
    title = make("span", "", make("b", "", _SIGNS[kind]), " ", words.say(f"systems.{kind}"))
    place = make(
        "th", "", title, make("code", "", change["place"], dir="auto"), make("small", "", change["system"], dir="auto"), scope="row"
    )
    fields = [_draw_field(name, was, now, words) for name, was, now in change["fields"]]
    more = make("p", "muted small", words.say("systems.more_fields")) if change["more"] else None
    return make("tr", kind, place, make("td", "", fields, more), id=f"c{number}", tabindex="-1")


def _draw_field(name: str, was: str | None, now: str | None, words: Catalogue) -> Element:
    sides: list[Node] = []
    for tag, word, text in (("del", "before", was), ("ins", "after", now)):
        if text is not None:
            sides.append(make(tag, "", make("span", "hidden", words.say(f"systems.{word}") + " "), make("bdi", "pre", text)))
    return make("div", "change", make("code", "", name, dir="auto") if name else None, sides)


def _draw_requests(systems: Document, words: Catalogue) -> list[Node]:
    requests: list[Document] = systems["requests"]
    if not requests:
        return []
    count = len(requests) + systems["more_requests"]
    summary = make("summary", "", words.say("systems.requests", count=count))
    return [make("details", "", summary, draw_request_table(requests, words), _draw_more(systems, "requests", words))]


def draw_request_table(requests: Sequence[Document], words: Catalogue) -> Element:
    """Return what was asked of systems and answered, each with what was sent; `when` is the time, where it is to be shown."""
    heads = make_table_head(words.say(f"systems.{name}") for name in ("request", "answer"))
    rows = [_draw_request(number, request, words) for number, request in enumerate(requests, 1)]
    return make("table", "known systems", heads, make("tbody", "", rows))


def _draw_request(number: int, request: Document, words: Catalogue) -> Element:
    status: int | None = request["status"]
    folded = [draw_folded(words.say(f"systems.{side}"), request.get(side), words) for side in ("sent", "answered")]
    asked = make("code", "", request["line"], dir="auto"), make("small", "", request["system"], dir="auto")
    answered = make("td", "number", "" if status is None else str(status), make("small", "", request["took"]), request.get("when"))
    look = "lacking" if status is not None and status >= 400 else ""
    return make("tr", look, make("th", "", *asked, folded, scope="row"), answered, id=f"q{number}", tabindex="-1")


def _draw_more(systems: Document, name: str, words: Catalogue) -> Element | None:
    left: int = systems[f"more_{name}"]
    return make("p", "muted small", words.say("run.and_more", count=left)) if left else None
