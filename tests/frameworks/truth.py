"""The facts of a recorded conversation, and how many of them the recording carries.

The facts come from the scripted model (its calls and answers) and from the tools (their arguments and results). What
the recording carries is found by searching it for those texts, with no knowledge of any convention; if a search cannot
decide, the combination's row does (`carries`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.frameworks.model import Script
from tests.frameworks.shop import BY_NAME, Scenario
from tests.frameworks.wires import ModelReply

Json = dict[str, Any]
# Token counts in JSON that is the value of an attribute.
TOKENS = re.compile(r'"(?:prompt|completion|input|output)(?:_tokens|Tokens)?":(\d+)(?![\d.])')


def happened(script: Script, tools: list[Json]) -> dict[str, Json]:
    """Calls with results, answer, input, tokens and turns, by scenario."""
    found: dict[str, Json] = {}
    for name, replies in script.replies.items():
        scenario = BY_NAME[name]
        left = [t for t in tools if t["scenario"] == name]
        calls = [finish(call, arguments, left) for one in replies for call, arguments in one.means.calls]
        texts = [one.means.text for one in replies if one.means.text]
        turns = split_turns(scenario, replies)
        found[name] = {
            "calls": calls,
            "input": scenario.turns[0].input,
            "text": texts[-1] if texts else "",
            "usage": [sum(one.input_tokens for one in replies), sum(one.output_tokens for one in replies)],
            "pairs": [(one.input_tokens, one.output_tokens) for one in replies],
            "turns": turns if len(turns) > 1 else None,
            "unused": left,
        }
    return found


def split_turns(scenario: Scenario, replies: list[ModelReply]) -> list[Json]:
    """Split a scenario into turns, each with its answer."""
    left = list(replies)
    turns: list[Json] = []
    for turn in scenario.turns:
        calls: list[str] = []
        while left:
            one = left.pop(0)
            calls += [name for name, _ in one.means.calls]
            if one.means.text:
                break
        turns.append({"input": turn.input, "text": turn.steps[-1].text, "calls": calls})
    return turns


def finish(name: str, arguments: Json, left: list[Json]) -> Json:
    """A requested call, with the log entry of the tool."""
    for noted in left:
        if name.endswith(noted["name"]) and noted["arguments"] == arguments:
            left.remove(noted)
            outcome = {"result": noted["result"]} if "result" in noted else {}
            return {"name": name, "arguments": arguments, **outcome, "failed": "error" in noted, "made": True}
    return {"name": name, "arguments": arguments, "made": False}


def problems(happened: dict[str, Json], script: Script) -> list[tuple[str, str]]:
    """Deviations of the agent from the script."""
    found = [(name, "the model was called more often than the script has steps") for name in script.too_many]
    for name, facts in happened.items():
        if script.unsent[name]:
            found.append((name, f"{len(script.unsent[name])} steps of the script were not requested"))
        found += [(name, f"{c['name']} was not called") for c in facts["calls"] if not c["made"]]
        found += [(name, f"{t['name']} was called without a request of the model: {t['arguments']}") for t in facts["unused"]]
    return found


def plain_value(value: Any) -> Any:
    """Convert an OTLP value to Python."""
    if not isinstance(value, dict) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [plain_value(v) for v in inner.get("values", [])]
    if kind == "kvlistValue":
        return {v["key"]: plain_value(v.get("value")) for v in inner.get("values", [])}
    return int(inner) if kind == "intValue" else inner


def read_attributes(attributes: list[Json] | None) -> Json:
    return {a["key"]: plain_value(a.get("value")) for a in attributes or []}


def spans_of(requests: list[Json]) -> list[Json]:
    """Every span with plain attributes and with its log records."""
    spans: list[Json] = []
    logs: list[Json] = []
    for request in requests:
        for resource in request.get("resourceSpans", []):
            for scope in resource.get("scopeSpans", []):
                for span in scope.get("spans", []):
                    events = [{"name": e.get("name"), **read_attributes(e.get("attributes"))} for e in span.get("events", [])]
                    times = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
                    spans.append(
                        {
                            **span,
                            "attributes": read_attributes(span.get("attributes")),
                            "events": events,
                            "ms": times / 1e6,
                            "scope": (scope.get("scope") or {}).get("name"),
                            "logs": [],
                        }
                    )
        for resource in request.get("resourceLogs", []):
            for scope in resource.get("scopeLogs", []):
                for entry in scope.get("logRecords", []):
                    logs.append(
                        {
                            "span": entry.get("spanId"),
                            "trace": entry.get("traceId"),
                            "body": plain_value(entry.get("body")),
                            "attributes": read_attributes(entry.get("attributes")),
                        }
                    )
    by_id = {span["spanId"]: span for span in spans}
    for entry in logs:
        if entry["span"] in by_id:
            by_id[entry["span"]]["logs"].append(entry)
    return spans


def flat(value: Any) -> str:
    """All text of a value in one form: no white space, no escapes, one kind of quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return re.sub(r"[\s\\]+", "", text).replace("'", '"')


def entry(requests: list[tuple[str, Json]], happened: dict[str, Json], row: Json) -> Json:
    """The truth of one recording, in the format that its users compare with."""
    traces: Json = {}
    plain: Json = {}
    for scenario, facts in happened.items():
        spans = spans_of([r for s, r in requests if s == scenario])
        ids = Counter(span["traceId"] for span in spans)
        if not ids:
            continue
        mine = [s["traceId"] for s in spans if s["scope"] == "shop" and not s.get("parentSpanId")] or [weightiest(spans, facts)]
        run = mine[0]
        # A separate trace about the run is a part of it that lost its parent; only the others are certainly no run.
        parts = {s["traceId"] for s in spans if describes_run(s, facts)}
        others, stray = sorted(set(ids) - {run} - parts), sorted(parts - {run})
        carried = carry(facts, [s for s in spans if s["traceId"] == run], row)
        (plain if scenario == "plain" else traces)[run] = {
            "scenario": scenario,
            "others": others,
            **({"stray": stray} if stray else {}),
            "run": True,
            **carried,
        }
    # If failures are not recorded, their absence proves nothing.
    if any("failed" not in c for t in traces.values() if t["scenario"] == "error" for c in t.get("calls", [])):
        for trace in traces.values():
            for call in trace.get("calls", []):
                call.pop("failed", None)
    # A run without calls proves nothing either if calls are hidden.
    if any(t.get("hidden") for t in traces.values() if t["scenario"] != "streamed"):
        plain = {key: {k: v for k, v in {**t, "hidden": True}.items() if k != "calls"} for key, t in plain.items()}
    return {"traces": traces, **({"plain": plain} if plain else {})}


def describes_run(span: Json, facts: Json) -> bool:
    """Whether a span is about the model, a tool, the question or the answer."""
    if any(re.search(r"usage|token|finish_reason|request\.model$", key) for key in span["attributes"]):
        return True
    if any(is_tool_span(span, name) for call in facts["calls"] for name in {call["name"], bare(call["name"])}):
        return True
    text = flat([span["attributes"], span["events"], span["logs"]])
    return flat(facts["input"]) in text or flat(facts["text"]) in text


def weightiest(spans: list[Json], facts: Json) -> str:
    """The trace of the run: the one with the most content about it, else the one with the most spans."""
    weight: Counter[str] = Counter()
    for span in spans:
        text = flat([span["attributes"], span["events"], span["logs"]])
        weight[span["traceId"]] += (
            1 + 100 * describes_run(span, facts) + 100 * (flat(facts["input"]) in text or flat(facts["text"]) in text)
        )
    return weight.most_common(1)[0][0]


def carry(facts: Json, spans: list[Json], row: Json) -> Json:
    """The facts in these spans."""
    carries = row.get("carries") or {}
    # Tool definitions name tools that were not called.
    shown = [{**s, "attributes": {k: v for k, v in s["attributes"].items() if not defines_tools(k)}} for s in spans]
    text = flat([[s["name"], s["attributes"], s["events"], s["logs"]] for s in shown])
    found: Json = {}
    calls = carried_calls(facts, shown, text, carries)
    if calls is not None:
        found["calls"] = calls
    elif carries.get("unsure") or any(flat(c["arguments"]) in text or loosely(c["arguments"], text) for c in facts["calls"]):
        # The instrumentation lost some calls or records them where readers need not look: neither carried nor hidden.
        found["partial"] = True
    else:
        found["hidden"] = True
    has_input = carries.get("input", flat(facts["input"]) in text)
    has_text = carries.get("text", has_answer(facts, text))
    if has_input:
        found["input"] = facts["input"]
    if has_text:
        found["text"] = facts["text"]
    if carries.get("usage", has_usage(facts["pairs"], spans)):
        found["usage"] = facts["usage"]
    if (
        facts["turns"]
        and calls is not None
        and carries.get(
            "turns", has_input and has_text and all(flat(t["text"]) in text and flat(t["input"]) in text for t in facts["turns"])
        )
    ):
        found["turns"] = facts["turns"]
    if row.get("agent_name") and names_agent(row["agent_name"], spans):
        found["agent"] = row["agent_name"]
    if carries.get("beside"):
        found["beside"] = carries["beside"]
    return found


def names_agent(name: str, spans: list[Json]) -> bool:
    """Whether a span or an attribute about agents or nodes has this name."""
    keys = re.compile(r"agent|node\.|node_id|functionId|^name$|entity\.name|role$|span\.name")
    names = [value for span in spans for key, value in span["attributes"].items() if keys.search(key)]
    return name in names or any(span["name"] in (name, f"{name}.agent", f"invoke_agent {name}") for span in spans)


def defines_tools(key: str) -> bool:
    return bool(
        re.search(
            r"tool[_.]?def|available_tools|llm\.tools|request\.functions|model_request_parameters|invocation_parameters|^tools$|request\.tools|agent\.tools|crew_tools",
            key,
        )
    )


def carried_calls(facts: Json, spans: list[Json], text: str, carries: Json) -> list[Json] | None:
    """The calls with their recorded parts, or None if the spans record no calls."""
    if carries.get("unsure"):
        return None
    if not facts["calls"]:
        # A run is known to have no calls only if the model's output is recorded.
        return [] if carries.get("text", has_answer(facts, text)) else None
    tools = [(s, name) for s in spans for name in {c["name"] for c in facts["calls"]} if is_tool_span(s, name)]
    arguments = carries.get("arguments", all(flat(c["arguments"]) in text or loosely(c["arguments"], text) for c in facts["calls"]))
    if not tools and not arguments:
        return None
    wanted = Counter(c["name"] for c in facts["calls"])
    timed = carries.get("timed", all(sum(1 for s, n in tools if n == name and s["ms"] >= 4) >= count for name, count in wanted.items()))
    errors = carries.get("failed", timed and has_failure(facts, tools))
    found: list[Json] = []
    for call in facts["calls"]:
        one: Json = {"name": call["name"]}
        if arguments:
            one["arguments"] = call["arguments"]
        if "result" in call and carries.get("results", carries.get(type(call["result"]).__name__, has_result(call["result"], text))):
            one["result"] = call["result"]
        if errors:
            one["failed"] = call.get("failed", False)
        if timed:
            one["timed"] = True
        found.append(one)
    return found


def loosely(arguments: Json, text: str) -> bool:
    """The arguments in another order or with other numbers: 10 may have become 10.0."""
    pairs = [rf'"{key}":{re.escape(flat(json.dumps(value)).removesuffix(".0"))}(\.0)?' for key, value in arguments.items()]
    return any(re.search(r"\{" + ",".join(order) + r"\}", text) for order in (pairs, pairs[::-1]))


def has_answer(facts: Json, text: str) -> bool:
    """Whether the answer is recorded, and not only as a tool result."""
    for call in facts["calls"]:
        for page in call["result"] if isinstance(call.get("result"), list) else []:
            text = text.replace(flat(json.dumps(page)).strip("{}"), "")
    return flat(facts["text"]) in text


def has_result(result: Any, text: str) -> bool:
    first = result[0] if isinstance(result, list) else result
    if isinstance(result, list):
        # MCP servers send the items of a list one by one, which is not the list.
        return f"[{flat(json.dumps(first))}" in text
    key, value = ("total", first["total"]) if "total" in first else next(iter(first.items()))
    # A number may have lost or gained its ".0".
    number = re.escape(f"{value:g}") + r"(\.0)?(?![\d.])" if isinstance(value, int | float) else re.escape(flat(json.dumps(value)))
    return bool(re.search(f'"{key}":{number}', text))


def bare(name: str) -> str:
    """A tool's name without its plugin or server."""
    return re.split("-|__", name)[-1]


def is_tool_span(span: Json, name: str) -> bool:
    if span["scope"] == "shop" or any(
        re.search(r"^llm\.(model_name|token_count|input_messages|output_messages)|request\.model$|messages\.\d", key)
        for key in span["attributes"]
    ):
        return False
    if re.search(rf"(^|[^a-z_]){name}([^a-z_]|$)", span["name"]):
        return True
    return any(value == name for key, value in span["attributes"].items() if re.search(r"^name$|tool[._]?name|entity\.name|function", key))


def has_failure(facts: Json, tools: list[tuple[Json, str]]) -> bool:
    """Whether the span of a failed call differs from that of a successful one. Without a failure nothing is missing."""
    bad = {c["name"] for c in facts["calls"] if c.get("failed")}
    return all(
        any((s.get("status") or {}).get("code") == 2 or any(e["name"] == "exception" for e in s["events"]) for s, n in tools if n == name)
        for name in bad
    )


def has_usage(pairs: list[tuple[int, int]], spans: list[Json]) -> bool:
    """Whether the tokens of every model call are in its own span: as attributes, or in the JSON of one."""
    left = Counter(pairs)
    for span in spans:
        plain = {v for k, v in span["attributes"].items() if isinstance(v, int | float) and re.search("token|usage", k)}
        nested = {int(n) for n in TOKENS.findall(flat(list(span["attributes"].values())))}
        for counts in (plain, nested):
            fitting = [pair for pair, count in left.items() if count > 0 and set(pair) <= counts]
            if fitting:
                left[max(fitting)] -= 1
                break
    return bool(pairs) and all(count <= 0 for count in left.values())


def message_entry(documents: Json, happened: dict[str, Json], about: Json) -> Json:
    """The truth of one kind of message list."""
    scenarios: Json = {}
    for name in documents:
        facts = happened[name]
        one: Json = {"calls": [{"name": c["name"], "arguments": c["arguments"]} for c in facts["calls"]], "text": facts["text"]}
        if about.get("errors", False):
            one["failed"] = any(c.get("failed") for c in facts["calls"])
        elif about.get("no_errors") and not any(c.get("failed") for c in facts["calls"]):
            one["failed"] = False
        counts = {int(n) for n in TOKENS.findall(flat(documents[name]))}
        if about.get("usage") and all(set(pair) <= counts for pair in facts["pairs"]):
            one["usage"] = facts["usage"]
        if facts["turns"] and about.get("turns", True):
            one["turns"] = facts["turns"]
        scenarios[name] = one
    # Separate, because the usual comparison expects tool calls.
    plain = {name: scenarios.pop(name) for name in ["plain"] if name in scenarios}
    return {
        "what": about.get("what", ""),
        "required": about.get("required", False),
        "scenarios": scenarios,
        **({"plain": plain} if plain else {}),
    }


def summary(entry: Json | None) -> str:
    """The contents of a recording, a line per scenario."""
    traces = [*((entry or {}).get("traces") or {}).values(), *((entry or {}).get("plain") or {}).values()]
    return "\n".join(f"  {trace['scenario']:<10} {sum_up(trace)}" for trace in traces)


def sum_up(trace: Json) -> str:
    parts = [k for k in ("input", "text", "usage", "turns", "agent", "beside") if k in trace]
    parts += [f"{k} {len(trace[k])}" for k in ("others", "stray") if trace.get(k)]
    calls_shown = [
        f"{c['name']}[{','.join(k[0] for k in ('arguments', 'result', 'failed', 'timed') if k in c)}]" for c in trace.get("calls", [])
    ]
    calls = "hidden" if trace.get("hidden") else "partial" if trace.get("partial") else " ".join(calls_shown) or "none"
    return f"{calls:<60} {' '.join(parts)}"
