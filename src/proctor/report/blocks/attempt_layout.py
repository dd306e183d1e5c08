"""Where everything of an attempt stands on a page: which steps are shown, and where each assertion leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.model.evidence import Json

Document = dict[str, Json]


def lay_out_attempt(document: Document, first: int = 1, most: int | None = None) -> Document:
    """Return an attempt as it is drawn: `most` steps, the one numbered `first` among them, and what each assertion leads to."""
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
    """Return, of each assertion with a mark in the timeline, the number of the first step that has one."""
    found: dict[int, int] = {}
    for number, step in enumerate(steps, 1):
        for pieces in step.get("marked", {}).values():
            for piece in pieces:
                if not isinstance(piece, str):
                    for of in piece.get("first", ()):
                        found[of] = number
    return found


def _name_places(document: Document, steps: Sequence[Document]) -> dict[str, str]:
    """Return what can be pointed at, by its place: `s5` is a step, `c2` a change in the systems, `q3` a request, `o1` other evidence."""
    places = {place: f"o{number}" for number, (_, _, place, *_) in enumerate(document.get("rest", ()), 1)}
    for family, letter in (("changes", "c"), ("requests", "q")):
        listed: Sequence[Json] = (document.get("systems") or {}).get(family) or ()
        places |= {f"$.state.{family}[{index}]": f"{letter}{index + 1}" for index in range(len(listed))}
    return places | {place: f"s{number}" for number, step in enumerate(steps, 1) for place in step.get("at", ())}


def find_place(pointer: str, places: dict[str, str]) -> str | None:
    """Return the name of what a pointer leads to: the place it names, else the nearest that holds it."""
    while len(pointer) > 1 and pointer not in places:
        end = max(pointer.rfind("."), pointer.rfind("["))
        pointer = pointer[:end] if end > 0 else "$"
    return places.get(pointer) if len(pointer) > 1 else None


def _rank(assertion: Document) -> int:
    """Return where an assertion stands: what went wrong before what holds."""
    return {"fail": 0, "error": 0, "skip": 1}.get(assertion["outcome"], 2)
