"""Makes cases of a workflow: one for each branch, with values of its input at and next to each bound.

A branch whose condition is not understood, or that no value of the input reaches, gets a skipped case that explains what to fill in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from proctor.formats.native.drafting import add_id
from proctor.generation.workflow_graph import BranchNode, Field, Workflow, choose_output, list_candidates
from proctor.model.evidence import Json

_MOST_TRIED = 5_000
"""Combinations of values that are tried for one branch."""
_MOST_CASES = 6
"""Cases of one branch."""
Turn = tuple[BranchNode, int]
"""A branch node and the output that is taken."""


def make_workflow_cases(workflow: Workflow) -> Iterator[dict[str, Json]]:
    """Yield the cases of every branch."""
    used: set[str] = set()
    for node in workflow.branches:
        for output in range(len(node.rules)):
            way = _find_way(workflow, node)
            label = (node.targets[output] or ("the end",))[0]
            because = f"branch of the workflow: {node.name}, output {output + 1}, to {label}"
            claims = [{**each, "because": because} for each in _claim_branch(workflow, node, output)]
            inputs = list(_find_inputs([*way, (node, output)])) if way is not None else []
            for fields in inputs[:_MOST_CASES]:
                case: dict[str, Json] = {"id": add_id(f"{node.name} to {label}", used)}
                message = fields.get(("chatInput",))
                case |= {"input": str(message)} if message is not None and len(fields) == 1 else {"body": _nest(fields)}
                yield {**case, "expect": claims}
            if not inputs:
                unknown = "its condition, or one before it, is not a comparison of a field of the input"
                reason = f"write the input that takes this branch: {'no value of the input reaches it' if node.is_known() else unknown}"
                yield {"id": add_id(f"{node.name} to {label}", used), "skip": reason, "expect": claims}


def _find_way(workflow: Workflow, node: BranchNode) -> list[Turn] | None:
    """Return the turns at the branch nodes on a shortest way to a node; None if it is not reached."""
    known = {each.name: each for each in workflow.branches}
    ways: dict[str, list[Turn]] = {name: [] for name in workflow.starts}
    waiting = list(workflow.starts)
    while waiting:
        name = waiting.pop(0)
        if name == node.name:
            return ways[name]
        branch = known.get(name)
        steps = (
            [(target, [(branch, output)]) for output, targets in enumerate(branch.targets) for target in targets]
            if branch is not None
            else [(target, []) for target in workflow.following.get(name, ())]
        )
        for target, turn in steps:
            if target not in ways:
                ways[target] = [*ways[name], *turn]
                waiting.append(target)
    return None


def _find_inputs(way: list[Turn]) -> Iterator[dict[Field, Json]]:
    """Yield the input fields that take every turn of a way."""
    if not all(node.is_known() for node, _ in way):
        return
    conditions = [condition for node, _ in way for rule in node.rules if rule is not None for condition in rule.conditions]
    candidates = list_candidates(conditions)
    if any(one != other and other[: len(one)] == one for one in candidates for other in candidates):
        # A field cannot be a text and have members.
        return
    combinations = itertools.product(*candidates.values())
    for values in itertools.islice(combinations, _MOST_TRIED):
        fields = dict(zip(candidates, values, strict=True))
        if all(choose_output(node, fields) == output for node, output in way):
            yield fields


def _claim_branch(workflow: Workflow, node: BranchNode, output: int) -> Iterator[dict[str, Json]]:
    """Yield that the nodes after this output ran, and that those which only other outputs lead to did not."""
    mine = node.targets[output]
    reached, waiting = set(mine), list(mine)
    while waiting:
        new = [name for name in workflow.following.get(waiting.pop(), ()) if name not in reached]
        reached.update(new)
        waiting += new
    yield {"node_called": mine[0] if mine else node.name}
    others = [name for at, targets in enumerate(node.targets) if at != output for name in targets if name not in reached]
    for name in dict.fromkeys(others):
        yield {"node_called": {"name": name, "condition": "not_called"}}


def _nest(fields: dict[Field, Json]) -> dict[str, Json]:
    body: dict[str, Json] = {}
    for field, value in fields.items():
        place = body
        for step in field[:-1]:
            place = place.setdefault(step, {})
        place[field[-1]] = value
    return body
