"""n8n executions as its API returns them: one object, or a page `{"data": [...]}` of them.

Rules: nodes in order of `executionIndex`, one per run. A run of a tool is not a node but a tool call, of the agent that made
it and of the whole run; its arguments are `inputOverride.ai_tool`, it is found under its node's name and under the name the model
used. The answer is that of the last AI root node, else of the last main node that ran. The HTTP status is that of a Respond to
Webhook node (200 unless configured), otherwise not recorded. The clock is `startedAt`, the duration goes to `stoppedAt`.
Tokens are those of the language-model sub-nodes and of AI nodes that have none, summed. What is not understood is told by
`proctor.evidence.platforms.n8n_account`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.platforms.n8n_account import mark_agent_output, mark_execution
from proctor.evidence.platforms.n8n_tools import ToolRun, list_tool_calls
from proctor.evidence.shared.n8n_expressions import Resolved, iterate_outputs, resolve_for_items
from proctor.evidence.shared.usage import add_usage, find_usage
from proctor.evidence.shared.workflow import find_answering_node, is_ai, is_http_request, is_trigger, read_answer, sum_usage, with_method
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.text import as_text
from proctor.evidence.values.times import measure_ms_between
from proctor.model.evidence import Evidence, Json, Node, ToolCall, Usage
from proctor.model.numbers import is_number

_INPUT_KEYS = ("chatInput", "message", "input", "text", "question", "prompt", "query")


class NodeRun(msgspec.Struct, kw_only=True):
    """One run of a node as n8n recorded it, with its place in the order."""

    name: str
    index: int
    """Which run of this node it is."""
    order: tuple[float, float, int]
    record: dict[str, Any]
    definition: dict[str, Any]
    items: list[Json]
    is_tool: bool
    is_sub_node: bool


def sniff(document: Json) -> bool:
    """Return whether this is an execution or a page of executions."""
    if not isinstance(document, dict):
        return False
    data = document.get("data")
    if isinstance(data, list):
        return bool(data) and all(_is_execution(entry) for entry in data)
    return _is_execution(document)


def read(document: Json) -> list[Evidence]:
    """Return every execution in the document."""
    data = dict_or_empty(document).get("data")
    if isinstance(data, list):
        return [_read_execution(dict_or_empty(entry), f"$.data[{index}]") for index, entry in enumerate(data)]
    return [_read_execution(dict_or_empty(document), "$")]


def has_run_data(document: Json) -> bool:
    """Return whether `data.resultData.runData` is there."""
    return isinstance(dict_or_empty(dict_or_empty(dict_or_empty(document).get("data")).get("resultData")).get("runData"), dict)


def is_answered_by_webhook(evidence: Evidence) -> bool:
    """Return whether the answer is that of a Respond to Webhook node: it passes on what came in, and what it said is not recorded."""
    node = find_answering_node(evidence.nodes or ())
    return node is not None and is_respond_to_webhook(node.type)


def _is_execution(document: Json) -> bool:
    # An execution listed without `includeData=true` is recognised too, so that the error can say what is missing.
    return has_run_data(document) or (isinstance(document, dict) and "workflowId" in document and "startedAt" in document)


def _read_execution(document: dict[str, Any], path: str) -> Evidence:
    if not has_run_data(document):
        raise EvidenceError(f"{path}: an n8n execution without its run data; export it with includeData=true")
    result = document["data"]["resultData"]
    workflow = dict_or_empty(document.get("workflowData"))
    unknowns = Unknowns()
    mark_execution(document, result["runData"], path, unknowns)
    runs = _read_runs(dict_or_empty(result["runData"]), workflow)
    for run in runs:
        if not run.is_tool and not run.is_sub_node:
            mark_agent_output(text_or_none(run.definition.get("type")), run.items, run.name, unknowns)
    calls = list_tool_calls([_read_tool_run(run) for run in runs if run.is_tool], _list_agent_steps(runs), unknowns)
    nodes = _build_nodes(runs, calls, unknowns)
    sub_nodes = frozenset(run.name for run in runs if run.is_sub_node)
    text, body = read_answer(find_answering_node(nodes, sub_nodes))
    message, metadata = _request(runs, document, workflow)
    error = result.get("error")
    return Evidence(
        case=text_or_none(document.get("case")),
        input=message,
        text=text,
        body=body,
        tool_calls=tuple(call for _, call in calls),
        nodes=nodes,
        http_status=_find_http_status(runs),
        duration_ms=measure_ms_between(document.get("startedAt"), document.get("stoppedAt")),
        usage=_sum_usage(nodes, sub_nodes, runs, unknowns),
        now=text_or_none(document.get("startedAt")),
        error=None if error is None else as_text(dict_or_empty(error).get("message")) or as_text(error),
        account=unknowns.close_account("n8n execution"),
        metadata=metadata,
    )


def _read_runs(run_data: dict[str, Any], workflow: dict[str, Any]) -> list[NodeRun]:
    definitions = {
        node["name"]: node for node in list_of(workflow.get("nodes")) if isinstance(node, dict) and isinstance(node.get("name"), str)
    }
    connections = dict_or_empty(workflow.get("connections"))
    runs: list[NodeRun] = []
    for name, records in run_data.items():
        wired = set(dict_or_empty(connections.get(name)))
        for index, record in enumerate(list_of(records)):
            if not isinstance(record, dict):
                continue
            data = dict_or_empty(record.get("data"))
            # What a node is shows in how it is connected: from the workflow
            # where it was exported, else from what the run was given and gave.
            kinds = set(data) | set(dict_or_empty(record.get("inputOverride"))) | wired
            runs.append(
                NodeRun(
                    name=name,
                    index=index,
                    # Before executionIndex existed there was only the start time.
                    order=(_number(record.get("executionIndex")), _number(record.get("startTime")), len(runs)),
                    record=record,
                    definition=dict_or_empty(definitions.get(name)),
                    items=_read_items(data),
                    is_tool="ai_tool" in kinds,
                    is_sub_node="main" not in kinds and any(kind.startswith("ai_") for kind in kinds),
                )
            )
    # n8n lists runs by node; what ran when is told by their numbers only.
    runs.sort(key=lambda run: run.order)
    return runs


def _read_items(data: dict[str, Any]) -> list[Json]:
    # data.<connection type>[branch][item].json: all branches in order, whatever the connection type.
    branches = [branch for outputs in data.values() for branch in list_of(outputs)]
    return [dict_or_empty(item).get("json") for branch in branches for item in list_of(branch)]


def _sum_usage(nodes: tuple[Node, ...], sub_nodes: frozenset[str], runs: list[NodeRun], unknowns: Unknowns) -> Usage | None:
    """Return the tokens of the models, and of the AI nodes that no model serves; what a served node reports repeats its models."""
    models = [node.usage for node in nodes if node.name in sub_nodes]
    # An agent repeats the tokens of the models below it. Only where those report any is it left out, or nothing would be counted.
    served = {_find_source(run)[0] for run in runs if run.is_sub_node} if any(models) else set[str | None]()
    others = [node for node in nodes if node.name not in sub_nodes and node.name not in served]
    models_asked = {run.name for run in runs if "ai_languageModel" in dict_or_empty(run.record.get("data"))}
    counted = [node.usage for node in nodes if node.name in models_asked]
    counted += [node.usage for node in others if is_ai(node.type) and not is_trigger(node.type)]
    if any(counted) and not all(counted):
        unknowns.mark("usage", "one of the models reports no tokens, and others do")
    return add_usage((*models, sum_usage(others)))


def _number(value: Json) -> float:
    # A whole number beyond 1e18 is no index and no time, and one beyond 1e308 cannot become a float at all.
    return float(value) if is_number(value) and abs(value) < 1e18 else 0.0


def _find_source(run: NodeRun) -> tuple[str | None, int]:
    source = dict_or_empty((list_of(run.record.get("source")) or [None])[0])
    number = source.get("previousNodeRun")
    return text_or_none(source.get("previousNode")), number if isinstance(number, int) else 0


def _read_output(run: NodeRun) -> Json:
    return run.items[0] if len(run.items) == 1 else (run.items or None)


def _read_tool_run(run: NodeRun) -> ToolRun:
    agent, agent_run = _find_source(run)
    override = _read_items(dict_or_empty(run.record.get("inputOverride")))
    arguments = override[0] if override else None
    own_name = text_or_none(dict_or_empty(run.definition.get("parameters")).get("name"))
    if _offers_several_tools(run) and isinstance(arguments, dict) and isinstance(arguments.get("tool"), str):
        # n8n adds to the arguments which of them was called.
        own_name = arguments["tool"]
        arguments = {key: value for key, value in arguments.items() if key != "tool"}
    return ToolRun(
        name=run.name,
        own_name=own_name,
        agent=agent,
        agent_run=agent_run,
        arguments=arguments,
        output=_read_output(run),
        error=_read_tool_error(run.record),
        duration_ms=run.record.get("executionTime"),
    )


def _read_tool_error(record: dict[str, Any]) -> Json:
    error = record.get("error")
    return "the run of the tool ended in an error" if error is None and record.get("executionStatus") in ("error", "crashed") else error


def _offers_several_tools(run: NodeRun) -> bool:
    return "mcp" in str(run.definition.get("type")).rsplit(".", 1)[-1].lower()


def _list_agent_steps(runs: list[NodeRun]) -> list[tuple[str, int, list[Any]]]:
    found: list[tuple[str, int, list[Any]]] = []
    for run in runs:
        steps = [step for item in run.items for step in list_of(dict_or_empty(item).get("intermediateSteps"))]
        if steps and not run.is_sub_node and not run.is_tool:
            found.append((run.name, run.index, steps))
    return found


class _Flow:
    """The runs before the one that is looked at; `passed` moves on to the next."""

    def __init__(self, runs: list[NodeRun]) -> None:
        self._places: dict[tuple[str | None, int], NodeRun] = {(run.name, run.index): run for run in runs}
        self._named: dict[str, list[Json]] = {}

    def find_source(self, run: NodeRun) -> NodeRun | None:
        return self._places.get(_find_source(run))

    def resolve(self, run: NodeRun, parameters: Json) -> Resolved:
        source = self.find_source(run)
        # An expression can only have read what ran before its node.
        current = [source.items] if source is not None and source.order < run.order and source.items else []
        most = max((len(items) for items in (*current, *self._named.values())), default=1)
        return resolve_for_items(parameters, iterate_outputs(current, self._named), most)

    def move_past(self, run: NodeRun) -> None:
        if run.items:
            self._named[run.name] = run.items


def _build_nodes(runs: list[NodeRun], calls: list[tuple[int, ToolCall]], unknowns: Unknowns) -> tuple[Node, ...]:
    made: dict[tuple[str | None, int], list[ToolCall]] = {}
    for agent_run, call in calls:
        # Keyed by the run too: an agent in a loop makes its calls anew in each of its runs.
        made.setdefault((call.node, agent_run), []).append(call)
    flow = _Flow(runs)
    nodes: list[Node] = []
    for run in runs:
        if not run.is_tool:
            nodes.append(_build_node(run, flow, tuple(made.get((run.name, run.index), ())), unknowns))
        flow.move_past(run)
    return tuple(nodes)


def _build_node(run: NodeRun, flow: _Flow, calls: tuple[ToolCall, ...], unknowns: Unknowns) -> Node:
    node_type = text_or_none(run.definition.get("type"))
    parameters, more, notes = None, (), ()
    if is_http_request(node_type):
        resolved = flow.resolve(run, run.definition.get("parameters"))
        parameters, more, notes = with_method(resolved.value), tuple(map(with_method, resolved.more)), resolved.notes
    error = run.record.get("error")
    duration = run.record.get("executionTime")
    return Node(
        name=run.name,
        type=node_type,
        status="error" if error is not None or run.record.get("executionStatus") == "error" else "success",
        input=_find_input(run, flow),
        output=_read_output(run),
        parameters=parameters,
        more_parameters=more,
        tool_calls=calls,
        duration_ms=duration if isinstance(duration, (int, float)) else None,
        error=None if error is None else dict_or_empty(error).get("message") or error,
        items=len(run.items),
        usage=find_usage(_read_output(run), unknowns),
        notes=notes,
    )


def _find_input(run: NodeRun, flow: _Flow) -> Json:
    override = _read_items(dict_or_empty(run.record.get("inputOverride")))
    if override:
        return override[0] if len(override) == 1 else override
    source = flow.find_source(run)
    return None if source is None else _read_output(source)


def _find_http_status(runs: list[NodeRun]) -> int | None:
    flow = _Flow(runs)
    for run in runs:
        if is_respond_to_webhook(run.definition.get("type")):
            options = dict_or_empty(dict_or_empty(run.definition.get("parameters")).get("options"))
            code = flow.resolve(run, options.get("responseCode", 200)).value
            if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
                code = int(code)
            return code if isinstance(code, int) and not isinstance(code, bool) and 100 <= code <= 599 else None
        flow.move_past(run)
    return None


def is_respond_to_webhook(node_type: Json) -> bool:
    """Return whether nodes of this type answer the webhook."""
    return isinstance(node_type, str) and node_type.endswith(".respondToWebhook")


def _request(runs: list[NodeRun], document: dict[str, Any], workflow: dict[str, Any]) -> tuple[Json, dict[str, Json]]:
    """Return what the run was started with, and what identifies it."""
    started = next(
        (run for run in runs if not _find_source(run)[0] and (run.items or is_trigger(text_or_none(run.definition.get("type"))))), None
    )
    item = dict_or_empty(started.items[0]) if started is not None and started.items else {}
    body = item.get("body", item)
    message = find_first(dict_or_empty(body), *_INPUT_KEYS)
    headers = {key.lower(): value for key, value in dict_or_empty(item.get("headers")).items()}
    known = {
        "execution_id": document.get("id"),
        "workflow_id": document.get("workflowId") or workflow.get("id"),
        "workflow_name": workflow.get("name"),
        "status": document.get("status"),
        "mode": document.get("mode"),
        "request_id": headers.get("x-request-id"),
    }
    return (message if message is not None else body or None), {key: value for key, value in known.items() if value is not None}
