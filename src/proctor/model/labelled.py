"""Answers that people have labelled, and what a judge made of them: what a judge is calibrated on."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json
from proctor.model.judgement import Opinion
from proctor.model.problem import NOWHERE, Origin


class LabelledAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer, a criterion, and whether the answer meets it in the opinion of a person."""

    answer: Json
    """What is judged: a text, an object or a list."""
    criterion: str
    label: bool
    context: Json = None
    """What else the judge sees, if anything."""
    grounded: bool = False
    """Whether only what the context supports counts as true, as with `kind: hallucination`."""
    reference: str | None = None
    """An answer known to be right."""
    rubric: tuple[str, ...] = ()
    """Points that the decision is made of."""
    negative_constraints: tuple[str, ...] = ()
    """What must not be the case."""
    threshold: float | None = None
    """The least passing score of the claim; none: the judge is asked for yes or no."""
    check: str | None = None
    """The check of the claim, if it is another one than a criterion and an answer can express; its fields and the run are the context."""
    batch: str = ""
    """Items with the same word are judged together, as the claims of a case are."""
    id: str = ""
    """Its name in reports; by default its line."""
    tags: tuple[str, ...] = ()
    """Kinds of difficulty, by which reports group."""
    why: str = ""
    """Why the label is what it is; no judge sees it."""
    origin: Origin = NOWHERE

    @property
    def name(self) -> str:
        """The id, else the line."""
        return self.id or (f"line {self.origin.line}" if self.origin.line is not None else "")


class JudgedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled answer and the opinion of the judge."""

    item: LabelledAnswer
    opinion: Opinion

    @property
    def decided(self) -> bool:
        """Whether there is a decision; an error is none."""
        return self.opinion.outcome != "error"

    @property
    def passed(self) -> bool:
        """Whether the judge let it pass."""
        return self.opinion.outcome == "pass"

    @property
    def agrees(self) -> bool:
        """Whether the judge's decision equals the label."""
        return self.decided and self.passed == self.item.label
