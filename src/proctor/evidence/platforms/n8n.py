"""n8n executions as its API returns them: one object, or a page `{"data": [...]}` of them.

Rules: nodes in order of `executionIndex`, one per run. A run of a tool is not a node but a tool call, of the agent that made
it and of the whole run; its arguments are `inputOverride.ai_tool`, it is found under its node's name and under the name the model
used. The answer is that of the last AI root node, else of the last main node that ran. The HTTP status is that of a Respond to
Webhook node (200 unless configured), otherwise not recorded. The clock is `startedAt`, the duration goes to `stoppedAt`.
Tokens are those of the language-model sub-nodes and of AI nodes that have none, summed.

An execution lists its tools by its own contract: no run of a tool node and no intermediate step means that no tool was called. Everything
under `json` belongs to the nodes; only the `intermediateSteps` of an agent's own output record calls.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.platforms.n8n_tools import ToolRun, list_tool_calls
from proctor.evidence.shared.n8n_expressions import Resolved, iterate_outputs, resolve_for_items
from proctor.evidence.shared.usage import add_usage, find_usage
from proctor.evidence.shared.workflow import find_answering_node, is_ai, is_http_request, is_trigger, read_answer, sum_usage, with_method
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_failure, read_status
from proctor.evidence.unknowns.unrecognised import check_object, mark_kind
from proctor.evidence.values.access import SHOWN, dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.near_miss import is_misspelt
from proctor.evidence.values.text import as_text
from proctor.evidence.values.times import measure_ms_between
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall, Usage
from proctor.model.numbers import is_number
from proctor.model.show import kind_of, shorten, show

_INPUT_KEYS = ("chatInput", "message", "input", "text", "question", "prompt", "query")
_EVERY: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "usage", "nodes")
_EXECUTION: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("id", "mode", "status", "startedAt", "stoppedAt", "workflowId", "data", "case"), None),
    "workflowData": _EVERY,
}
_WORKFLOW: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("id", "name", "pinData", "staticData"), None),
    **dict.fromkeys(("nodes", "connections"), _EVERY),
}
_DEFINITION: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("name", "type", "parameters"), _EVERY),
}
_RECORD: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("data", "source", "inputOverride", "executionIndex", "startTime"), _EVERY),
    **dict.fromkeys(("error", "executionStatus", "executionTime"), ("tool_results", "nodes")),
}
_CONNECTIONS = split_words(
    "main ai_tool ai_languageModel ai_memory ai_agent ai_chain ai_document ai_embedding ai_outputParser ai_retriever ai_reranker"
    " ai_textSplitter ai_vectorStore"
)


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
    """Return whether the answer is that of a Respond to Webhook node: it passes on its input, and its response is not recorded."""
    node = find_answering_node(evidence.nodes or ())
    return node is not None and is_respond_to_webhook(node.type)


def _is_execution(document: Json) -> bool:
    # An execution listed without `includeData=true` is recognised too, so that the error can name what is missing.
    return has_run_data(document) or (isinstance(document, dict) and "workflowId" in document and "startedAt" in document)


def _read_execution(document: dict[str, Any], path: str) -> Evidence:
    if not has_run_data(document):
        raise EvidenceError(f"{path}: an n8n execution without its run data; export it with includeData=true")
    result = document["data"]["resultData"]
    workflow = dict_or_empty(document.get("workflowData"))
    unknowns = Unknowns()
    _check_execution(document, result["runData"], path, unknowns)
    runs = _read_runs(dict_or_empty(result["runData"]), workflow)
    for run in runs:
        if not run.is_tool and not run.is_sub_node:
            check_steps(text_or_none(run.definition.get("type")), run.items, run.name, unknowns)
    calls = list_tool_calls([_read_tool_run(run) for run in runs if run.is_tool], _list_agent_steps(runs), unknowns)
    nodes = _build_nodes(runs, calls, unknowns)
    sub_nodes = frozenset(run.name for run in runs if run.is_sub_node)
    text, body = read_answer(find_answering_node(nodes, sub_nodes))
    message, metadata = _request(runs, document, workflow)
    error = result.get("error")
    failure = find_failure({key: value for key, value in document.items() if key not in _EXECUTION or key == "status"})
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
        error=failure if error is None else as_text(dict_or_empty(error).get("message")) or as_text(error),
        account=unknowns.close_account("n8n execution"),
        metadata=metadata,
    )


def _check_execution(document: dict[str, Any], runs: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    """Mark what cannot be read in an execution: runs, items and connections that are lost or of an unrecognised kind."""
    workflow = document.get("workflowData")
    check_object(document, _EXECUTION, path, unknowns)
    if workflow is None and any(isinstance(dict_or_empty(value).get("nodes"), list) for value in document.values()):
        unknowns.mark_unrecognised(_EVERY, f"{path} has no workflowData, and a workflow under another name")
    _check_type(workflow, dict, "workflowData", unknowns)
    workflow = dict_or_empty(workflow)
    check_object(workflow, _WORKFLOW, "workflowData", unknowns)
    if workflow and not isinstance(workflow.get("nodes"), list):
        unknowns.mark_parts(_EVERY, "workflowData has no list of nodes")
    _check_type(workflow.get("connections"), dict, "workflowData.connections", unknowns)
    defined: set[str] = set()
    for index, node in enumerate(list_of(workflow.get("nodes"))):
        at, name = f"workflowData.nodes[{index}]", dict_or_empty(node).get("name")
        _check_type(node, dict, at, unknowns)
        if isinstance(name, str) and name in runs:
            defined.add(name)
            check_object(node, _DEFINITION, at, unknowns)
            _check_type(node.get("parameters"), dict, f"{at}.parameters", unknowns)
            if not isinstance(node.get("type"), str):
                unknowns.mark_parts(_EVERY, f"{at} has no type")
    for name, records in runs.items():
        if isinstance(workflow.get("nodes"), list) and name not in defined:
            unknowns.mark_parts(_EVERY, f"{show(name, SHOWN)} ran and is no node of the workflow")
        at = f"runData.{shorten(name, 60)}"
        _check_type(records, list, at, unknowns)
        for index, record in enumerate(list_of(records)):
            _check_type(record, dict, f"{at}[{index}]", unknowns)
            if isinstance(record, dict):
                _check_record(name, record, workflow, f"{at}[{index}]", unknowns)


def _check_type(value: Json, expected: type[list[Any]] | type[dict[str, Any]] | tuple[type, ...], at: str, unknowns: Unknowns) -> None:
    if value is not None and not isinstance(value, expected):
        unknowns.mark_parts(_EVERY, f"{at} cannot be read: it is {kind_of(value)}")


def _check_record(name: str, record: dict[str, Any], workflow: dict[str, Any], at: str, unknowns: Unknowns) -> None:
    check_object(record, _RECORD, at, unknowns)
    status = record.get("executionStatus")
    if status is not None and read_status(status) not in ("ok", "failed"):
        unknowns.mark_parts(("tool_results", "nodes"), f"the run at {at} did not finish: its status is {show(status, SHOWN)}")
    for key in ("data", "inputOverride"):
        _check_type(record.get(key), dict, f"{at}.{key}", unknowns)
        for kind, outputs in dict_or_empty(record.get(key)).items():
            _check_connection(kind, outputs, f"{at}.{key}", unknowns)
    for key in ("executionIndex", "startTime"):
        _check_type(record.get(key), (int, float), f"{at}.{key}", unknowns)
    sources = record.get("source")
    _check_type(sources, list, f"{at}.source", unknowns)
    for source in list_of(sources):
        # An empty source is that of a trigger.
        is_known = (
            isinstance(source, dict) and isinstance(source.get("previousNode"), str) and type(source.get("previousNodeRun", 0)) is int
        )
        if source and not is_known:
            unknowns.mark_parts(_EVERY, f"{at}.source does not name the previous node")
    # Data is under its connection type, which shows whether this is the run of a tool; a run without data is known by its connections.
    if not dict_or_empty(record.get("data")) and not dict_or_empty(record.get("inputOverride")):
        connections = workflow.get("connections")
        wired = dict_or_empty(connections).get(name)
        definition = next((node for node in list_of(workflow.get("nodes")) if dict_or_empty(node).get("name") == name), {})
        own = str(definition.get("type")).rsplit(".", 1)[-1]
        may_be_tool = not isinstance(connections, dict) or own.startswith("tool") or own.endswith("Tool")
        if may_be_tool if wired is None else not isinstance(wired, dict) or not _CONNECTIONS.issuperset(wired):
            unknowns.mark_parts(_EVERY, f"{at} has no data, and its connections do not show whether it is the run of a tool")


def _check_connection(kind: str, outputs: Json, at: str, unknowns: Unknowns) -> None:
    """Mark what is not of the form `{<connection type>: [[{json: ...}]]}`."""
    if kind not in _CONNECTIONS:
        has_items = any("json" in dict_or_empty(item) for branch in list_of(outputs) for item in list_of(branch))
        if is_misspelt(kind, _CONNECTIONS) or (has_items and not kind.startswith("ai_")):
            unknowns.mark_unrecognised(_EVERY, f"{show(shorten(kind, 60))} at {at} is no known type of connection")
        elif has_items:
            mark_kind(outputs, kind, at, unknowns, speaks=None)
        else:
            unknowns.ignore(kind)
            return
    _check_type(outputs, list, f"{at}.{kind}", unknowns)
    for branch in list_of(outputs):
        _check_type(branch, list, f"an output at {at}.{kind}", unknowns)
        if any(not isinstance(item, dict) or "json" not in item for item in list_of(branch)):
            unknowns.mark_parts(_EVERY, f"an item at {at}.{kind} has no json")


def check_steps(node_type: str | None, items: list[Json], name: str, unknowns: Unknowns) -> None:
    """Mark the calls if the intermediate steps of an agent cannot be read."""
    if node_type is not None and not is_ai(node_type):
        return
    for item in map(dict_or_empty, items):
        near = next((key for key in item if is_misspelt(key, ("intermediateSteps",))), None)
        steps = item.get("intermediateSteps")
        if near is not None:
            why = f"{show(shorten(near, 60))} in the output of {show(name, SHOWN)} is not read; did you mean intermediateSteps?"
            unknowns.mark_unrecognised(CALL_PARTS, why)
        if steps is not None and not isinstance(steps, list):
            unknowns.mark("tool_calls", f"intermediateSteps of {show(name, SHOWN)}: expected a list, found {kind_of(steps)}")


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
            # The connections of a node show what it is: those of the workflow if it was exported, else those of the run's data.
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
    # n8n lists runs by node; only their numbers show the order.
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
    models_called = {run.name for run in runs if "ai_languageModel" in dict_or_empty(run.record.get("data"))}
    counted = [node.usage for node in nodes if node.name in models_called]
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
    return "the run of the tool ended in an error" if error is None and read_status(record.get("executionStatus")) == "failed" else error


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
    """The runs before the current one; `move_past` goes on to the next."""

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
        status="error" if error is not None or read_status(run.record.get("executionStatus")) == "failed" else "success",
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
