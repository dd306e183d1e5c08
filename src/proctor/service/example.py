"""Example data for an empty project: an agent, a case, a dozen traces, and a run of the case on them."""

from __future__ import annotations

import secrets
from typing import TypedDict

from proctor.evidence.otlp.groups import receive_json
from proctor.model.evidence import Json
from proctor.service.access.agents import NewAgent, create_agent
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.resource import operation
from proctor.service.runs.requests import start_backtest
from proctor.service.runs.run import NewBacktest
from proctor.service.traces.cases import NewCase, create_case
from proctor.service.traces.intake import read_spans
from proctor.store.sql.compressed_json import to_json
from proctor.store.traces.traces import keep_arrivals

_CASE = """\
proctor: 1
name: Refunds
cases:
  - id: refund-done
    name: A refund is made and confirmed
    expect:
      - tool_called: refund
      - response_contains: refunded
"""
_ORDERS = 12
_BAD = (4, 7, 11)
"""Orders whose customers get no refund."""


class LoadedExample(TypedDict):
    """What was created."""

    agent_id: str
    case_id: str
    run_id: str
    traces: int


@operation("projects", "POST /api/projects/{project_id}/example", status=201, name="load_example", doing="loading example data")
async def load_example(hub: Hub, caller: Caller, project_id: str) -> LoadedExample:
    """Fill a project with example data: an agent, a case, traces, and a run of the case on them; requires an organization key."""
    mark = secrets.token_hex(3)
    agent = await create_agent(
        hub, caller, NewAgent(project_id=project_id, name="Example agent", kind="otlp", service_name=f"example-{mark}")
    )
    spec = NewCase(project_id=project_id, agent_id=agent["id"], name="Refunds", document=_CASE)
    case = await create_case(hub, caller, spec)
    begin = int(hub.clock() * 1_000_000_000)
    spans = [span for order in range(1, _ORDERS + 1) for span in _make_spans(order, begin - (_ORDERS - order) * 60_000_000_000)]
    resource: Json = {"attributes": [_name("service.name", agent["service_name"] or "")]}
    received = receive_json({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})
    arrivals = (await read_spans(hub, caller, received, flush=True)).arrivals
    async with hub.database.writing() as connection:
        await keep_arrivals(connection, arrivals, hub.now())
    run = await start_backtest(hub, caller, case["id"], NewBacktest(name="Refunds on stored traces"))
    return {"agent_id": agent["id"], "case_id": case["id"], "run_id": run["id"], "traces": len(arrivals)}


def _make_spans(order: int, end: int) -> list[Json]:
    """Return the spans of one conversation: the agent, a model, and unless it goes wrong the refund and the model again."""
    is_bad, trace = order in _BAD, secrets.token_hex(16)
    root, ms = secrets.token_hex(8), 1_000_000
    answer = f"I am sorry, I cannot find order {order}." if is_bad else f"The second payment of order {order} was refunded."

    def span(name: str, kind: str, begin_ms: int, end_ms: int, attributes: list[Json], id: str, parent: str = "") -> Json:
        times: dict[str, Json] = {"startTimeUnixNano": str(end - begin_ms * ms), "endTimeUnixNano": str(end - end_ms * ms)}
        ids: dict[str, Json] = {"traceId": trace, "spanId": id, "parentSpanId": parent}
        return {**ids, **times, "name": name, "attributes": [_name("gen_ai.operation.name", kind), *attributes]}

    question = f"I was charged twice for order {order}. Please give me my money back."
    agent = [_name("gen_ai.agent.name", "Example agent"), _name("input.value", question), _name("output.value", answer)]
    usage = [
        _name("gen_ai.request.model", "small"),
        _name("gen_ai.usage.input_tokens", 300 + order),
        _name("gen_ai.usage.output_tokens", 40),
    ]

    def chat(begin_ms: int, end_ms: int, finish: str, part: Json) -> Json:
        output = to_json([{"role": "assistant", "parts": [part], "finish_reason": finish}]).decode()
        return span("chat small", "chat", begin_ms, end_ms, [*usage, _name("gen_ai.output.messages", output)], secrets.token_hex(8), root)

    whole = span("invoke_agent", "invoke_agent", 900 + 130 * order, 0, agent, root)
    text: Json = {"type": "text", "content": answer}
    if is_bad:
        return [whole, chat(800, 500, "stop", text)]
    requested: Json = {"type": "tool_call", "id": "call-1", "name": "refund", "arguments": {"order": order}}
    call = [_name("gen_ai.tool.name", "refund"), _name("gen_ai.tool.call.id", "call-1")]
    call += [_name("gen_ai.tool.call.arguments", f'{{"order": {order}}}'), _name("gen_ai.tool.call.result", '{"status": "refunded"}')]
    refund = span("execute_tool refund", "execute_tool", 450, 330, call, secrets.token_hex(8), root)
    return [whole, chat(800, 500, "tool_call", requested), refund, chat(300, 80, "stop", text)]


def _name(key: str, value: str | int) -> Json:
    return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
