"""What the pages share with the report in one file, under one name for templates: `draw`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from markupsafe import Markup

from proctor.model.evidence import Json
from proctor.pages.compared_runs import draw_label as label
from proctor.pages.words import quote_part
from proctor.report.blocks.assertions import draw_assertions as assertions
from proctor.report.blocks.attempt import draw_facts as facts
from proctor.report.blocks.attempt import draw_known as known
from proctor.report.blocks.attempt import draw_others as others
from proctor.report.blocks.attempt import draw_remarks as remarks
from proctor.report.blocks.attempt import draw_steps
from proctor.report.blocks.attempt import draw_time as time
from proctor.report.blocks.comparison import KINDS
from proctor.report.blocks.comparison import draw_verdict as verdict
from proctor.report.blocks.outcomes import draw_counts as counts
from proctor.report.blocks.outcomes import draw_dumbbell as dumbbell
from proctor.report.blocks.outcomes import draw_mark, draw_outcome
from proctor.report.blocks.outcomes import draw_rate as rate
from proctor.report.blocks.outcomes import draw_sprite as sprite
from proctor.report.blocks.systems import draw_systems as systems
from proctor.report.words.comparison import describe_chance as chance
from proctor.report.words.elements import Element, Node, write_markup

__all__ = [
    "KINDS",
    "assertions",
    "chance",
    "counts",
    "dumbbell",
    "facts",
    "known",
    "label",
    "mark",
    "markup",
    "others",
    "outcome",
    "rate",
    "remarks",
    "sprite",
    "steps",
    "systems",
    "time",
    "verdict",
]


def markup(drawn: Node | list[Node] | None, prefix: str = "") -> Markup:
    """Return what was drawn as HTML; `prefix` keeps the names of attempts side by side apart."""
    nodes = [] if drawn is None else [drawn] if isinstance(drawn, (str, Element)) else drawn
    return Markup("".join(write_markup(node, prefix) for node in nodes))


@functools.lru_cache(maxsize=64)
def mark(word: str) -> Markup:
    """Return the shape of an outcome. Every row of a list has one, and there are a handful of them."""
    return markup(draw_mark(word))


@functools.lru_cache(maxsize=64)
def outcome(word: str) -> Markup:
    """Return an outcome as its shape and its word, as above."""
    return markup(draw_outcome(word))


def steps(shown: Sequence[tuple[int, Json]], whole: str | None = None) -> Element:
    """Return a timeline; `whole` is the address below which a text that was shortened can be read in full."""
    return draw_steps(shown, None if whole is None else lambda place: f"{whole}/text?at={quote_part(place)}")
