"""Claims that the answer gives away nothing about a private person.

The judge sees the answer alone, so repeating personal data of the user counts too; `allow` describes what is permitted. Names
of public figures in their public role, companies and their general contacts are not personal data here.

A judge reads what no pattern knows: names, addresses, dates of birth, health, descriptions that fit one person only. It may overlook one
item in a long text; add `no_pii`, which always finds the fixed forms. It is no legal opinion.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import ask_rubric, find_answer, load_rubric, require_filled, require_threshold
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict

MOST_ALLOWED = 50
"""The maximum number of exceptions; a judge cannot keep more in mind."""


class NoPersonalData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer discloses no personal data, in the opinion of a judge."""

    allow: tuple[str, ...] = ()
    """What the answer may contain, in words: `the first name of the customer`."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "no_personal_data",
    shorthand="allow",
    judged=True,
    example="no_personal_data: {allow: [the first name of the customer]}",
    reads=Reads(("answer",), "absence"),
    locate_by=locate_quoted_answer,
)
def no_personal_data(spec: NoPersonalData) -> Decide:
    """The answer discloses no personal data, in the opinion of a judge."""
    require_threshold(spec.threshold)
    if len(spec.allow) > MOST_ALLOWED:
        raise SpecError(f"at most {MOST_ALLOWED} exceptions, found {len(spec.allow)}", field="allow")
    for index, text in enumerate(spec.allow):
        require_filled(text, f"allow.{index}")
    rubric = load_rubric("no_personal_data")
    fill = {"allowed": "; ".join(spec.allow) or "nothing beyond that"}

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        return ask_rubric(rubric, Material(subject=answer.value), threshold=spec.threshold, fill=fill, pointers=(answer.pointer,))

    return decide
