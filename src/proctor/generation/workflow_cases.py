"""Makes cases from a workflow of n8n or Flowise: one for each branch, with input values at and next to each bound.

A condition compares a field of the input with a value. Other expressions (code, regular expressions, several nodes in one expression) are
unknown, and so is any output that depends on them. A branch with an unsupported condition, or one that no input value reaches, gets a
skipped case that explains what to fill in.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proctor.errors import InputError
from proctor.formats.native.drafting import add_id
from proctor.model.evidence import Json
from proctor.model.json_values import is_number

_EXPRESSION = re.compile(r"^=?\s*\{\{\s*(?P<inner>.+?)\s*\}\}\s*$", re.DOTALL)
_ROOT = re.compile(
    r"^(?:\$json|\$input\.(?:item|first\(\))\.json|\$node\[[^\]]+\]\.json|\$\([^)]+\)\.(?:item|first\(\)|last\(\))\.json|\$flow\.state)"
)
_NAMED_NODE = re.compile(r"^=?\s*\{\{\s*(?:\$node\[\s*[\"']([^\"']+)[\"']\s*\]|\$\(\s*[\"']([^\"']+)[\"']\s*\))")
_PASSING = frozenset(("if", "switch", "filter", "noOp", "wait", "limit", "sort", "respondToWebhook"))
"""Kinds of nodes that pass their items on unchanged."""
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[\s*[\"']([^\"']+)[\"']\s*\]")
_OPERATORS = {
    "equals": "==", "equal": "==", "notEquals": "!=", "notEqual": "!=", "gt": ">", "larger": ">", "after": ">", "gte": ">=",
    "largerEqual": ">=", "afterOrEquals": ">=", "lt": "<", "smaller": "<", "before": "<", "lte": "<=", "smallerEqual": "<=",
    "beforeOrEquals": "<=", "contains": "contains", "notContains": "lacks", "startsWith": "starts", "endsWith": "ends", "isEmpty": "empty",
    "empty": "empty", "isNotEmpty": "filled", "notEmpty": "filled", "true": "true", "false": "false", "exists": "exists",
    "notExists": "absent",
}  # fmt: skip
_SAMPLES: dict[str, tuple[Json, Json]] = {
    "number": (1, None),
    "boolean": (True, None),
    "array": (["something"], []),
    "object": ({"name": "something"}, {}),
    "dateTime": ("2026-01-31T09:00:00Z", None),
}
"""By n8n type: an example and an empty value, where None means a missing field. n8n rejects values of another type."""
_OF_ANY_TYPE = frozenset(("exists", "absent", "empty", "filled"))

Field = tuple[str, ...]


class Condition(NamedTuple):
    """A comparison of a field with a value; without an operator it is unknown."""

    field: Field
    operator: str
    value: Json
    kind: str = ""
    """The type of the values, as n8n names it; empty if it is not declared."""


class Rule(NamedTuple):
    """The conditions of one output."""

    conditions: tuple[Condition, ...]
    needs_all: bool


class BranchNode(NamedTuple):
    """A node with several outputs; the first output whose rule holds is taken, and the one without a rule if none does."""

    name: str
    rules: tuple[Rule | None, ...]
    """For each output; None for the fallback."""
    targets: tuple[tuple[str, ...], ...]
    """For each output the nodes that follow."""

    def is_known(self) -> bool:
        """Return whether every condition is understood."""
        return all(rule is None or (rule.conditions and all(each.operator for each in rule.conditions)) for rule in self.rules)


class Workflow(NamedTuple):
    """The graph of a workflow."""

    name: str
    starts: tuple[str, ...]
    following: dict[str, tuple[str, ...]]
    branches: tuple[BranchNode, ...]


def read_workflow(document: Json) -> Workflow:
    """Return the graph of an n8n or Flowise document. Raises `InputError`."""
    if isinstance(document, dict) and isinstance(document.get("nodes"), list):
        if isinstance(document.get("connections"), dict):
            return _read_n8n(document)
        if isinstance(document.get("edges"), list):
            return _read_flowise(document)
    raise InputError("expected a workflow of n8n (nodes and connections) or Flowise (nodes and edges)")


def _read_n8n(document: dict[str, Json]) -> Workflow:
    nodes = {str(node["name"]): node for node in document["nodes"] if isinstance(node, dict) and node.get("name")}
    outputs: dict[str, tuple[tuple[str, ...], ...]] = {}
    for name, links in document["connections"].items():
        main: list[Json] = (links.get("main") if isinstance(links, dict) else None) or []
        lists = [[link for link in output or () if isinstance(link, dict)] for output in main]
        outputs[name] = tuple(tuple(str(link["node"]) for link in each if link.get("node") in nodes) for each in lists)
    following = {name: tuple(each for output in outputs.get(name, ()) for each in output) for name in nodes}
    kinds = {name: str(node.get("type", "")).rpartition(".")[2] for name, node in nodes.items()}
    untouched = _find_untouched(kinds, following)
    branches: list[BranchNode] = []
    for name, node in nodes.items():
        before = [each for each, targets in following.items() if name in targets]
        readable = _Readable(untouched, all(each in untouched for each in before))
        rules = _read_n8n_rules(kinds[name], node.get("parameters") or {}, readable)
        targets = outputs.get(name, ())
        count = max(len(rules), len(targets))
        if count > 1:
            # Outputs beyond the rules: fallbacks, or unknown conditions if no rule was read.
            rules = [*rules, *([None if rules else Rule((), True)] * (count - len(rules)))]
            branches.append(BranchNode(name, tuple(rules), (*targets, *(((),) * (count - len(targets))))))
    return Workflow(str(document.get("name") or "workflow"), _find_starts(following), following, tuple(branches))


class _Readable(NamedTuple):
    """Decides which data in a condition is still the input of the workflow."""

    untouched: set[str]
    """Nodes whose output is the input of the workflow."""
    own: bool
    """Whether the node of the condition receives the input of the workflow unchanged."""

    def is_input(self, text: Json) -> bool:
        """Return whether an expression reads the input, and not what a step computed."""
        node_reference = _NAMED_NODE.match(text) if isinstance(text, str) else None
        return self.own if node_reference is None else (node_reference[1] or node_reference[2]) in self.untouched


def _find_untouched(kinds: dict[str, str], following: dict[str, tuple[str, ...]]) -> set[str]:
    """Return the nodes whose output is the input of the workflow: where it starts, and nodes after it that only pass items on."""
    before: dict[str, list[str]] = {}
    for name, targets in following.items():
        for target in targets:
            before.setdefault(target, []).append(name)
    untouched = {name for name in kinds if name not in before}
    while True:
        rest = {name for name in kinds if name not in untouched and kinds[name] in _PASSING}
        more = {name for name in rest if all(each in untouched for each in before[name])}
        if not more:
            return untouched
        untouched |= more


def _read_n8n_rules(kind: str, parameters: dict[str, Json], readable: _Readable) -> list[Rule | None]:
    if kind in ("if", "filter"):
        rule = _read_n8n_conditions(parameters.get("conditions"), parameters.get("combineOperation"), readable)
        return [rule, None] if kind == "if" else []
    if kind != "switch":
        return []
    rules = parameters.get("rules") or {}
    listed: list[dict[str, Json]] = rules.get("values") or rules.get("rules") or []
    if any("conditions" in each for each in listed):
        read_rules: list[Rule | None] = [_read_n8n_conditions(each.get("conditions"), None, readable) for each in listed]
        return [*read_rules, None] if (parameters.get("options") or {}).get("fallbackOutput") == "extra" else read_rules
    by_output: dict[int, Rule] = {}
    for at, each in enumerate(listed):
        condition = _make_condition(parameters.get("value1"), each.get("operation") or "equal", each.get("value2"), readable)
        by_output[int(each.get("output", at))] = Rule((condition,), True)
    fallback = parameters.get("fallbackOutput")
    size = max([*by_output, fallback if isinstance(fallback, int) and fallback >= 0 else -1], default=-1) + 1
    return [by_output.get(at) for at in range(size)]


def _read_n8n_conditions(document: Json, combine: Json, readable: _Readable) -> Rule:
    if not isinstance(document, dict):
        return Rule((), True)
    if isinstance(document.get("conditions"), list):
        conditions = [
            _make_condition(each.get("leftValue"), about.get("operation"), each.get("rightValue"), readable, str(about.get("type") or ""))
            for each in document["conditions"]
            for about in [each.get("operator") or each]
        ]
        return Rule(tuple(conditions), document.get("combinator") != "or" and document.get("combineOperation") != "any")
    old = [each for kind in ("string", "number", "boolean", "dateTime") for each in document.get(kind) or ()]
    conditions = [_make_condition(each.get("value1"), each.get("operation") or "equal", each.get("value2", True), readable) for each in old]
    return Rule(tuple(conditions), combine != "any")


def _read_flowise(document: dict[str, Json]) -> Workflow:
    data = {str(node["id"]): node.get("data") or {} for node in document["nodes"]}
    names = {each: str(about.get("label") or each) for each, about in data.items()}
    outputs: dict[str, dict[int, list[str]]] = {}
    for edge in document["edges"]:
        source, target = str(edge.get("source")), str(edge.get("target"))
        handle = re.search(r"-output-(\d+)$", str(edge.get("sourceHandle", "")))
        if source in names and target in names:
            outputs.setdefault(source, {}).setdefault(int(handle[1]) if handle else 0, []).append(names[target])
    following = {names[each]: tuple(name for links in outputs.get(each, {}).values() for name in links) for each in names}
    branches: list[BranchNode] = []
    for each, about in data.items():
        listed = (about.get("inputs") or {}).get("conditions")
        if isinstance(listed, list) and str(about.get("name", "")).startswith("condition"):
            conditions = [_make_condition(item.get("value1"), item.get("operation"), item.get("value2")) for item in listed]
            targets = tuple(tuple(outputs.get(each, {}).get(number, ())) for number in range(len(listed) + 1))
            rules = [Rule((condition,), True) for condition in conditions]
            branches.append(BranchNode(names[each], (*rules, None), targets))
    return Workflow(str(document.get("name") or "workflow"), _find_starts(following), following, tuple(branches))


def _find_starts(following: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    led_to = {name for names in following.values() for name in names}
    return tuple(name for name, names in following.items() if name not in led_to and names)


def _make_condition(left: Json, operation: Json, right: Json, readable: _Readable | None = None, kind: str = "") -> Condition:
    field = read_field(left) if readable is None or readable.is_input(left) else ()
    operator = _OPERATORS.get(str(operation), "") if field else ""
    known = right is None or isinstance(right, (str, bool)) or is_number(right)
    if isinstance(right, str) and "{{" in right:
        known = False
    compares = operator in (">", ">=", "<", "<=")
    value = _read_number(right) if compares or kind == "number" else right
    if operator not in _OF_ANY_TYPE:
        # Text that is no date, or no list, would be refused.
        known = known and kind not in ("dateTime", "object") and (kind != "array" or operator in ("contains", "lacks"))
        known = known and (is_number(value) or not (compares or kind == "number"))
    return Condition(field, operator if known else "", value, kind)


def _read_number(value: Json) -> Json:
    try:
        return float(value) if isinstance(value, str) and "." in value else int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def read_field(text: Json) -> Field:
    """Return the field that an expression reads, without the part of the request that it is in; empty if it is no plain field."""
    expression = _EXPRESSION.match(text) if isinstance(text, str) else None
    if expression is None:
        return ()
    inner = expression["inner"]
    if inner == "question":
        return ("chatInput",)
    root = _ROOT.match(inner)
    steps = [one or other for one, other in _STEP.findall(inner[root.end() :])] if root is not None else []
    if root is None or not steps or _STEP.sub("", inner[root.end() :]).strip():
        return ()
    return tuple(steps[1:] if steps[0] in ("body", "query") and len(steps) > 1 else steps)


def holds(condition: Condition, actual: Json, *, folds: bool = False) -> bool:
    """Return whether a value, None if missing, satisfies a condition; `folds` ignores case."""
    value, operator = condition.value, condition.operator
    if operator in (">", ">=", "<", "<="):
        return is_number(actual) and {">": actual > value, ">=": actual >= value, "<": actual < value, "<=": actual <= value}[operator]
    if operator in _OF_ANY_TYPE:
        is_empty = actual in ("", None, [], {})
        return {"exists": actual is not None, "absent": actual is None, "empty": is_empty, "filled": not is_empty}[operator]
    if folds:
        value, actual = _fold(value), [_fold(each) for each in actual] if isinstance(actual, list) else _fold(actual)
    if isinstance(actual, list):
        return (value in actual) is (operator == "contains")
    if actual is None and isinstance(value, str):
        actual = ""
    text = str(value)
    results = {
        "==": actual == value,
        "!=": actual != value,
        "contains": isinstance(actual, str) and text in actual,
        "lacks": isinstance(actual, str) and text not in actual,
        "starts": isinstance(actual, str) and actual.startswith(text),
        "ends": isinstance(actual, str) and actual.endswith(text),
        "true": actual is True,
        "false": actual is False,
    }
    return results[operator]


def _fold(value: Json) -> Json:
    return value.lower() if isinstance(value, str) else value


def list_candidates(conditions: Sequence[Condition]) -> dict[Field, list[Json]]:
    """Return for each field the values at and next to each bound, in order."""
    candidates: dict[Field, list[Json]] = {}
    for each in conditions:
        values, value = candidates.setdefault(each.field, []), each.value
        if each.operator in (">", ">=", "<", "<="):
            near: list[Json] = [value, value + 1, value - 1]
        elif each.operator in ("true", "false") or isinstance(value, bool):
            near = [True, False]
        elif each.operator in ("exists", "absent"):
            near = [_SAMPLES.get(each.kind, ("something", None))[0], None]
        elif each.operator in ("empty", "filled"):
            near = list(_SAMPLES.get(each.kind, ("something", "")))
        elif each.kind == "array":
            near = [[value], ["something else"]]
        elif each.operator in ("==", "!="):
            near = [value, value + 1 if is_number(value) else "something else"]
        else:
            near = [f"{value} text", f"text {value}", str(value), "something else"]
        values += [each_value for each_value in near if each_value not in values or isinstance(each_value, bool)]
    return candidates


def choose_output(node: BranchNode, fields: dict[Field, Json], *, folds: bool = False) -> int | None:
    """Return the output that a node takes for these fields."""
    for at, rule in enumerate(node.rules):
        if rule is not None:
            results = [holds(each, fields.get(each.field), folds=folds) for each in rule.conditions]
            if all(results) if rule.needs_all else any(results):
                return at
    return next((at for at, rule in enumerate(node.rules) if rule is None), None)


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
    # A field cannot be a text and have members.
    if any(field != other and other[: len(field)] == field for field, other in itertools.product(candidates, repeat=2)):
        return
    # Nor can it have two types.
    typed = {(each.field, each.kind) for each in conditions if each.kind not in ("", "any")}
    if len(typed) > len({each.field for each in conditions}):
        return
    combinations = itertools.product(*candidates.values())
    for values in itertools.islice(combinations, _MOST_TRIED):
        fields = dict(zip(candidates, values, strict=True))
        # Whether n8n ignores the case of letters is an option: the output must not depend on it.
        if all(choose_output(node, fields, folds=folds) == output for node, output in way for folds in (False, True)):
            yield fields


def _claim_branch(workflow: Workflow, node: BranchNode, output: int) -> Iterator[dict[str, Json]]:
    """Yield claims that the nodes after this output ran, and that nodes reached only by other outputs did not."""
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
        if value is None:
            continue
        place = body
        for step in field[:-1]:
            place = place.setdefault(step, {})
        place[field[-1]] = value
    return body
