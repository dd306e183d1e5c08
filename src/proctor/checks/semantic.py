"""Claims in plain language, which a judge decides.

Everything that can be decided without a judge is decided here (a node that is not there fails at once); the rest is
`error` with code `judge_unavailable` until a judge is given.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.missing import MISSING
from proctor.model.show import show
from proctor.model.verdict import Verdict, errored, failed, missing
from proctor.paths.dotted import find_dotted


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer meets a criterion written in plain language, in the opinion of a judge."""

    criteria: str
    """What to judge."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; left out: the judge says yes or no."""
    kind: Literal["quality", "hallucination"] = "quality"
    """General quality, or whether the answer is borne out by the evidence."""
    negative_constraints: tuple[str, ...] = ()
    """Things the answer must not do, each judged on its own; one violation fails the claim."""
    target_node: str | None = None
    """Judge the output of the last node whose name contains this, instead of the answer."""
    output_key: str | None = None
    """A dot path into that output (without `target_node`: into the body of the answer)."""
    show_prompt: bool = False
    """Whether the judge sees what the agent was asked."""
    show_tool_names: bool = False
    """Whether the judge sees the names of the tools called, in order."""
    show_tool_inputs: bool = False
    """Whether the judge sees the arguments of the tools called."""
    subject: Literal["answer", "state"] = "answer"
    """`state`: judge a rendering of the end state instead of the answer."""


_NO_JUDGE = errored("judge_unavailable", "this claim needs a judge, and none was given")


class Subject(msgspec.Struct, frozen=True):
    """What a judge is to look at, and where it stands in the evidence."""

    value: Json
    pointer: str


@check("judged", shorthand="criteria", judged=True, example="judged: {criteria: The answer is polite and names the order., threshold: 0.8}")
def judged(spec: Judged) -> Decide:
    """The answer meets a criterion written in plain language, in the opinion of a judge."""
    if not spec.criteria.strip():
        raise SpecError("the criterion cannot be empty", field="criteria")
    if spec.threshold is not None and not (math.isfinite(spec.threshold) and 0 <= spec.threshold <= 1):
        raise SpecError(f"the threshold is a number from 0 to 1, found {show(spec.threshold)}", field="threshold")

    def decide(evidence: Evidence) -> Verdict:
        found = subject_of(spec, evidence)
        return found if isinstance(found, Verdict) else _NO_JUDGE

    return decide


def subject_of(spec: Judged, evidence: Evidence) -> Subject | Verdict:
    """What is to be judged, or the verdict where there is nothing to judge."""
    if spec.subject == "state":
        return missing("end state") if evidence.state is None else Subject(evidence.state, "$.state")
    if spec.target_node is not None:
        whole = _node_output(spec.target_node, evidence)
    elif spec.output_key is not None:
        whole = missing("response body") if evidence.body is None else Subject(evidence.body, "$.body")
    elif evidence.text is not None:
        return Subject(evidence.text, "$.text")
    else:
        return missing("response text") if evidence.body is None else Subject(evidence.body, "$.body")
    if isinstance(whole, Verdict) or spec.output_key is None:
        return whole
    inner = find_dotted(whole.value, spec.output_key)
    if inner is MISSING:
        return failed(f"{whole.pointer} has nothing at {show(spec.output_key)}, found {show(whole.value)}", pointers=(whole.pointer,))
    return Subject(inner, f"{whole.pointer}.{spec.output_key}")


def _node_output(part: str, evidence: Evidence) -> Subject | Verdict:
    """The output of the last node that ran and whose name contains `part`."""
    if evidence.nodes is None:
        return missing("nodes")
    for index in reversed(range(len(evidence.nodes))):
        node = evidence.nodes[index]
        if node.ran() and part in node.name:
            return Subject(node.output, f"$.nodes[{index}].output")
    names = list(dict.fromkeys(node.name for node in evidence.nodes if node.ran()))
    there = ", ".join(show(name, 80) for name in names[:12]) or "none"
    return failed(f"expected a node whose name contains {show(part)}; nodes that ran: {there}", details={"nodes": names[:100]})
