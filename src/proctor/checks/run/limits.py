"""Claims about status, time, tokens and turns.

In a conversation, every turn must meet the HTTP status and response time; tokens are summed. A value that the evidence lacks is
`missing_evidence`.

Claims about what a run cost.

The cost is that of the agent's tokens, by the prices of the workspace file (`prices:` in `proctor.yaml`, or `--prices`). If prices, the
model or the token counts of request and answer are missing, the verdict is `missing_evidence` with the reason. The cost of the judge is
reported separately and not part of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Usage
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, lacking, missing, passed


class HttpStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The HTTP status is exactly this."""

    status: int
    """The expected code."""


class RespondedWithin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer came within a time; the bound itself passes."""

    ms: float
    """The limit in milliseconds."""


class TokensWithin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token usage stays within bounds; at least one bound is given."""

    total: int | None = None
    """The most tokens in all."""
    input: int | None = None
    """The most prompt tokens."""
    output: int | None = None
    """The most generated tokens."""
    exclusive: bool = False
    """The bound itself fails."""
    total_is: Literal["reported", "larger"] = "reported"
    """The total is the reported one when there is one (`reported`), or the larger of reported and input plus output (`larger`)."""


class TurnsWithin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation took at most so many turns."""

    turns: int
    """The most turns."""
    exclusive: bool = False
    """The bound itself fails."""


@check("http_status", shorthand="status", example="http_status: 200", reads=Reads((), "presence"))
def http_status(spec: HttpStatus) -> Decide:
    """The HTTP status is exactly this."""
    if not 100 <= spec.status <= 999:
        raise SpecError(f"{spec.status} is not an HTTP status; expected a number from 100 to 999", field="status")
    return _decide_every_turn("HTTP status", "http_status", lambda found: found == spec.status, f"HTTP status {spec.status}")


@check("responded_within", shorthand="ms", example="responded_within: 3000", reads=Reads((), "presence"))
def responded_within(spec: RespondedWithin) -> Decide:
    """The answer came within a time; the bound itself passes."""
    if not is_finite(spec.ms) or spec.ms < 0:
        raise SpecError(f"'ms' must be a number of at least 0, found {show(spec.ms)}", field="ms")
    wanted = f"an answer within {spec.ms:g} ms"
    return _decide_every_turn("response time", "duration_ms", lambda found: found <= spec.ms, wanted, unit=" ms")


def _decide_every_turn(what: str, field: str, holds: Callable[[float], bool], wanted: str, unit: str = "") -> Decide:
    """Return a decision on a measure that every turn must meet; a turn without the measure leaves the claim undecided."""
    good = passed(f"{wanted}, as expected", pointers=(f"$.{field}",))
    unknown = missing(what)

    def write(value: float | None) -> str:
        return f"{round(value, 1)}".removesuffix(".0") + unit if unit and value is not None else show(value)

    def decide(evidence: Evidence) -> Verdict:
        found: list[float | None] = [getattr(turn, field) for turn in evidence.turns or ()]
        if not any(value is not None for value in found):
            single: float | None = getattr(evidence, field)
            if single is None:
                return unknown
            return good if holds(single) else failed(f"expected {wanted}, found {write(single)}", pointers=(f"$.{field}",))
        # Before missing measures: one turn that exceeds the limit decides.
        wrong = [index for index, value in enumerate(found) if value is not None and not holds(value)]
        if wrong:
            listed = ", ".join(f"{write(found[index])} in turn {index + 1}" for index in wrong[:8])
            pointers = tuple(f"$.turns[{index}].{field}" for index in wrong)
            return failed(f"expected {wanted} in every turn, found {listed}", pointers=pointers)
        unseen = [str(index + 1) for index, value in enumerate(found) if value is None]
        return missing(f"{what} of turn {', '.join(unseen[:8])}") if unseen else good

    return decide


@check("tokens_within", shorthand="total", example="tokens_within: {total: 500, output: 200}", reads=Reads(("usage",), "absence", "fail"))
def tokens_within(spec: TokensWithin) -> Decide:
    """Token usage stays within bounds; at least one bound is given."""
    given = (("total", spec.total), ("input", spec.input), ("output", spec.output))
    limits = [(kind, limit) for kind, limit in given if limit is not None]
    if not limits:
        raise SpecError("needs at least one limit: 'total', 'input' or 'output'")
    for kind, limit in limits:
        if limit < 0:
            raise SpecError(f"{kind!r} must be at least 0, found {limit}", field=kind)
    measures = [(kind, limit, _MEASURES[kind if kind != "total" else spec.total_is]) for kind, limit in limits]
    bound = "fewer than" if spec.exclusive else "at most"
    good = passed("token usage stays within " + ", ".join(f"{limit} {kind}" for kind, limit in limits), pointers=("$.usage",))

    def decide(evidence: Evidence) -> Verdict:
        usages = list_usages(evidence)
        over: list[str] = []
        unknown: list[str] = []
        for kind, limit, measure in measures:
            counts = [None if usage is None else measure(usage) for usage in usages]
            # The known counts are a lower bound of the sum, so they can already exceed the limit.
            total = sum(count for count in counts if count is not None)
            is_whole = kind != "total" or all(
                usage is None or usage.total_tokens is not None or (usage.input_tokens is not None and usage.output_tokens is not None)
                for usage in usages
            )
            if total > limit or (spec.exclusive and total == limit and counts):
                over.append(f"expected {bound} {limit} {kind} tokens, found {total}")
            elif not counts or None in counts or not is_whole:
                unknown.append(kind)
        if over:
            return failed("; ".join(over), pointers=("$.usage",))
        return missing(f"token usage ({', '.join(unknown)})") if unknown else good

    return decide


def _read_larger_total(usage: Usage) -> int | None:
    total = usage.total()
    return None if total is None else max(total, (usage.input_tokens or 0) + (usage.output_tokens or 0))


_MEASURES: dict[str, Callable[[Usage], int | None]] = {
    "reported": Usage.total,
    "larger": _read_larger_total,
    "input": lambda usage: usage.input_tokens,
    "output": lambda usage: usage.output_tokens,
}


def list_usages(evidence: Evidence) -> Sequence[Usage | None]:
    """Return the usages to sum: of the turns if all of them report, else of the whole run, else of the turns or nodes that report."""
    turns = [turn.usage for turn in evidence.turns or ()]
    if turns and None not in turns:
        return turns
    # If some turns do not report, their sum is too small, unlike the figure of the whole run.
    if evidence.usage is not None:
        return (evidence.usage,)
    if any(usage is not None for usage in turns):
        return turns
    return [node.usage for node in evidence.nodes or () if node.usage is not None]


@check("turns_within", shorthand="turns", example="turns_within: 3", reads=Reads(("turns",), "absence", "fail"))
def turns_within(spec: TurnsWithin) -> Decide:
    """The conversation took at most so many turns."""
    if spec.turns < 0:
        raise SpecError(f"'turns' must be at least 0, found {spec.turns}", field="turns")
    wanted = f"{'fewer than' if spec.exclusive else 'at most'} {spec.turns} turn{'' if spec.turns == 1 else 's'}"
    good = passed(f"{wanted}, as expected", pointers=("$.turns",))
    unknown = missing("turns")

    def decide(evidence: Evidence) -> Verdict:
        if evidence.turns is not None:
            found = len(evidence.turns)
        elif evidence.input is not None or evidence.text is not None:
            found = 1  # Evidence without turns is one exchange.
        else:
            return unknown
        if found < spec.turns or (found == spec.turns and not spec.exclusive):
            return good
        return failed(f"expected {wanted}, found {found}", pointers=("$.turns",))

    return decide


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
