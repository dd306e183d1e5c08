"""Claims about what a run cost.

The cost is that of the agent's tokens, by the prices of the workspace file (`prices:` in `proctor.yaml`, or `--prices`). If prices, the
model or the token counts of request and answer are missing, the verdict is `missing_evidence` with the reason. The cost of the judge is
reported separately and not part of the claim.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, lacking, passed


class CostWithin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent cost at most so much; the bound itself passes."""

    most: float
    """The most, in the currency of the prices."""
    currency: str | None = None
    """The expected currency; prices in another are undecided."""


@check("cost_within", shorthand="most", example="cost_within: 0.05", reads=Reads(("usage",), "absence", "fail"))
def cost_within(spec: CostWithin) -> Decide:
    """The agent cost at most so much; the bound itself passes."""
    if not is_finite(spec.most) or spec.most < 0:
        raise SpecError(f"'most' must be a number of at least 0, found {show(spec.most)}", field="most")

    def decide(evidence: Evidence) -> Verdict:
        cost = evidence.cost
        if cost is None:
            return lacking("cost unknown: there are no prices; set `prices:` in proctor.yaml or use --prices")
        if spec.currency is not None and spec.currency != cost.currency:
            return lacking(f"cost unknown in {spec.currency}: the prices are in {cost.currency}")
        if cost.agent is None:
            return lacking(f"cost unknown: {cost.why}")
        amount = f"{cost.agent:.6g} {cost.currency}"
        if cost.agent <= spec.most:
            return passed(f"cost {amount}, at most {spec.most:g} as expected", pointers=("$.usage",))
        return failed(f"expected a cost of at most {spec.most:g} {cost.currency}, found {amount}", pointers=("$.usage",))

    return decide
