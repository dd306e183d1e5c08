"""Questions to a judge, and its answers.

A check never calls a judge. If it needs one it returns a `PendingVerdict`: the questions, and how their answers become the verdict. Used
directly, a pending verdict is an `error` that there is no judge, so a run without a judge needs no special handling.

Answers labelled by people, and a judge's opinions on them: the data for calibrating a judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from proctor.model.evidence import Json
from proctor.model.problem import NOWHERE, Origin
from proctor.model.verdict import Outcome, Verdict

NO_JUDGE_CODE = "judge_unavailable"
NO_JUDGE = (
    "this claim needs a judge, and none was given: name one with `judge:` in the suite or in proctor.yaml, or with PROCTOR_JUDGE_MODEL"
)


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a judge sees: its bytes, so that the judged image is the recorded one."""

    media_type: str
    data: str
    """The bytes in base64."""


class Material(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data that a judge sees: written by the agent, its tools or its users, so it is never an instruction."""

    subject: Json
    """The judged value: a text, or any JSON."""
    name: str = "final_answer"
    """The name of the subject for the judge: `final_answer`, `end_state`, `transcript`."""
    context: dict[str, Json] = {}
    """The context that the judge sees, by name: `scenario_prompt`, `tool_sequence`, `tool_inputs`, `tool_results`, `conversation`."""
    images: tuple[Image, ...] = ()
    """Its images, in the order in which the data numbers them."""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question to a judge. Criterion, rubric and reference come from the author and are trusted."""

    criterion: str
    material: Material
    label: str = ""
    """The name of the claim in reports; by default the criterion."""
    threshold: float | None = None
    """The lowest score from 0 to 1 that passes; without it the judge decides yes or no."""
    forbidden: bool = False
    """The criterion describes something forbidden."""
    grounded: bool = False
    """Only statements that the material's context supports count as true."""
    rubric: tuple[str, ...] = ()
    """Points that the score is made of."""
    reference: str | None = None
    """An answer that the author considers right."""
    choices: dict[str, str] = {}
    """The answers to choose from, each with its meaning, instead of yes or no; with `threshold` from the lowest to the highest."""
    accepted: tuple[str, ...] = ()
    """The choices that pass, if there is no threshold."""
    worded_by: str = ""
    """The rubric that words the question; empty for a criterion of the author."""
    founded_in: str | None = None
    """The member of the context that a judge must quote for the first of `accepted`."""

    def score_choice(self, choice: str) -> float:
        """Return the score of a choice: its position on the scale from 0 to 1, or whether it is accepted."""
        return float(choice in self.accepted) if self.threshold is None else list(self.choices).index(choice) / (len(self.choices) - 1)

    def read_choice(self, opinion: Opinion) -> str | None:
        """Return the choice of an opinion; None if it decided nothing."""
        if opinion.code is not None or opinion.outcome == "error":
            return None
        # A judge of another distribution may only answer yes or no, which is not a position on a scale.
        fitting = (choice for choice in self.choices if self.threshold is None and (choice in self.accepted) == (opinion.outcome == "pass"))
        return opinion.details.get("choice") or next(fitting, None)


class Opinion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one question: a decision, or why there is none."""

    outcome: Literal["pass", "fail", "error"]
    score: float = 0.0
    reason: str = ""
    code: str | None = None
    """With `error` (and with a `fail` that means uncertainty): a code, such as `judge_timeout`."""
    details: dict[str, Json] = {}
    """Who judged and how: `judge`, `model`, `provider`, `prompt_version`, `replies`, `usage`, `cost`, `samples`, `agreement`, `spread`."""


class PendingVerdict(Verdict, frozen=True, gc=False):
    """A verdict that waits for a judge; without one it is the error `judge_unavailable`."""

    questions: tuple[Question, ...] = ()
    settle: Callable[[Sequence[Opinion]], Verdict] | None = None
    """Computes the verdict from the opinions, in order."""

    def with_words(self) -> Verdict:
        """Return the verdict for a run without a judge."""
        return Verdict(self.outcome, self.score, self.reason, self.code, self.details, self.pointers)

    def __eq__(self, other: object) -> bool:
        # Reading the answers is code; the same questions about the same evidence are the same verdict.
        if isinstance(other, PendingVerdict):
            return self.questions == other.questions and self.with_words() == other.with_words()
        return isinstance(other, Verdict) and self.with_words() == other

    def __hash__(self) -> int:
        return hash((self.outcome, self.score, self.code))

    def settle_with(self, opinions: Sequence[Opinion]) -> Verdict:
        """Return the verdict for these opinions."""
        assert self.settle is not None, "made by `make_pending`, which takes it"
        settled = self.settle(opinions)
        # Questions that are asked together share requests, and each of their opinions has the tokens and cost of the request. Cached
        # replies have no number: then the material identifies the request.
        by_request: dict[tuple[Json, ...], Opinion] = {}
        for question, opinion in zip(self.questions, opinions, strict=True):
            request_ids = tuple(request["id"] for request in opinion.details.get("judge_requests", ()))
            by_request.setdefault(request_ids or (id(question.material), question.threshold is None), opinion)
        # Here instead of in each check, because all opinions were paid for, however a check uses them.
        paid = [opinion.details for opinion in by_request.values()]
        usages: list[dict[str, int]] = [each["usage"] for each in paid if "usage" in each]
        costs = [each["cost"] for each in paid if "cost" in each]
        requests = {request["id"]: request for opinion in opinions for request in opinion.details.get("judge_requests", ())}
        spending: dict[str, Json] = {
            "replies": [reply for each in paid for reply in each.get("replies", ())],
            "usage": {name: sum(usage.get(name, 0) for usage in usages) for usage in usages for name in usage},
            "cost": math.fsum(costs) if costs else None,
            "judge_requests": list(requests.values()),
            "cached": all(each.get("cached") for each in paid),
            "repaired": any(opinion.details.get("repaired") for opinion in opinions),
            "notes": list(dict.fromkeys(note for each in paid for note in each.get("notes", ()))),
        }
        known = {name: value for name, value in spending.items() if value not in (None, [], {}, False)}
        details = {name: value for name, value in settled.details.items() if name != "cached"}
        return msgspec.structs.replace(settled, details={**details, **known})


def make_pending(
    questions: Sequence[Question],
    settle: Callable[[Sequence[Opinion]], Verdict],
    *,
    otherwise: Verdict | None = None,
) -> PendingVerdict:
    """Return a verdict that waits for `questions`; `otherwise` is the verdict without a judge, by default `judge_unavailable`."""
    last = otherwise or Verdict("error", 0.0, NO_JUDGE, NO_JUDGE_CODE)
    return PendingVerdict(last.outcome, last.score, last.reason, last.code, last.details, last.pointers, tuple(questions), settle)


def make_verdict(opinion: Opinion, *, pointers: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict of a single opinion."""
    outcome: Outcome = opinion.outcome
    return Verdict(outcome, opinion.score, opinion.reason, opinion.code, opinion.details, pointers)


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
