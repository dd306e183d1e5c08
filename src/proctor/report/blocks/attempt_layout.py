"""The layout of an attempt: steps shown, link targets of assertions, marked texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.model.evidence import Json
from proctor.report.words.html_text import Child, Element, Node, make
from proctor.report.words.wording import count_noun

Document = dict[str, Json]


def lay_out_attempt(document: Document, first: int = 1, most: int | None = None) -> Document:
    """Return an attempt for drawing: `most` steps including number `first`, and the target of each assertion."""
    steps: list[Document] = document.get("timeline", [])
    size = most or max(1, len(steps))
    begin = (min(max(first, 1), max(len(steps), 1)) - 1) // size * size
    find_page = _name_pages(begin, size)
    places = _name_places(document, steps)
    marked = _find_marked_steps(steps)
    for number, assertion in enumerate(document["assertions"], 1):
        leads = [(pointer, find_place(pointer, places)) for pointer in assertion.get("at", ())]
        assertion["links"] = [(pointer, name, find_page(int(name[1:])) if name and name[0] == "s" else "") for pointer, name in leads]
        assertion["mark_page"] = find_page(marked[number]) if number in marked else ""
    return {
        **document,
        "find_page": find_page,
        "steps": list(enumerate(steps, 1))[begin : begin + size],
        "parts": [(at + 1, min(at + size, len(steps)), at == begin) for at in range(0, len(steps), size)],
        "others": [(name, text, next(iter(pieces), None)) for name, text, _, *pieces in document.get("rest", ())],
        "order": sorted(range(len(document["assertions"])), key=lambda number: _rank(document["assertions"][number])),
    }


def _name_pages(begin: int, size: int) -> Callable[[int], str]:
    return lambda number: "" if begin < number <= begin + size else f"?step={(number - 1) // size * size + 1}"


def _find_marked_steps(steps: Sequence[Document]) -> dict[int, int]:
    """Return the number of the first marked step for each assertion."""
    steps_of_assertions: dict[int, int] = {}
    for number, step in enumerate(steps, 1):
        for pieces in step.get("marked", {}).values():
            for piece in pieces:
                if not isinstance(piece, str):
                    for assertion in piece.get("first", ()):
                        steps_of_assertions[assertion] = number
    return steps_of_assertions


def _name_places(document: Document, steps: Sequence[Document]) -> dict[str, str]:
    """Return element ids by place: `s5` is a step, `c2` a change in the systems, `q3` a request, `o1` other evidence."""
    places = {place: f"o{number}" for number, (_, _, place, *_) in enumerate(document.get("rest", ()), 1)}
    for family, letter in (("changes", "c"), ("requests", "q")):
        listed: Sequence[Json] = (document.get("systems") or {}).get(family) or ()
        places |= {f"$.state.{family}[{index}]": f"{letter}{index + 1}" for index in range(len(listed))}
    return places | {place: f"s{number}" for number, step in enumerate(steps, 1) for place in step.get("at", ())}


def find_place(pointer: str, places: dict[str, str]) -> str | None:
    """Return the element that a pointer leads to: its own place, or the nearest around it."""
    while len(pointer) > 1 and pointer not in places:
        end = max(pointer.rfind("."), pointer.rfind("["))
        pointer = pointer[:end] if end > 0 else "$"
    return places.get(pointer) if len(pointer) > 1 else None


def _rank(assertion: Document) -> int:
    """Return the sort key of an assertion: failed ones first."""
    return {"fail": 0, "error": 0, "skip": 1}.get(assertion["outcome"], 2)


_MOST_OPEN, _MOST_LINES = 700, 12
"""Characters and lines up to which a value is unfolded."""


def draw_pre(*text: Child, look: str = "") -> Element:
    """Return text with line breaks, in its own writing direction; long text scrolls."""
    return make("pre", look, *text, dir="auto", tabindex="0")


def draw_text(text: str, pieces: Sequence[Json] | None) -> list[Node]:
    """Return text with marked characters; each mark links back to its assertions."""
    return [text] if not pieces else [piece if isinstance(piece, str) else _draw_marked(piece) for piece in pieces]


def _draw_marked(piece: Json) -> Element:
    first: list[int] = piece.get("first") or []
    back_links = [make("a", "back", str(number), href=f"#a{number}", aria_label=f"To assertion {number:,}") for number in piece["of"]]
    return make(
        "mark",
        piece["kind"],
        [make("span", id=f"m{number}") for number in first[1:]],
        make("span", "hidden", "Found: " if piece["kind"] == "pass" else "Forbidden, and found: "),
        piece["text"],
        back_links,
        tabindex="-1",
        id=f"m{first[0]}" if first else None,
    )


def draw_block(label: str, text: str | None, *, pieces: Sequence[Json] | None = None, bad: bool = False) -> Element | None:
    """Return a value below its name, if any."""
    if not text:
        return None
    return make("div", "piece bad" if bad else "piece", make("span", "side", label), draw_pre(draw_text(text, pieces)))


def draw_folded(label: str, text: str | None, *, pieces: Sequence[Json] | None = None) -> Element | None:
    """Return a value: unfolded if short or marked, else folded."""
    if not text or pieces or (len(text) <= _MOST_OPEN and text.count("\n") < _MOST_LINES):
        return draw_block(label, text, pieces=pieces)
    size = make("span", "muted", count_noun(len(text), "character"))
    return make("details", "", make("summary", "", label, " ", size), draw_pre(text))
