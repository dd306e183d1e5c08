"""One attempt, as every page of the family shows it: its facts, its conversation as a timeline, what is known of its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.model.account import UNKNOWN
from proctor.model.evidence import Json
from proctor.report.attempt_layout import Document
from proctor.report.catalogue import Catalogue
from proctor.report.drawn_assertions import draw_assertions
from proctor.report.drawn_outcomes import draw_mark
from proctor.report.drawn_systems import draw_systems
from proctor.report.drawn_text import draw_block, draw_folded, draw_pre, draw_text
from proctor.report.elements import Child, Element, Node, make, make_table_head

_SPEAKERS = ("user", "agent", "broken", "note")
_VALUES = (("result.result", "result"), ("result.output", "output"), ("result.input", "input"), ("result.parameters", "parameters"))


def draw_attempt(document: Document, words: Catalogue) -> list[Node]:
    """Return a whole attempt that was laid out, with everything on one page."""
    evidence = make("h3", "", words.say("result.evidence"))
    claims = make("h3", "", words.say("result.assertions", count=len(document["assertions"])))
    return [
        *draw_remarks(document),
        *draw_facts(document, words),
        make(
            "div",
            "columns",
            make("section", "", claims, draw_assertions(document, words)),
            make("section", "", evidence, draw_conversation(document, words), draw_known(document.get("known"), words)),
        ),
    ]


def draw_remarks(document: Document) -> list[Node]:
    """Return what is to be known about the attempt as a whole before anything else."""
    told = [("error", "pre", document.get("remark")), ("uncertain", "", document.get("unknown"))]
    return [make("p", "alarm", draw_mark(kind), " ", make("span", look, text, dir="auto")) for kind, look, text in told if text]


def draw_facts(document: Document, words: Catalogue) -> list[Node]:
    """Return names and values: score, cost, times, where the case is written, its tags and axes, what was captured."""
    rows: list[tuple[str, Child]] = [
        (words.say_known("fact", name), draw_time(value) if name == "started" else make("span", "", value, dir="auto"))
        for name, value in document.get("facts", ())
    ]
    if document.get("place"):
        rows.append((words.say("fact.place"), make("code", "", document["place"])))
    if document.get("tags"):
        tags = [(make("span", "note", name if value == "true" else f"{name}: {value}"), " ") for name, value in document["tags"]]
        rows.append((words.say("fact.tags"), tags))
    rows += [(name, value) for name, value in document.get("axes", ())]
    rows += [(name, make("code", "", value)) for name, value in document.get("extracted", ())]
    if not rows:
        return []
    return [make("dl", "facts-list", [make("div", "", make("dt", "", name), make("dd", "", value)) for name, value in rows])]


def draw_time(at: str | None) -> Element | None:
    """Return a time as it is read without script: the day and the minute, in UTC."""
    return make("time", "", f"{at[:10]} {at[11:16]} UTC", datetime=at) if at else None


def draw_conversation(document: Document, words: Catalogue) -> list[Node]:
    """Return the timeline and what else was recorded; or why there is none."""
    if document.get("no_timeline"):
        return [make("p", "muted", document["no_timeline"])]
    none = [] if document["steps"] else [make("p", "muted", words.say("result.nothing_recorded"))]
    systems = draw_systems(document.get("systems"), words)
    return [*none, draw_steps(document["steps"], words), *systems, *draw_others(document["others"], words)]


def draw_steps(steps: Sequence[tuple[int, Json]], words: Catalogue, find_whole: Callable[[str], str] | None = None) -> Element:
    """Return numbered steps in order; `find_whole` gives the address of a text that was shortened, by its place in the evidence."""
    return make("ol", "timeline", [_draw_step(number, step, words, find_whole) for number, step in steps])


def _draw_step(number: int, step: Document, words: Catalogue, find_whole: Callable[[str], str] | None) -> Element:
    kind = step["kind"]
    broken = " broken" if step.get("error") and kind != "broken" else ""
    look = f"step {kind}{broken}{' inside' if step.get('inside') else ''}"
    if kind == "turn":
        shown: list[Child] = [make("p", "who", make("b", "", step["name"]), " ", make("span", "muted", " · ".join(step["facts"])))]
    else:
        shown = _draw_said(step, words, find_whole) if kind in _SPEAKERS else _draw_done(step, words)
    return make("li", look, *shown, id=f"s{number}", tabindex="-1")


def _draw_said(step: Document, words: Catalogue, find_whole: Callable[[str], str] | None) -> list[Child]:
    who = None if step["kind"] == "note" else make("p", "who", words.say(f"step.{step['kind']}"))
    said = draw_pre(draw_text(step["text"], step.get("marked", {}).get("text"), words), look="bubble")
    if find_whole is None or not step.get("whole"):
        return [who, said]
    link = make("a", "", words.say("result.whole", count=step["length"]), href=find_whole(step["whole"]))
    return [who, said, make("p", "small", link)]


def _draw_done(step: Document, words: Catalogue) -> list[Child]:
    """Return a call of a tool, or a step of a workflow."""
    status = step.get("status")
    took = " · ".join(text for text in (step.get("took"), step.get("tokens")) if text)
    head = make(
        "p",
        "who",
        make("span", "muted", words.say(f"step.{step['kind']}")),
        " ",
        make("code", "", step["name"], dir="auto"),
        [(" ", make("span", "note", extra, dir="auto")) for extra in (step.get("server"), step.get("type")) if extra],
        (" ", make("span", "note bad", status, dir="auto")) if status and status != "success" else None,
        (" ", make("span", "took", took)) if took else None,
    )
    marked = step.get("marked", {})
    failed = words.say("result.error") + (f", {step['error_kind']}" if step.get("error_kind") else "")
    return [
        head,
        draw_block(words.say("result.arguments"), step.get("arguments"), words, pieces=marked.get("arguments")),
        draw_block(failed, step.get("error"), words, bad=True),
        [draw_folded(words.say(name), step.get(key), words, pieces=marked.get(key)) for name, key in _VALUES],
        [make("p", "muted small", note, dir="auto") for note in step.get("notes", ())],
    ]


def draw_others(rows: Sequence[Json], words: Catalogue) -> list[Node]:
    """Return what the evidence holds beside the conversation, each behind its name; open where something in it is marked."""
    return [
        make(
            "details",
            "",
            make("summary", "", words.say_known("rest", name)),
            # Around the text: a link that leads here opens what is folded around it.
            make("div", "", draw_pre(draw_text(text, pieces, words)), id=f"o{number}", tabindex="-1"),
            open="" if pieces else None,
        )
        for number, (name, text, pieces) in enumerate(rows, 1)
    ]


def draw_known(known: Json, words: Catalogue) -> Element | None:
    """Return which parts of the evidence were recorded, are none, or are unknown and why; what is unknown comes first."""
    if not known:
        return None
    parts = sorted(known["parts"], key=lambda part: part[1] not in UNKNOWN)
    lacking = sum(part[1] in UNKNOWN for part in parts)
    note = (" ", make("span", "note", words.say("result.not_known", count=lacking))) if lacking else None
    heads = make_table_head(words.say(name) for name in ("known.part", "known.status", "known.why"))
    rows = [
        make(
            "tr",
            "lacking" if part[1] in UNKNOWN else "",
            make("th", "", words.say_known("part", part[0]), scope="row"),
            make("td", "", words.say_known("known.is", part[1], "_")),
            make("td", "", part[2] if len(part) > 2 else "", dir="auto"),
        )
        for part in parts
    ]
    return make(
        "details",
        "",
        make("summary", "", words.say("result.known"), note),
        make("table", "known", heads, make("tbody", "", rows)),
        make("p", "muted small", words.say("known.reader"), " ", known["reader"]),
        [make("p", "muted small", text, dir="auto") for text in known.get("notes", ())],
        open="" if lacking else None,
    )
