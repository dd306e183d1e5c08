"""Claims about the model that answered.

Names are compared as the recording writes them, upper and lower case included. A provider often answers under a longer name than
the requested one (`gpt-4o-mini-2024-07-18`): use `match: prefix` for that. If the evidence has no model name, the verdict is
`missing_evidence`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.places import locate_text
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing, passed

Match = Literal["exact", "prefix", "contains"]

_WORDS: dict[Match, str] = {"exact": "", "prefix": "a name that begins with ", "contains": "a name that contains "}
_FITS: dict[Match, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "contains": str.__contains__,
}


class ModelUsed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer came from this model."""

    name: str
    """The name of the model, or the part of it that `match` asks for."""
    match: Match = "exact"
    """Whether `name` is the whole name (`exact`), its beginning (`prefix`) or any part of it (`contains`)."""


_PLACES: dict[Match, Literal["whole", "start", "anywhere"]] = {"exact": "whole", "prefix": "start", "contains": "anywhere"}


@check(
    "model_used",
    shorthand="name",
    example="model_used: {name: gpt-4o-mini, match: prefix}",
    reads=Reads((), "presence"),
    locate=lambda spec, evidence: locate_text("$.model", evidence.model, spec.name, ignore_case=False, at=_PLACES[spec.match]),
)
def model_used(spec: ModelUsed) -> Decide:
    """The answer came from this model."""
    if not spec.name:
        raise SpecError("'name' cannot be empty", field="name")
    wanted = f"{_WORDS[spec.match]}{show(spec.name)}"
    fits = _FITS[spec.match]
    good = passed(f"the model is {wanted}, as expected", pointers=("$.model",))
    unknown = missing("the name of the model")

    def decide(evidence: Evidence) -> Verdict:
        model = evidence.model
        if model is None:
            return unknown
        if fits(model, spec.name):
            return good
        return failed(f"the model: expected {wanted}, found {show(model)}", pointers=("$.model",))

    return decide
