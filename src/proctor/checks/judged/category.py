"""A category: which of several named classes the answer belongs to.

The judge chooses exactly one of `categories`, each with its meaning, and the claim passes for those in `accept`. Categories should exclude
each other and cover every answer: add `other` where they do not. `steps` are instructions that the judge follows in order.
"""

from __future__ import annotations

from proctor.checks.judged._scale import ScaleFields, ask_choice
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict


class Category(ScaleFields, frozen=True, kw_only=True, omit_defaults=True):
    """The answer belongs to one of the accepted categories, in the opinion of a judge."""

    categories: dict[str, str] | tuple[str, ...]
    """The categories by name, each with its meaning; or a list of names that need none."""
    accept: tuple[str, ...]
    """The categories that pass."""


@check(
    "category",
    judged=True,
    example="category: {criteria: What became of it, categories: {solved: it helps, refused: it declines}, accept: [solved]}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def category(spec: Category) -> Decide:
    """The answer belongs to one of the accepted categories, in the opinion of a judge."""
    categories = spec.categories if isinstance(spec.categories, dict) else {name: name for name in spec.categories}
    spec.require_usable(categories, "categories")
    if not spec.accept or len(set(spec.accept)) >= len(categories):
        raise SpecError("name at least one category that passes, and leave at least one that does not", field="accept")
    for index, name in enumerate(spec.accept):
        if name not in categories:
            raise SpecError(f"unknown category {show(name)}", field=f"accept.{index}", nearest=nearest(name, categories))

    def decide(evidence: Evidence) -> Verdict:
        return ask_choice(spec, evidence, f"Classify the answer: {spec.criteria}", categories, accepted=spec.accept)

    return decide
