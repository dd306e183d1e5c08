"""The assertions of an attempt: claim, expected, actual, and links to the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.evidence import Json
from proctor.report.blocks.attempt_layout import Document, draw_folded, draw_pre
from proctor.report.blocks.outcomes import draw_hidden_outcome
from proctor.report.words.elements import Element, Node, make
from proctor.report.words.wording import count_noun

_ABOUT = {"hint": "Hint", "judge": "Judge", "replied": "The judge replied", "traceback": "Traceback"}


def draw_assertions(document: Document) -> list[Element]:
    """Return all assertions of an attempt, failed ones first."""
    listed: list[Document] = document["assertions"]
    none = [] if listed else [make("p", "muted", "No assertions.")]
    return [*none, make("ol", "assertions", [draw_assertion(listed[number], number + 1) for number in document["order"]])]


def draw_assertion(one: Document, number: int) -> Element:
    """Return one assertion with its verdict."""
    own = make("a", "self", f"#{number}", href=f"#a{number}", aria_label=f"Link to assertion {number:,}")
    return make(
        "li",
        f"sheet {one['outcome']}",
        make("h3", "", draw_hidden_outcome(one["outcome"]), make("span", "", one["title"], dir="auto"), " ", own),
        _draw_origin(one),
        make("p", "reason pre", one["reason"], dir="auto") if one.get("reason") else None,
        _draw_comparisons(one),
        _draw_votes(one["votes"]) if one.get("votes") else None,
        draw_folded("Details", one.get("details")),
        _draw_links(one, number),
        id=f"a{number}",
        tabindex="-1",
        data_bad="" if one["outcome"] in ("fail", "error") else None,
    )


def _draw_origin(one: Document) -> Element:
    notes = f" · {one['notes']}" if one.get("notes") else None
    place = (" · ", make("span", "", one["place"], title=one.get("path") or None)) if one.get("place") else None
    return make("p", "muted small", make("code", "", one["check"]), notes, place)


def _draw_comparisons(one: Document) -> list[Node]:
    rows: Sequence[Json] = one.get("comparisons", ())
    held = [draw_comparison(row) for row in rows if row.get("holds")]
    drawn: list[Node] = [draw_comparison(row) for row in rows if not row.get("holds")]
    if held:
        noun = ("comparison holds", "comparisons hold") if one["outcome"] == "pass" and not drawn else ("more holds", "more hold")
        drawn.append(make("details", "", make("summary", "", count_noun(len(held), *noun)), held))
    return drawn


def draw_comparison(row: Document) -> Element:
    """Return expected next to actual, or a single remark."""
    about = row.get("about")
    what = make("p", "what", _ABOUT.get(about, about), dir="auto") if about else None
    if "remark" in row:
        return make("div", "comparison", what, draw_pre(row["remark"]))
    sides = [make("div", side, make("span", "side", side), draw_pre(row[side])) for side in ("expected", "found")]
    return make("div", "comparison holds" if row.get("holds") else "comparison", what, make("div", "sides", sides))


def _draw_votes(votes: Sequence[Json]) -> Element:
    rows = [
        make(
            "li",
            "",
            draw_hidden_outcome(vote["outcome"]),
            (make("b", "", vote["who"], dir="auto"), " ") if vote.get("who") else None,
            (make("span", "note", vote["score"]), " ") if vote.get("score") else None,
            make("span", "pre", vote["reason"], dir="auto") if vote.get("reason") else None,
        )
        for vote in votes
    ]
    summary = make("summary", "", "The judge's answer" if len(rows) == 1 else f"{len(rows):,} answers of the judge")
    return make("details", "", summary, make("ul", "votes", rows), open="" if len(rows) > 1 else None)


def _draw_links(one: Document, number: int) -> Element | None:
    links: Sequence[Json] = one["links"]
    if not one.get("marked") and not links:
        return None
    drawn: list[Node] = []
    if one.get("marked"):
        drawn.append(
            make(
                "a",
                "button tight",
                "Show match" if one["outcome"] == "pass" else "Show forbidden text",
                href=f"{one['mark_page']}#m{number}",
            )
        )
    if links:
        drawn += [make("span", "muted small", "Seen at"), " "]
    for pointer, name, page in links:
        drawn.append(make("a", "pointer", pointer, href=f"{page}#{name}") if name else make("code", "muted small", pointer))
        drawn.append(" ")
    if one.get("more_at"):
        drawn.append(make("span", "muted small", f"and {one['more_at']:,} more"))
    return make("p", "links-line", drawn)
