"""Claims in plain language, decided by a judge.

Everything that needs no judge is decided here (a missing node fails at once); the rest is a question, and `error` with code
`judge_unavailable` if there is no judge. The criterion and each negative constraint are separate questions, so that a violated constraint
is not overlooked; it fails the claim with score 0.

The judge sees the answer and only what the claim adds to it. A claim about hallucination shows everything the answer may rely on: the
input, the results of tools and steps, the variables of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.judged.scale import write_steps
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import Place
from proctor.checks.shared.calls import describe_call, list_recorded_calls
from proctor.checks.shared.places import write_pointer
from proctor.checks.shared.quotes import locate_quotes
from proctor.checks.shared.rubric import attach_images, find_answer, list_exchanges, settle_one
from proctor.errors import SpecError
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json, State
from proctor.model.json_values import MISSING, is_finite
from proctor.model.judgement import Material, Opinion, Question, make_pending
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, errored, failed, missing
from proctor.paths.dotted import find_dotted, trace_dotted


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer meets a criterion written in plain language, in the opinion of a judge."""

    criteria: str
    """What to judge."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""
    kind: Literal["quality", "hallucination"] = "quality"
    """General quality, or whether the answer is borne out by the evidence."""
    negative_constraints: tuple[str, ...] = ()
    """Things the answer must not do, each judged on its own; one violation fails the claim."""
    target_node: str | None = None
    """Judge the output of the last node whose name contains this, instead of the answer."""
    output_key: str | None = None
    """A dot path into that output (without `target_node`: into the body of the answer)."""
    show_prompt: bool = False
    """Whether the judge sees the agent's input."""
    show_tool_names: bool = False
    """Whether the judge sees the names of the tools called, in order."""
    show_tool_inputs: bool = False
    """Whether the judge sees the arguments of the tools called."""
    show_tool_results: bool = False
    """Whether the judge sees what the tools gave back."""
    show_conversation: bool = False
    """Whether the judge sees all turns, where there are several; those of a simulated user it always sees."""
    show_images: bool = False
    """Whether the judge sees the pictures that the answer and everything else it is shown contain; the model must take images."""
    rubric: tuple[str, ...] = ()
    """Points to look at one by one; the score is made of them."""
    steps: tuple[str, ...] = ()
    """What the judge does, step by step, before it decides (the evaluation steps of G-Eval)."""
    reference: str | None = None
    """An answer that would be right, for the judge to compare with."""
    subject: Literal["answer", "state"] = "answer"
    """`state`: judge a rendering of the end state instead of the answer."""


def _declare_reads(spec: Judged) -> Reads:
    parts: list[Part] = ["state" if spec.subject == "state" else "nodes" if spec.target_node is not None else "answer"]
    everything = spec.kind == "hallucination"
    if everything or spec.show_tool_names or spec.show_tool_inputs or spec.show_tool_results:
        parts.append("tool_calls")
    if spec.show_tool_inputs:
        parts.append("tool_arguments")
    if everything or spec.show_tool_results:
        parts.append("tool_results")
    # A missing answer fails the claim, like any claim of presence.
    return Reads(tuple(parts), "exact" if spec.negative_constraints or len(parts) > 1 else "presence", "fail")


def _locate(spec: Judged, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    in_body = spec.output_key is not None and spec.target_node is None and spec.subject == "answer"
    whole = Place(evidence.body, "$.body") if in_body else find_subject(msgspec.structs.replace(spec, output_key=None), evidence)
    if isinstance(whole, Verdict):
        return iter(())
    if spec.output_key is None:
        return locate_quotes(whole.value, whole.pointer, verdict)
    keys, inner = trace_dotted(whole.value, spec.output_key), find_dotted(whole.value, spec.output_key)
    return iter(()) if keys is None else locate_quotes(inner, write_pointer(whole.pointer, keys), verdict)


@check(
    "judged",
    shorthand="criteria",
    judged=True,
    example="judged: {criteria: The answer is polite and names the order., threshold: 0.8}",
    reads=_declare_reads,
    locate_by=_locate,
)
def judged(spec: Judged) -> Decide:
    """The answer meets a criterion written in plain language, in the opinion of a judge."""
    if not spec.criteria.strip():
        raise SpecError("the criterion cannot be empty", field="criteria")
    if spec.threshold is not None and not (is_finite(spec.threshold) and 0 <= spec.threshold <= 1):
        raise SpecError(f"the threshold is a number from 0 to 1, found {show(spec.threshold)}", field="threshold")

    for field in ("negative_constraints", "rubric", "steps"):
        for index, text in enumerate(getattr(spec, field)):
            if not text.strip():
                raise SpecError("expected text, found an empty one", field=f"{field}.{index}")

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(found := find_subject(spec, evidence), Verdict):
            return found
        material = _gather_material(spec, found, evidence)
        if isinstance(material, Verdict):
            return material
        pointers = (found.pointer,)
        return make_pending(pose_claim(spec, material), lambda opinions: settle_claim(spec, opinions, pointers))

    return decide


@check(
    "g_eval",
    shorthand="criteria",
    judged=True,
    example="g_eval: {criteria: The answer is coherent., steps: [Read the answer., List jumps in the argument.], threshold: 0.7}",
    reads=_declare_reads,
    locate_by=_locate,
)
def g_eval(spec: Judged) -> Decide:
    """The answer meets a criterion that a judge decides step by step; another name of `judged`."""
    return judged(spec)


def _gather_material(spec: Judged, subject: Place, evidence: Evidence) -> Material | Verdict:
    everything = spec.kind == "hallucination"
    shown: dict[str, Json] = {}
    if (spec.show_prompt or everything) and evidence.input not in (None, ""):
        shown["scenario_prompt"] = evidence.input
    calls = list_recorded_calls(evidence)
    if spec.show_tool_names and calls is not None:
        shown["tool_sequence"] = [call.name for call in calls]
    if spec.show_tool_inputs and calls is not None:
        shown["tool_inputs"] = [{"tool": call.name, "arguments": call.arguments} for call in calls]
    if (spec.show_tool_results or everything) and calls is not None:
        shown["tool_results"] = [describe_call(call) for call in calls]
    if everything and evidence.nodes:
        shown["steps"] = [{"step": node.name, "output": node.output} for node in evidence.nodes if node.ran()]
    if everything and evidence.context:
        shown["variables"] = evidence.context
    whole = spec.show_conversation or everything or evidence.simulated_user is not None
    if whole and evidence.turns is not None and len(evidence.turns) > 1:
        shown["conversation"] = list_exchanges(evidence)
    material = Material(
        subject=msgspec.to_builtins(subject.value),
        name="end_state" if spec.subject == "state" else "final_answer" if spec.target_node is None else "node_output",
        context=shown,
    )
    return attach_images(material, evidence.body) if spec.show_images else material


def pose_claim(spec: Judged, material: Material) -> list[Question]:
    """Return the questions to a judge: the criterion, then each negative constraint."""
    grounded = spec.kind == "hallucination"
    questions = [
        Question(
            criterion=spec.criteria,
            material=material,
            threshold=spec.threshold,
            grounded=grounded,
            rubric=(*spec.rubric, *write_steps(spec.steps)),
            reference=spec.reference,
        )
    ]
    questions += [Question(criterion=text, material=material, forbidden=True, grounded=grounded) for text in spec.negative_constraints]
    return questions


def settle_claim(spec: Judged, opinions: Sequence[Opinion], pointers: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict of the criterion, unless a constraint is violated or could not be judged."""
    main, *constraints = opinions
    verdict = settle_one(main, spec.threshold, pointers)
    if not constraints:
        return verdict
    listed = list(zip(spec.negative_constraints, constraints, strict=True))
    violations: list[Json] = [
        {"constraint": text, "outcome": opinion.outcome, "reason": opinion.reason, "code": opinion.code, **_record_judge(opinion)}
        for text, opinion in listed
    ]
    details: dict[str, Json] = {**verdict.details, "criterion": {"outcome": main.outcome, "score": main.score, "reason": main.reason}}
    details["negative_constraints"] = violations
    # Violations before errors: one violation decides, even if other constraints could not be judged.
    for text, opinion in listed:
        if opinion.outcome == "fail":
            return failed(f"the answer must not: {text}; {opinion.reason}", code=opinion.code, details=details, pointers=pointers)
    broken = next(((text, opinion) for text, opinion in listed if opinion.outcome == "error"), None)
    # A failed criterion stays failed, whatever the constraints are; only a pass depends on all of them.
    if main.outcome == "pass" and broken is not None:
        return errored(broken[1].code or "judge_failed", f"must not: {broken[0]}; {broken[1].reason}", details=details)
    return msgspec.structs.replace(verdict, details=details)


def _record_judge(opinion: Opinion) -> dict[str, Json]:
    return {key: opinion.details[key] for key in ("check_id", "samples", "agreement", "spread") if key in opinion.details}


def find_subject(spec: Judged, evidence: Evidence) -> Place | Verdict:
    """Return the value to judge, or the verdict if there is none."""
    if spec.subject == "state":
        # A judge that is shown an empty object confirms that nothing was done wrong in it.
        return Place(evidence.state, "$.state") if evidence.state not in (None, State()) else missing("end state")
    if spec.target_node is not None:
        whole = _find_node_output(spec.target_node, evidence)
    elif spec.output_key is None:
        return find_answer(evidence)
    else:
        whole = missing("response body") if evidence.body is None else Place(evidence.body, "$.body")
    if isinstance(whole, Verdict) or spec.output_key is None:
        return whole
    inner = find_dotted(whole.value, spec.output_key)
    if inner is MISSING:
        return failed(f"{whole.pointer} has nothing at {show(spec.output_key)}, found {show(whole.value)}", pointers=(whole.pointer,))
    return Place(inner, f"{whole.pointer}.{spec.output_key}")


def _find_node_output(part: str, evidence: Evidence) -> Place | Verdict:
    """Return the output of the last node that ran and whose name contains `part`."""
    if evidence.nodes is None:
        return missing("nodes")
    for index in reversed(range(len(evidence.nodes))):
        node = evidence.nodes[index]
        if node.ran() and part in node.name:
            return Place(node.output, f"$.nodes[{index}].output")
    names = list(dict.fromkeys(node.name for node in evidence.nodes if node.ran()))
    listed = ", ".join(show(name, 80) for name in names[:12]) or "none"
    return failed(f"expected a node whose name contains {show(part)}; nodes that ran: {listed}", details={"nodes": names[:100]})
