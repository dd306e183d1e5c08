"""One attempt: facts, timeline, evidence coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.model.account import UNKNOWN
from proctor.model.evidence import Json
from proctor.report.blocks.assertions import draw_assertions
from proctor.report.blocks.attempt_layout import Document, draw_block, draw_folded, draw_pre, draw_text
from proctor.report.blocks.outcomes import draw_mark
from proctor.report.blocks.systems import draw_systems
from proctor.report.words.elements import Child, Element, Node, make, make_table_head
from proctor.report.words.wording import count_noun

_SPEAKERS = ("user", "agent", "broken", "note")
_STEPS = {"user": "User", "agent": "Agent", "broken": "The run failed", "call": "tool", "node": "step"}
_FACTS = {
    **{name: name.capitalize() for name in ("score", "cost", "evidence", "started", "took", "agent", "clock")},
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
            make("section", "", evidence, draw_conversation(document), draw_known(document.get("known"))),
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
    none = [] if document["steps"] else [make("p", "muted", "Nothing was recorded.")]
    systems = draw_systems(document.get("systems"))
    return [*none, draw_steps(document["steps"]), *systems, *draw_others(document["others"])]


def draw_steps(steps: Sequence[tuple[int, Json]], find_whole: Callable[[str], str] | None = None) -> Element:
    """Return numbered steps; `find_whole` returns the address of a shortened text."""
    return make("ol", "timeline", [_draw_step(number, step, find_whole) for number, step in steps])


def _draw_step(number: int, step: Document, find_whole: Callable[[str], str] | None) -> Element:
    kind = step["kind"]
    broken = " broken" if step.get("error") and kind != "broken" else ""
    look = f"step {kind}{broken}{' inside' if step.get('inside') else ''}"
    if kind == "turn":
        shown: list[Child] = [make("p", "who", make("b", "", step["name"]), " ", make("span", "muted", " · ".join(step["facts"])))]
    else:
        shown = _draw_message(step, find_whole) if kind in _SPEAKERS else _draw_done(step)
    return make("li", look, *shown, id=f"s{number}", tabindex="-1")


def _draw_message(step: Document, find_whole: Callable[[str], str] | None) -> list[Child]:
    who = None if step["kind"] == "note" else make("p", "who", _STEPS[step["kind"]])
    bubble = draw_pre(draw_text(step["text"], step.get("marked", {}).get("text")), look="bubble")
    if find_whole is None or not step.get("whole"):
        return [who, bubble]
    link = make("a", "", f"The whole text, {count_noun(step['length'], 'character')}", href=find_whole(step["whole"]))
    return [who, bubble, make("p", "small", link)]


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


def draw_known(known: Json) -> Element | None:
    """Return which parts of the evidence are recorded, none or unknown and why; unknown ones first."""
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
        open="" if lacking else None,
    )
