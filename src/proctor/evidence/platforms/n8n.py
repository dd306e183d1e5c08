"""n8n executions as its API returns them: one object, or a page of them. A run of a tool is a call of the agent that made it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.call_identity import list_call_keys, list_names, match_calls
from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, read_arguments, read_known_arguments
from proctor.evidence.shared.usage import add_usage, find_usage
from proctor.evidence.shared.workflow import (
    find_answering_node,
    is_ai,
    is_http_request,
    is_trigger,
    read_answer,
    resolve_for_items,
    sum_usage,
    with_method,
)
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import mark_removed
from proctor.evidence.unknowns.statuses import find_failure, read_status
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object, list_objects, list_unrecognised, mark_kind, mark_near_miss
from proctor.evidence.values.access import (
    SHOWN,
    dict_or_empty,
    find_first,
    is_misspelt,
    list_of,
    measure_ms_between,
    split_words,
    text_or_none,
)
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall, Usage, find_result_error
from proctor.model.json_values import is_number, read_digits
from proctor.model.show import kind_of, shorten, show

_INPUT_KEYS = ("chatInput", "message", "input", "text", "question", "prompt", "query")
_EVERY: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "usage", "nodes")
_EXECUTION: FieldTable = {
    **dict.fromkeys(("finished", "waitTill", "id", "mode", "status", "startedAt", "stoppedAt", "workflowId", "data", "case"), None),
    "workflowData": _EVERY,
}
_FIELDS: FieldTable = {
    **dict.fromkeys(("id", "pinData", "staticData", "error", "executionStatus", "executionTime"), None),
    **dict.fromkeys(("nodes", "connections", "name", "type", "parameters"), _EVERY),
    **dict.fromkeys(("data", "source", "inputOverride", "executionIndex", "startTime"), _EVERY),
}
"""The fields of a workflow, of its nodes, and of their runs."""
_ACTION: FieldTable = {
    **dict.fromkeys(("log", "type"), None),
    **dict.fromkeys(("toolInput", "toolCallId", "messageLog"), "tool_arguments"),
    "tool": "tool_calls",
}
_TYPES: dict[str, type] = {
    **dict.fromkeys(("workflowData", "connections", "parameters", "data", "inputOverride"), dict),
    **dict.fromkeys(("nodes", "source"), list),
    **dict.fromkeys(("executionIndex", "startTime"), float),
}
_CONNECTIONS = split_words(
    "main ai_tool ai_languageModel ai_memory ai_agent ai_chain ai_document ai_embedding ai_outputParser ai_retriever ai_reranker"
    " ai_textSplitter ai_vectorStore"
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_Place = tuple[str | None, int]
"""The name of a node and the number of its run."""


class _NodeRun(msgspec.Struct, kw_only=True):
    place: _Place
    order: tuple[float, float, int] = (0, 0, 0)
    source: _Place
    """The previous node and its run; for a tool, the agent."""
    record: dict[str, Any]
    type: str | None
    parameters: dict[str, Any]
    items: list[Json]
    given: list[Json]
    is_tool: bool
    is_sub_node: bool

    @property
    def name(self) -> str:
        return self.place[0] or ""

    @property
    def output(self) -> Json:
        return self.items[0] if len(self.items) == 1 else (self.items or None)

    @property
    def duration_ms(self) -> float | None:
        duration = self.record.get("executionTime")
        return duration if isinstance(duration, (int, float)) else None

    def get_error(self, failure: str | None = None) -> Json:
        """Return the message of its error, or `failure` if it failed without one."""
        error = self.record.get("error")
        if error is None:
            return failure if read_status(self.record.get("executionStatus")) == "failed" else None
        return dict_or_empty(error).get("message") or error

    def get_passed(self) -> tuple[list[str], Json]:
        """Return the names under which the model may know this tool, and the arguments."""
        arguments, name = self.given[0] if self.given else None, self.parameters.get("name")
        # An MCP node offers several tools; n8n adds the name of the called tool to the arguments.
        offers_several = "mcp" in str(self.type).rsplit(".", 1)[-1].lower()
        if offers_several and isinstance(arguments, dict) and isinstance(arguments.get("tool"), str):
            name, arguments = arguments["tool"], {key: value for key, value in arguments.items() if key != "tool"}
        # n8n offers a tool to the model under the name of its node, with special characters replaced.
        return [*([name] if isinstance(name, str) else []), _NOT_IN_NAMES.sub("_", self.name)], arguments


def sniff(document: Json) -> bool:
    """Return whether this is an execution or a page of executions."""
    data = dict_or_empty(document).get("data")
    return bool(data) and all(map(_is_execution, data)) if isinstance(data, list) else _is_execution(document)


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
    """Return whether a Respond to Webhook node answers: it passes on its input, and its response is not recorded."""
    node = find_answering_node(evidence.nodes or ())
    return node is not None and _is_respond_to_webhook(node.type)


def _is_execution(document: Json) -> bool:
    # An execution listed without `includeData=true` is recognised too, so that the error can name what is missing.
    return has_run_data(document) or (isinstance(document, dict) and "workflowId" in document and "startedAt" in document)


def _read_execution(document: dict[str, Any], path: str) -> Evidence:
    if not has_run_data(document):
        raise EvidenceError(f"{path}: an n8n execution without its run data; export it with includeData=true")
    error, unknowns = document["data"]["resultData"].get("error"), Unknowns()
    runs = _read_runs(document, path, unknowns)
    calls = _list_calls(runs, unknowns)
    nodes, http_status = _build_nodes(runs, calls, unknowns)
    sub_nodes = frozenset(run.name for run in runs if run.is_sub_node)
    text, body = read_answer(find_answering_node(nodes, sub_nodes))
    mark_removed(text, "answer", "the answer", unknowns)
    message, metadata = _read_request(runs, document)
    failure = find_failure({key: value for key, value in document.items() if key not in _EXECUTION or key == "status"})
    if failure is None and document.get("waitTill") is not None:
        failure = f"the execution was not over: waitTill {show(document['waitTill'], 40)}"
    elif failure is None and document.get("finished") is False:
        failure = "finished: false"
    last = next((run for run in reversed(runs) if not run.is_tool and not run.is_sub_node), None)
    if failure is None and last is not None:
        failure = as_text(last.get_error("the last node failed"))
    return Evidence(
        case=text_or_none(document.get("case")),
        input=message,
        text=text,
        body=body,
        tool_calls=tuple(call for _, call in calls),
        nodes=nodes,
        http_status=http_status,
        duration_ms=measure_ms_between(document.get("startedAt"), document.get("stoppedAt")),
        usage=_sum_usage(nodes, sub_nodes, runs, unknowns),
        now=text_or_none(document.get("startedAt")),
        error=failure if error is None else as_text(dict_or_empty(error).get("message")) or as_text(error),
        account=unknowns.close_account("n8n execution"),
        metadata=metadata,
    )


def _read_runs(document: dict[str, Any], path: str, unknowns: Unknowns) -> list[_NodeRun]:
    """Return the runs of all nodes in order, and mark unreadable parts of the runs and of the workflow."""
    result = document["data"]["resultData"]
    workflow = dict_or_empty(document.get("workflowData"))
    check_object(document, _EXECUTION, path, unknowns, _TYPES)
    check_object(workflow, _FIELDS, "workflowData", unknowns, _TYPES)
    if document.get("workflowData") is None and any(isinstance(dict_or_empty(value).get("nodes"), list) for value in document.values()):
        unknowns.mark_unrecognised(_EVERY, f"{path} has no workflowData, and a workflow under another name")
    if workflow and workflow.get("nodes") is None:
        unknowns.mark_parts(_EVERY, "workflowData has no list of nodes")
    definitions: dict[str, dict[str, Any]] = {}
    for at, node in list_objects(workflow.get("nodes"), _EVERY, "workflowData.nodes", unknowns):
        if (name := text_or_none(node.get("name"))) in result["runData"]:
            definitions[str(name)] = node
            check_object(node, _FIELDS, at, unknowns, _TYPES)
            if not isinstance(node.get("type"), str):
                unknowns.mark_parts(_EVERY, f"{at} has no type")
    connections = workflow.get("connections")
    runs: list[_NodeRun] = []
    for name, records in result["runData"].items():
        if workflow.get("nodes") is not None and name not in definitions:
            unknowns.mark_parts(_EVERY, f"{show(name, SHOWN)} ran and is no node of the workflow")
        if not isinstance(records, list):
            unknowns.mark_parts(_EVERY, f"runData.{name}: expected a list, found {kind_of(records)}")
        wired, definition = dict_or_empty(connections).get(name), definitions.get(name, {})
        for index, (at, record) in enumerate(list_objects(records, _EVERY, f"runData.{name}", unknowns)):
            run = _read_run((name, index), record, at, definition, wired, unknowns)
            # Older versions without `executionIndex` have only the start time. A larger integer is neither an index nor a time.
            numbers = [value if is_number(value := record.get(key)) and abs(value) < 1e18 else 0 for key in ("executionIndex", "startTime")]
            run.order = (float(numbers[0]), float(numbers[1]), len(runs))
            runs.append(run)
            # Data is under its connection type, which identifies the run of a tool; without data, the connections identify it.
            may_be_tool = not isinstance(wired, dict) or not _CONNECTIONS.issuperset(wired)
            if wired is None:
                may_be_tool = connections is None or re.search(r"(^|\.)tool[^.]*$|Tool$", str(run.type)) is not None
            if may_be_tool and not record.get("data") and not record.get("inputOverride"):
                unknowns.mark_parts(_EVERY, f"{at} has no data, and its connections do not show whether it is the run of a tool")
    for name in {text_or_none(result.get("lastNodeExecuted")), *(run.source[0] for run in runs)}:
        if name is not None and name not in result["runData"]:
            unknowns.mark_parts(_EVERY, f"{show(name, SHOWN)} ran, and its data is missing")
    # n8n lists runs by node; only their numbers show the order.
    runs.sort(key=lambda run: run.order)
    return runs


def _read_run(place: _Place, record: dict[str, Any], at: str, definition: dict[str, Any], wired: Json, unknowns: Unknowns) -> _NodeRun:
    check_object(record, _FIELDS, at, unknowns, _TYPES)
    status = record.get("executionStatus")
    if status is not None and read_status(status) not in ("ok", "failed"):
        unknowns.mark_parts(("tool_results", "nodes"), f"{at} did not finish: its status is {show(status, SHOWN)}")
    # A trigger has an empty source.
    sources = [dict_or_empty(source) for source in list_of(record.get("source")) if source]
    if any(not isinstance(one.get("previousNode"), str) or type(one.get("previousNodeRun", 0)) is not int for one in sources):
        unknowns.mark_parts(_EVERY, f"{at}.source does not name the previous node")
    source = sources[0] if sources else {}
    number = source.get("previousNodeRun")
    data, override = dict_or_empty(record.get("data")), dict_or_empty(record.get("inputOverride"))
    # The connections of a node show what it is: those of the workflow if it was exported, else those of the run's data.
    connections = {*data, *override, *dict_or_empty(wired)}
    return _NodeRun(
        place=place,
        source=(text_or_none(source.get("previousNode")), number if isinstance(number, int) else 0),
        record=record,
        type=text_or_none(definition.get("type")),
        parameters=dict_or_empty(definition.get("parameters")),
        items=_read_items(data, f"{at}.data", unknowns),
        given=_read_items(override, f"{at}.inputOverride", unknowns),
        is_tool="ai_tool" in connections,
        is_sub_node="main" not in connections and any(name.startswith("ai_") for name in connections),
    )


def _read_items(data: dict[str, Any], at: str, unknowns: Unknowns) -> list[Json]:
    """Return the items of `{<connection type>: [[{json: ...}]]}`, and mark items of any other form."""
    found: list[Json] = []
    for kind, outputs in data.items():
        if kind not in _CONNECTIONS:
            has_items = any("json" in dict_or_empty(item) for branch in list_of(outputs) for item in list_of(branch))
            if is_misspelt(kind, _CONNECTIONS) or (has_items and not kind.startswith("ai_")):
                unknowns.mark_unrecognised(_EVERY, f"{show(shorten(kind, 60))} at {at} is no known type of connection")
            elif has_items:
                mark_kind(outputs, kind, at, unknowns, speaks=None)
            else:
                unknowns.ignore(kind)
                continue
        branches = outputs if isinstance(outputs, list) else [outputs]
        for item in (item for branch in branches if branch is not None for item in (branch if isinstance(branch, list) else [None])):
            if not isinstance(item, dict) or "json" not in item:
                unknowns.mark_parts(_EVERY, f"{at}.{kind}: expected lists of items with json")
            else:
                found.append(item["json"])
    return found


def read_steps(items: list[Json], node_type: str | None, agent: str, unknowns: Unknowns) -> list[ToolCall]:
    """Return the calls in the intermediate steps of an agent's items; steps that cannot be read make the calls unknown."""
    found: list[ToolCall] = []
    for item in map(dict_or_empty, items):
        steps = item.get("intermediateSteps")
        for key in item if node_type is None or is_ai(node_type) else ():
            mark_near_miss(key, item[key], {"intermediateSteps": "tool_calls"}, f"the output of {show(agent, SHOWN)}", unknowns)
            if key == "intermediateSteps" and not isinstance(steps, (list, type(None))):
                unknowns.mark("tool_calls", f"intermediateSteps of {show(agent, SHOWN)}: expected a list, found {kind_of(steps)}")
        found += [call for step in list_of(steps) if (call := _read_step(dict_or_empty(step), agent, unknowns)) is not None]
    return found


def _read_step(step: dict[str, Any], agent: str, unknowns: Unknowns) -> ToolCall | None:
    """Read one intermediate step; arguments are `toolInput`, else those of the message the step came from."""
    action = dict_or_empty(step.get("action"))
    tool = text_or_none(action.get("tool"))
    if tool is None:
        unknowns.mark("tool_calls", "an intermediate step does not name its tool")
        return None
    check_object(action, _ACTION, "an intermediate step", unknowns)
    call_id, arguments = text_or_none(action.get("toolCallId")), action.get("toolInput")
    if arguments in (None, "", {}):
        messages = [dict_or_empty(message) for message in list_of(action.get("messageLog"))]
        logged = [call for message in messages for call in list_of(dict_or_empty(message.get("kwargs", message)).get("tool_calls"))]
        matching = [call for call in map(dict_or_empty, logged) if call.get("id") == call_id] or list(map(dict_or_empty, logged))
        may_be_lost = any(isinstance(decode_container(action[key]), dict) for key in list_unrecognised(action, _ACTION))
        arguments = matching[0].get("args") if matching else None if may_be_lost else arguments
    if arguments is None:
        unknowns.mark("tool_arguments", f"an intermediate step has no arguments of {tool!r}")
    known = None if arguments is None else read_known_arguments(arguments, f"a step of {tool!r}", unknowns)
    return ToolCall(name=tool, arguments=known, result=step.get("observation"), node=agent, id=call_id)


def _list_calls(runs: list[_NodeRun], unknowns: Unknowns) -> list[tuple[int, ToolCall]]:
    steps: dict[_Place, list[ToolCall]] = {}
    by_agent: dict[_Place, list[_NodeRun]] = {}
    for run in runs:
        if run.is_tool:
            by_agent.setdefault(run.source, []).append(run)
        elif not run.is_sub_node:
            steps[run.place] = read_steps(run.items, run.type, run.name, unknowns)
    paired: dict[int, ToolCall] = {}
    for agent, agent_calls in by_agent.items():
        found = _pair(agent_calls, steps.get(agent, []))
        if len(found) < len(steps.get(agent, [])):
            unknowns.mark("tool_calls", f"{agent[0]!r} lists more calls than there are runs of its tools")
        paired.update(found)
    calls = [(run.source[1], _read_call(run, paired.get(id(run)), unknowns)) for run in runs if run.is_tool]
    return calls + [(agent[1], step) for agent, listed in steps.items() if agent not in by_agent for step in listed]


def _pair(runs: list[_NodeRun], steps: list[ToolCall]) -> dict[int, ToolCall]:
    """Return the step of each run of the same agent: by name and arguments, else by name, else by position if the counts are equal."""
    made: list[ToolCall] = []
    for run in runs:
        names, passed = run.get_passed()
        made.append(ToolCall(name=run.name, arguments=None if passed is None else read_arguments(passed), aliases=tuple(names)))
    partner: dict[int, int] = {}
    # Parallel calls may run in another order.
    match_calls(made, steps, partner, lambda call: [] if call.arguments is None else list_call_keys(call))
    match_calls(made, steps, partner, list_names)
    if len(runs) == len(steps):
        alone = [place for place in range(len(runs)) if place not in partner]
        partner |= dict(zip(alone, sorted(set(range(len(steps))) - set(partner.values())), strict=True))
    return {id(runs[place]): steps[other] for place, other in partner.items()}


def _read_call(run: _NodeRun, step: ToolCall | None, unknowns: Unknowns) -> ToolCall:
    result = run.output
    # n8n wraps the result of a tool.
    if isinstance(result, dict) and set(result) == {"response"}:
        result = result["response"]
    names, arguments = run.get_passed()
    if step is not None:
        names, arguments = [step.name, *names], step.arguments if arguments is None else arguments
    if arguments is None:
        unknowns.mark("tool_arguments", f"the run of {run.name!r} does not record what was passed to it")
    error, kind = run.get_error("the run of the tool ended in an error"), PROTOCOL_ERROR
    if error is None:
        error, kind = find_result_error(result), CONTENT_ERROR
    return ToolCall(
        name=run.name,
        arguments=None if arguments is None else read_known_arguments(arguments, f"the run of {run.name!r}", unknowns),
        result=result,
        error=error,
        error_kind=None if error is None else kind,
        duration_ms=run.duration_ms,
        node=run.source[0],
        id=step.id if step is not None else None,
        aliases=tuple(dict.fromkeys(name for name in names if name not in ("", run.name))),
    )


def _build_nodes(runs: list[_NodeRun], calls: list[tuple[int, ToolCall]], unknowns: Unknowns) -> tuple[tuple[Node, ...], int | None]:
    """Return the nodes, and the HTTP status of the first Respond to Webhook node, which is 200 unless configured."""
    calls_of_run: dict[_Place, list[ToolCall]] = {}
    for agent_run, call in calls:
        calls_of_run.setdefault((call.node, agent_run), []).append(call)
    places = {run.place: run for run in runs}
    before: dict[str, list[Json]] = {}
    """The items of earlier nodes: an expression can only refer to those."""
    nodes: list[Node] = []
    codes: list[Json] = []
    for run in runs:
        source = places.get(run.source)
        current = [source.items] if source is not None and source.order < run.order and source.items else []
        if _is_respond_to_webhook(run.type):
            code = dict_or_empty(run.parameters.get("options")).get("responseCode", 200)
            codes.append(resolve_for_items(code, current, before).value)
        if not run.is_tool:
            resolved = resolve_for_items(run.parameters, current, before) if is_http_request(run.type) else None
            given = run.given if run.given or source is None else source.items
            nodes.append(
                Node(
                    name=run.name,
                    type=run.type,
                    status="success" if run.get_error("failed") is None else "error",
                    input=given[0] if len(given) == 1 else (given or None),
                    output=run.output,
                    parameters=with_method(resolved.value) if resolved else None,
                    more_parameters=tuple(map(with_method, resolved.more)) if resolved else (),
                    tool_calls=tuple(calls_of_run.get(run.place, ())),
                    duration_ms=run.duration_ms,
                    error=run.get_error(),
                    items=len(run.items),
                    usage=find_usage(run.output, unknowns),
                    notes=resolved.notes if resolved else (),
                )
            )
        if run.items:
            before[run.name] = run.items
    code = read_digits(codes[0], 3) if codes and isinstance(codes[0], str) else codes[0] if codes else None
    return tuple(nodes), code if type(code) is int and 100 <= code <= 599 else None


def _sum_usage(nodes: tuple[Node, ...], sub_nodes: frozenset[str], runs: list[_NodeRun], unknowns: Unknowns) -> Usage | None:
    """Return the tokens of the models and of AI nodes without a model; a node with models repeats their tokens."""
    models = [node.usage for node in nodes if node.name in sub_nodes]
    # An agent repeats the tokens of the models below it; it is left out only if those report any.
    served = {run.source[0] for run in runs if run.is_sub_node} if any(models) else set[str | None]()
    own_nodes = [node for node in nodes if node.name not in sub_nodes and node.name not in served]
    models_called = {run.name for run in runs if "ai_languageModel" in dict_or_empty(run.record.get("data"))}
    counted = [node.usage for node in nodes if node.name in models_called]
    counted += [node.usage for node in own_nodes if is_ai(node.type) and not is_trigger(node.type)]
    if any(counted) and not all(counted):
        unknowns.mark("usage", "one of the models reports no tokens, and others do")
    return add_usage((*models, sum_usage(own_nodes)))


def _is_respond_to_webhook(node_type: str | None) -> bool:
    return (node_type or "").endswith(".respondToWebhook")


def _read_request(runs: list[_NodeRun], document: dict[str, Any]) -> tuple[Json, dict[str, Json]]:
    started = next((run for run in runs if not run.source[0] and (run.items or is_trigger(run.type))), None)
    item = dict_or_empty(started.items[0]) if started is not None and started.items else {}
    body = item.get("body", item)
    message = find_first(dict_or_empty(body), *_INPUT_KEYS)
    headers = {key.lower(): value for key, value in dict_or_empty(item.get("headers")).items()}
    workflow = dict_or_empty(document.get("workflowData"))
    known = {
        "execution_id": document.get("id"),
        "workflow_id": document.get("workflowId") or workflow.get("id"),
        "workflow_name": workflow.get("name"),
        "status": document.get("status"),
        "mode": document.get("mode"),
        "request_id": headers.get("x-request-id"),
    }
    return (message if message is not None else body or None), {key: value for key, value in known.items() if value is not None}
