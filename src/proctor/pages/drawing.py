"""What templates draw, under the name `draw`, besides the blocks that the HTML report has, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from proctor.model.evidence import Json
from proctor.pages.places import Record
from proctor.pages.words import quote_part, show_text
from proctor.report.blocks.attempt import draw_steps
from proctor.report.blocks.outcomes import draw_mark, draw_outcome
from proctor.report.words.html_text import Element, Node, make, write_markup
from proctor.scoring.intervals import newcombe
from proctor.scoring.statistics import count_outcomes


def markup(drawn: Node | list[Node] | None, prefix: str = "") -> Markup:
    """Return HTML; `prefix` makes element ids unique when attempts are side by side."""
    nodes = [] if drawn is None else [drawn] if isinstance(drawn, (str, Element)) else drawn
    return Markup("".join(write_markup(node, prefix) for node in nodes))


@functools.lru_cache(maxsize=64)
def mark(word: str) -> Markup:
    """Return the symbol of an outcome, cached because every row has one."""
    return markup(draw_mark(word))


@functools.lru_cache(maxsize=64)
def outcome(word: str) -> Markup:
    """Return the symbol and name of an outcome, cached likewise."""
    return markup(draw_outcome(word))


def steps(shown: Sequence[tuple[int, Json]], full: str | None = None, rich: bool = False) -> Element:
    """Return a timeline; `full` is the base address for the full text of shortened ones, `rich` renders Markdown."""
    return draw_steps(shown, None if full is None else lambda place: f"{full}/text?at={quote_part(place)}", rich=rich)


def label_buttons(address: str, proof: str, subject: str, id: str, claim: int, back: str, label: str = "") -> Element:
    """Return the form with which a user labels a judged claim; `subject` is `result` or `attempt`, `back` the address of the next page."""
    hidden = {"proof": proof, "subject": subject, "id": id, "claim": str(claim), "back": back}
    return make(
        "form",
        "contest",
        [make("input", "", type="hidden", name=name, value=value) for name, value in hidden.items()],
        make("span", "side", "Your label" if label else "Is the judge right? Your label"),
        [
            make("button", "button tight", draw_mark(word), f" {word.capitalize()}", name="label", value=word, aria_pressed=pressed)
            for word, pressed in (("pass", "true" if label == "pass" else None), ("fail", "true" if label == "fail" else None))
        ],
        method="post",
        action=address,
    )


def label(run: Record) -> Element:
    """Return the display name of a run."""
    return make("bdi", "", name_run(run))


def name_run(run: Record) -> str:
    """Return the same as text: name and note, else the suite."""
    return show_text(" · ".join(filter(None, (run["name"], run["note"]))) or run["suite_name"] or run.get("id") or run["run_id"], 60)


class Difference(NamedTuple):
    """The change of the pass rate since the previous run, with its interval."""

    before: Record
    effect: float
    low: float
    high: float


def subtract(run: Record, before: Record | None) -> Difference | None:
    """Return the change of the pass rate over all attempts; None if the previous run ran other cases or other repeats."""
    if before is None or (before["repeat"], before["selection"]) != (run["repeat"], run["selection"]):
        return None
    if not (base := count_outcomes(before["counts"])).runs or not (now := count_outcomes(run["counts"])).runs:
        return None
    bounds = newcombe(base, now)
    return Difference(before, now.rate - base.rate, bounds.low, bounds.high)
