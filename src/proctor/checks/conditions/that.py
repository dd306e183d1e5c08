"""A claim about evidence in one line, in the language of conditions: `that: tool_calls[*].arguments.amount < 100`.

- A comparison on `[*]` must hold for every value that the path leads to, and there must be one: an empty selection is a `fail` with the
  code `no_match`. `all(...)` holds of none, `any(...)` does not.
- In `all(...)` and `any(...)` the paths are about the same item, so that `all(tool_calls[*].name != "refund" or
  tool_calls[*].arguments.amount < 100)` speaks of each call by itself.
- A path that leads nowhere decides nothing: `no_match`, a `fail`, negated or not. `exists(path)` asks whether it leads somewhere.
- Evidence that was not recorded, or that a reader does not wholly know, is `missing_evidence`, an `error`, unless another part of an
  `and` or `or` decides already.
- Numbers are ordered with numbers and texts with texts; dates of functions with ISO dates. Anything else has no order: `wrong_type`, a
  `fail`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.checks.conditions._conditions import decide_condition
from proctor.checks.conditions._ranges import locate_condition
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import MISSING, Reads
from proctor.expressions.condition import holds_call, list_values
from proctor.expressions.condition_parser import compile_condition
from proctor.model.evidence import Evidence
from proctor.model.show import shorten
from proctor.model.verdict import TextRange, Verdict, failed, passed


class That(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on the evidence holds."""

    expression: str
    """The condition: paths into the evidence, comparisons, `and`, `or`, `not`, `in`, `len`, `exists`, `all`, `any`, and functions."""

    def needs_clock(self) -> bool:
        """Return whether a function of dates may ask for the time."""
        return any(holds_call(value) for value in list_values(compile_condition(self.expression)))


def _locate(spec: That, evidence: Evidence) -> Iterator[TextRange]:
    return locate_condition(compile_condition(spec.expression), evidence, spec.expression)


# What is unknown is looked after where a path is read: only the parts that decide the condition matter.
@check(
    "that",
    shorthand="expression",
    example='that: "tool_calls[*].arguments.amount < 100"',
    reads=Reads((), "exact"),
    product=True,
    locate=_locate,
)
def that(spec: That) -> Decide:
    """A condition on the evidence holds."""
    condition = compile_condition(spec.expression, field="expression")
    good = passed(f"{shorten(spec.expression, 200)}, as expected")

    def decide(evidence: Evidence) -> Verdict:
        ruling = decide_condition(condition, evidence, spec.expression)
        if ruling.holds:
            return good
        code = ruling.code
        pointers = ruling.pointers if code != MISSING else ()
        return failed(ruling.reason, code=code, pointers=tuple(dict.fromkeys(pointers))[:20])

    return decide
