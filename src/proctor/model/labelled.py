"""Answers labelled by people, and a judge's opinions on them: the data for calibrating a judge."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json
from proctor.model.judgement import Opinion
from proctor.model.problem import NOWHERE, Origin


class LabelledAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer, a criterion, and a person's decision whether the answer meets it."""

    answer: Json
    """The judged value: a text, an object or a list."""
    criterion: str
    label: bool
    context: Json = None
    """Further context for the judge, if any."""
    grounded: bool = False
    """Whether only what the context supports counts as true, as with `kind: hallucination`."""
    reference: str | None = None
    """An answer known to be right."""
    rubric: tuple[str, ...] = ()
    """Points that the decision is made of."""
    negative_constraints: tuple[str, ...] = ()
    """Something the answer must not do."""
    threshold: float | None = None
    """The lowest passing score of the claim; None if the judge answers yes or no."""
    check: str | None = None
    """The check of the claim, if a criterion and an answer cannot express it; its fields and the run are the context."""
    batch: str = ""
    """Items with the same value are judged together, like the claims of a case."""
    id: str = ""
    """Its name in reports; by default its line."""
    tags: tuple[str, ...] = ()
    """Kinds of difficulty, by which reports group."""
    why: str = ""
    """The reason for the label; no judge sees it."""
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
        """Whether there is a decision; an error is not one."""
        return self.opinion.outcome != "error"

    @property
    def passed(self) -> bool:
        """Whether the judge passed it."""
        return self.opinion.outcome == "pass"

    @property
    def agrees(self) -> bool:
        """Whether the judge's decision equals the label."""
        return self.decided and self.passed == self.item.label
