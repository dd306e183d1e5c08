"""DSPy: a `Prediction`. The one of `ReAct` has a trajectory, which shows the calls.

`finish` ends a trajectory and is not a call. A trajectory that exceeded the model's context window lacks its oldest steps. A prediction
without a trajectory shows no calls. The answer is the only output field apart from the reasoning, or the one named `answer`, `response`,
`output` or `result`; several fields are the `body`.

Tried with dspy 3.4: `ReAct`, `ChainOfThought`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.model.evidence import Json
from proctor.targets.frameworks.base import Framework, RunData, add_usage, call_member, is_instance_of
from proctor.targets.frameworks.simplify import Budget, simplify

_ASIDE = ("trajectory", "reasoning", "rationale")
_NAMES = ("answer", "response", "output", "result")


def read(value: object, budget: Budget) -> RunData | None:
    """Read a prediction."""
    if not is_instance_of(value, "dspy", "Prediction"):
        return None
    fields = cast("dict[str, object]", dict(call_member(value, "items")))
    trajectory = fields.get("trajectory")
    outputs = {str(name): simplify(member, budget, f"$.{name}") for name, member in fields.items() if name not in _ASIDE}
    texts = {name: member for name, member in outputs.items() if isinstance(member, str)}
    named = next((texts[name] for name in (*_NAMES, *(outputs if len(outputs) == 1 else ())) if name in texts), None)
    body = next(iter(outputs.values())) if len(outputs) == 1 else outputs
    run = RunData(document={"body": body} if named is None else {"text": named} if len(outputs) == 1 else {"text": named, "body": outputs})
    if isinstance(trajectory, Mapping):
        _read_trajectory(simplify(trajectory, budget, "$.trajectory"), run)
    else:
        run.mark_calls("a prediction without a trajectory shows no calls")
    # Only with `dspy.configure(track_usage=True)`; one entry per model.
    spent = simplify(call_member(value, "get_lm_usage"), budget, "$.usage") if hasattr(value, "get_lm_usage") else None
    if isinstance(spent, dict):
        run.usage = add_usage(spent.values(), "prompt_tokens", "completion_tokens")
    return run


def _read_trajectory(trajectory: Json, run: RunData) -> None:
    steps = [key.removeprefix("tool_name_") for key in trajectory if key.startswith("tool_name_")]
    calls: list[dict[str, Any]] = []
    for step in steps:
        name, observed = trajectory[f"tool_name_{step}"], trajectory.get(f"observation_{step}")
        if name == "finish":
            continue
        call: dict[str, Any] = {"name": name, "arguments": trajectory.get(f"tool_args_{step}"), "result": observed}
        if isinstance(observed, str) and observed.startswith(f"Execution error in {name}:"):
            call = {**call, "result": None, "error": observed, "error_kind": PROTOCOL_ERROR}
        calls.append(call)
    run.document["tool_calls"] = calls
    if trajectory and "0" not in steps:
        run.mark_calls("the trajectory has lost its first steps")
    if steps and trajectory[f"tool_name_{steps[-1]}"] != "finish":
        run.mark_all("the agent was stopped before it finished (`max_iters`): its last step is a call, and not `finish`")


FRAMEWORK = Framework(name="DSPy", page="dspy", packages=("dspy",), read=read, has_stop_reason=False)
