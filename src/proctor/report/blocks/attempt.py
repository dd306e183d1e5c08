"""One attempt: facts, timeline, evidence coverage, and its assertions with links to the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from proctor.model.account import UNKNOWN
from proctor.model.evidence import Json
from proctor.report.blocks.attempt_layout import Document, draw_block, draw_folded, draw_pre, draw_text
from proctor.report.blocks.markdown import draw_rich_text
from proctor.report.blocks.outcomes import draw_hidden_outcome, draw_mark
from proctor.report.blocks.systems import draw_systems
from proctor.report.words.html_text import Child, Element, Node, make, make_table_head
from proctor.report.words.wording import count_noun

_SPEAKERS = ("user", "agent", "broken", "note")
_STEPS = {"user": "User", "agent": "Agent", "broken": "The run failed", "call": "tool", "node": "step"}
_FACTS = {
    **{name: name.capitalize() for name in ("score", "cost", "evidence", "started", "clock")},
    "agent": "Response",
    "took": "Duration",
    "user": "Simulated user",
}
_OTHERS = {"available tools": "Available tools"}


def draw_attempt(document: Document) -> list[Node]:
    """Return a whole attempt on one page."""
    evidence = make("h3", "", "What happened")
    claims = make("h3", "", count_noun(len(document["assertions"]), "assertion"))
    return [
        *draw_remarks(document),
        *draw_facts(document),
        make(
            "div",
            "columns",
            make("section", "", claims, draw_assertions(document)),
            make("section", "", evidence, draw_conversation(document), draw_known(document.get("known"), document.get("unknown"))),
        ),
    ]


def draw_remarks(document: Document) -> list[Node]:
    """Return remarks about the attempt as a whole."""
    remarks = [("error", "pre", document.get("remark")), ("uncertain", "", document.get("unknown"))]
    return [make("p", "alarm", draw_mark(kind), " ", make("span", look, text, dir="auto")) for kind, look, text in remarks if text]


def draw_facts(document: Document) -> list[Node]:
    """Return names and values: score, cost, times, source of the case, tags, axes, captures."""
    rows: list[tuple[str, Child]] = [
        (_FACTS[name], draw_time(value) if name == "started" else make("span", "", value, dir="auto"))
        for name, value in document.get("facts", ())
    ]
    if document.get("place"):
        rows.append(("Source", make("code", "", document["place"])))
    if document.get("tags"):
        tags = [(make("span", "note", name if value == "true" else f"{name}: {value}"), " ") for name, value in document["tags"]]
        rows.append(("Tags", tags))
    rows += [(name, value) for name, value in document.get("axes", ())]
    rows += [(name, make("code", "", value)) for name, value in document.get("extracted", ())]
    if not rows:
        return []
    return [make("dl", "facts-list", [make("div", "", make("dt", "", name), make("dd", "", value)) for name, value in rows])]


def draw_time(at: str | None) -> Element | None:
    """Return a time without a script: date and minute in UTC."""
    return make("time", "", f"{at[:10]} {at[11:16]} UTC", datetime=at) if at else None


def draw_conversation(document: Document) -> list[Node]:
    """Return the timeline and other evidence, or why there is none."""
    if document.get("no_timeline"):
        return [make("p", "muted", document["no_timeline"])]
    placeholder = [] if document["steps"] else [make("p", "muted", "Nothing was recorded.")]
    systems = draw_systems(document.get("systems"))
    return [*placeholder, draw_steps(document["steps"]), *systems, *draw_others(document["others"])]


def draw_steps(steps: Sequence[tuple[int, Json]], find_whole: Callable[[str], str] | None = None, *, rich: bool = False) -> Element:
    """Return numbered steps; `find_whole` returns the address of a shortened text, `rich` renders Markdown."""
    return make("ol", "timeline", [_draw_step(number, step, find_whole, rich) for number, step in steps])


def _draw_step(number: int, step: Document, find_whole: Callable[[str], str] | None, rich: bool) -> Element:
    kind = step["kind"]
    broken = " broken" if step.get("error") and kind != "broken" else ""
    look = f"step {kind}{broken}{' inside' if step.get('inside') else ''}"
    if kind == "turn":
        parts: list[Child] = [make("p", "who", make("b", "", step["name"]), " ", make("span", "muted", " · ".join(step["facts"])))]
    else:
        parts = _draw_message(step, find_whole, rich) if kind in _SPEAKERS else _draw_done(step)
    return make("li", look, *parts, id=f"s{number}", tabindex="-1")


def _draw_message(step: Document, find_whole: Callable[[str], str] | None, rich: bool) -> list[Child]:
    speaker = None if step["kind"] == "note" else make("p", "who", _STEPS[step["kind"]])
    if rich and not step.get("marked", {}).get("text"):
        bubble = make("div", "bubble", draw_rich_text(step["text"]))
    else:
        bubble = draw_pre(draw_text(step["text"], step.get("marked", {}).get("text")), look="bubble")
    if not step["text"]:
        return [speaker]
    if find_whole is None or not step.get("whole"):
        return [speaker, bubble]
    link = make("a", "", f"The whole text, {count_noun(step['length'], 'character')}", href=find_whole(step["whole"]))
    return [speaker, bubble, make("p", "small", link)]


def _draw_done(step: Document) -> list[Child]:
    """Return a call of a tool, or a step of a workflow."""
    status = step.get("status")
    took = " · ".join(text for text in (step.get("took"), step.get("tokens")) if text)
    head = make(
        "p",
        "who",
        make("span", "muted", _STEPS[step["kind"]]),
        " ",
        make("code", "", step["name"], dir="auto"),
        [(" ", make("span", "note", extra, dir="auto")) for extra in (step.get("server"), step.get("type")) if extra],
        (" ", make("span", "note bad", status, dir="auto")) if status and status != "success" else None,
        (" ", make("span", "took", took)) if took else None,
    )
    marked = step.get("marked", {})
    failed = "error" + (f", {step['error_kind']}" if step.get("error_kind") else "")
    return [
        head,
        draw_block("arguments", step.get("arguments"), pieces=marked.get("arguments")),
        draw_block(failed, step.get("error"), bad=True),
        [draw_folded(name, step.get(name), pieces=marked.get(name)) for name in ("result", "output", "input", "parameters")],
        [make("p", "muted small", note, dir="auto") for note in step.get("notes", ())],
    ]


def draw_others(rows: Sequence[Json]) -> list[Node]:
    """Return evidence other than the conversation, folded unless something in it is marked."""
    return [
        make(
            "details",
            "",
            make("summary", "", _OTHERS.get(name, name.capitalize())),
            # Outside the text, so that a link to it unfolds it.
            make("div", "", draw_pre(draw_text(text, pieces)), id=f"o{number}", tabindex="-1"),
            open="" if pieces else None,
        )
        for number, (name, text, pieces) in enumerate(rows, 1)
    ]


def draw_known(known: Json, reason: object = None) -> Element | None:
    """Return which parts of the evidence are recorded, none or unknown and why; open with a `reason`: if one decided something."""
    if not known:
        return None
    parts = sorted(known["parts"], key=lambda part: part[1] not in UNKNOWN)
    lacking = sum(part[1] in UNKNOWN for part in parts)
    note = (" ", make("span", "note", f"{count_noun(lacking, 'part')} missing")) if lacking else None
    heads = make_table_head(("Part", "Status", "Why"))
    rows = [
        make(
            "tr",
            "lacking" if part[1] in UNKNOWN else "",
            make("th", "", part[0], scope="row"),
            make("td", "", "unknown" if part[1] in UNKNOWN else part[1]),
            make("td", "", part[2] if len(part) > 2 else "", dir="auto"),
        )
        for part in parts
    ]
    return make(
        "details",
        "",
        make("summary", "", "Evidence coverage", note),
        make("table", "known", heads, make("tbody", "", rows)),
        make("p", "muted small", "Read by", " ", known["reader"]),
        [make("p", "muted small", text, dir="auto") for text in known.get("notes", ())],
        open="" if lacking and reason else None,
    )


_ABOUT = {"hint": "Hint", "judge": "Judge", "replied": "The judge replied", "traceback": "Traceback"}


def draw_assertions(document: Document, below: Mapping[int, Node] | None = None) -> list[Element]:
    """Return all assertions of an attempt, failed ones first, with what is shown `below` some of them."""
    listed: list[Document] = document["assertions"]
    placeholder = [] if listed else [make("p", "muted", "No assertions.")]
    drawn = {number: draw_assertion(listed[number], number + 1, (below or {}).get(number)) for number in document["order"]}
    shown = [drawn.pop(number) for number in document["order"] if not listed[number].get("undecided")]
    if drawn:
        summary = make("summary", "", f"{count_noun(len(drawn), 'assertion')} not decided, because the attempt failed")
        placeholder.append(make("details", "", summary, make("ol", "assertions", list(drawn.values()))))
    return [*placeholder, make("ol", "assertions", shown)] if shown or not drawn else placeholder


def draw_assertion(assertion: Document, number: int, below: Node | None = None) -> Element:
    """Return one assertion with its verdict."""
    self_link = make("a", "self", f"#{number}", href=f"#a{number}", aria_label=f"Link to assertion {number:,}")
    place = (" · ", make("span", "", assertion["place"], title=assertion.get("path") or None)) if assertion.get("place") else None
    rows: Sequence[Json] = assertion.get("comparisons", ())
    passing = [draw_comparison(row) for row in rows if row.get("holds")]
    drawn: list[Node] = [draw_comparison(row) for row in rows if not row.get("holds")]
    if passing:
        noun = ("comparison holds", "comparisons hold") if assertion["outcome"] == "pass" and not drawn else ("more holds", "more hold")
        drawn.append(make("details", "", make("summary", "", count_noun(len(passing), *noun)), passing))
    return make(
        "li",
        f"sheet {assertion['outcome']}",
        make("h3", "", draw_hidden_outcome(assertion["outcome"]), make("span", "", assertion["title"], dir="auto"), " ", self_link),
        make("p", "muted small", assertion["notes"]) if assertion.get("notes") else None,
        make("p", "reason pre", assertion["reason"], dir="auto") if assertion.get("reason") else None,
        drawn,
        _draw_votes(assertion["votes"]) if assertion.get("votes") else None,
        _draw_links(assertion, number),
        below,
        make(
            "details",
            "technical",
            make("summary", "muted small", "Technical"),
            make("p", "muted small", make("code", "", assertion["check"]), place),
            draw_folded("Details", assertion.get("details")),
        ),
        id=f"a{number}",
        tabindex="-1",
        data_bad="" if assertion["outcome"] in ("fail", "error") else None,
    )


def draw_comparison(row: Document) -> Element:
    """Return expected next to actual, or a single remark."""
    about = row.get("about")
    heading = make("p", "what", _ABOUT.get(about, about), dir="auto") if about else None
    if "remark" in row:
        return make("div", "comparison", heading, draw_pre(row["remark"]))
    sides = [make("div", side, make("span", "side", side), draw_pre(row[side])) for side in ("expected", "found")]
    return make("div", "comparison holds" if row.get("holds") else "comparison", heading, make("div", "sides", sides))


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


def _draw_links(assertion: Document, number: int) -> Element | None:
    links: Sequence[Json] = assertion["links"]
    if not assertion.get("marked") and not links:
        return None
    drawn: list[Node] = []
    if assertion.get("marked"):
        drawn.append(
            make(
                "a",
                "button tight",
                "Show match" if assertion["outcome"] == "pass" else "Show forbidden text",
                href=f"{assertion['mark_page']}#m{number}",
            )
        )
    if links:
        drawn += [make("span", "muted small", "Seen at"), " "]
    for pointer, name, page in links:
        drawn.append(make("a", "pointer", pointer, href=f"{page}#{name}") if name else make("code", "muted small", pointer))
        drawn.append(" ")
    if assertion.get("more_at"):
        drawn.append(make("span", "muted small", f"and {assertion['more_at']:,} more"))
    return make("p", "links-line", drawn)
