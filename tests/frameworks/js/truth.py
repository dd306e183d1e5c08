"""The facts of a recording, from the scripted model's replies and the tools' log, without those that the trace does not carry.

Nothing here reads a trace as proctor does. Whether a fact is carried is found by brute force: every value of every attribute, event and
log record of the trace is decoded as far as JSON goes, and searched for the fact. A row of combinations.json may name facts
that are carried in a form that brute force does not find (`carries`) or that only seem to be carried (`lacks`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.frameworks.js.server import Recording
from tests.frameworks.js.wires import Ask, Reply

Json = dict[str, Any]
_ABOUT_MODEL = re.compile(r"message|choice|definition|prompt|completion|tools?\.\d|functions?\.\d")
_FOUND_BY_SEARCH = re.compile(r'\\*"title\\*":\s*\\*"Returns\\*",\s*\\*"text\\*":\s*\\*"Returns are free within 30 days\.')
_TOKENS = re.compile(r"token|usage", re.IGNORECASE)


@dataclass
class Trace:
    """The spans and log records of one trace id, with every value decoded."""

    id: str
    scenario: str | None
    spans: list[Json] = field(default_factory=list[Json])
    records: list[Json] = field(default_factory=list[Json])

    def __post_init__(self) -> None:
        self._opened: list[tuple[str, Any]] | None = None

    @property
    def start(self) -> int:
        return min(int(span["startTimeUnixNano"]) for span in self.spans)

    def values(self) -> list[tuple[str, Any]]:
        """Return every value in the trace with its key."""
        if self._opened is None:
            self._opened = [pair for one in [*self.spans, *self.records] for pair in _open_all(one)]
        return self._opened

    def holds_text(self, text: str) -> bool:
        """Whether the trace holds a text, other than in the result of search_docs, which equals one of the answers."""
        strings = (_FOUND_BY_SEARCH.sub("", value) for _, value in self.values() if isinstance(value, str))
        return any(text in value for value in strings)

    def holds_value(self, wanted: Any) -> bool:
        tight = _tighten(json.dumps(wanted))
        return any(value == wanted or (isinstance(value, str) and tight in _tighten(value)) for _, value in self.values())

    def names_agent(self, agent: str) -> bool:
        """Whether a span has the agent's name in its own name or as a plain attribute."""
        names = [one["value"].get("stringValue") for span in self.spans for one in span.get("attributes", [])]
        return agent in names or any(agent in span["name"] for span in self.spans)

    def counts(self) -> set[float]:
        """Return the numbers under keys about tokens."""
        found = set[float]()
        for key, value in self.values():
            if _TOKENS.search(key) and not isinstance(value, bool):
                try:
                    found.add(float(value))
                except (TypeError, ValueError):
                    continue
        return found

    def tool_spans(self, tool: str) -> list[Json]:
        """Return the spans of a tool's own runs: named after it or with its name as a plain attribute."""
        found: list[Json] = []
        for span in self.spans:
            plain = [one for one in span.get("attributes", []) if not _ABOUT_MODEL.search(one["key"])]
            if any(one["value"].get("stringValue") == tool for one in plain) or re.search(rf"(^|[^\w]){tool}($|[^\w])", span["name"]):
                found.append(span)
        return found


def _tighten(text: str) -> str:
    return re.sub(r"[\s\\]", "", text).replace(".0,", ",").replace(".0}", "}")


def _open_all(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a value and everything inside it, JSON strings decoded."""
    if isinstance(value, dict):
        name = value.get("key") if isinstance(value.get("key"), str) else None
        yield key, value
        for inner, one in value.items():
            if inner == "text" and value.get("title") == "Returns":
                continue
            yield from _open_all(one, name if name and inner == "value" else f"{key}.{inner}" if key else inner)
    elif isinstance(value, list):
        yield key, value
        for one in value:
            yield from _open_all(one, key)
    else:
        yield key, value
        if isinstance(value, str) and value[:1] in '[{"':
            try:
                yield from _open_all(json.loads(value), key)
            except ValueError:
                return


def collect_traces(recording: Recording) -> dict[str, Trace]:
    """Gather spans and log records by trace id; a trace belongs to the scenario in which it was first seen."""
    traces: dict[str, Trace] = {}
    for scenario, document in recording.requests:
        for resource in document.get("resourceSpans", []):
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    traces.setdefault(span["traceId"], Trace(span["traceId"], scenario)).spans.append(span)
    for _, document in recording.requests:
        for resource in document.get("resourceLogs", []):
            for scope in resource["scopeLogs"]:
                for record in scope["logRecords"]:
                    if record.get("traceId") in traces:
                        traces[record["traceId"]].records.append(record)
    return traces


def describe_traces(row: Json, recording: Recording) -> tuple[Json, list[str]]:
    """Return the truth by trace id, and remarks about deviations."""
    found = list(collect_traces(recording).values())
    remarks: list[str] = []
    truths: Json = {}
    # A tool span without an error status means success only if a failure would have been recorded.
    failing = [span for trace in found if trace.scenario == "error" for span in trace.tool_spans("refund")]
    row = row | {"fails_in_spans": any((span.get("status") or {}).get("code") == 2 for span in failing)}
    for scenario, turns in recording.scenarios.items():
        if scenario not in recording.ledger:
            remarks.append(f"{scenario}: was not driven")
            continue
        mine = sorted((trace for trace in found if trace.scenario == scenario), key=lambda trace: trace.start)
        runs = [trace for trace in mine if _is_run(trace, row)]
        others = [trace.id for trace in mine if trace not in runs]
        replies = recording.replies.get(scenario, [])
        if not (scenario == "error" and row.get("ends_at_error")):
            remarks += check_script(scenario, turns, replies, recording.ledger[scenario])
        if len(runs) == 1:
            truths[runs[0].id] = describe_run(row, scenario, runs[0], turns, replies, recording.ledger[scenario]) | {"others": others}
        elif len(runs) == len(turns):
            for turn, trace in enumerate(runs):
                part = [reply for reply in replies if reply.turn == turn]
                truths[trace.id] = describe_run(row, f"{scenario}-{turn + 1}", trace, turns, part, recording.ledger[scenario])
            truths[runs[0].id]["others"] = others
        else:
            remarks.append(f"{scenario}: {len(runs)} traces look like a run: {[[span['name'] for span in trace.spans] for trace in runs]}")
    if any(truth.get("hidden") for truth in truths.values()):
        # If calls would be hidden, a run without calls proves nothing; with its text recorded that may be
        # argued, so the truth has neither.
        for truth in truths.values():
            if truth.get("calls") == []:
                del truth["calls"]
                truth |= {} if "text" in truth else {"hidden": True}
    strays = [trace for trace in found if trace.scenario is None]
    remarks += [f"a trace outside of all scenarios: {[span['name'] for span in trace.spans]}" for trace in strays]
    return truths, remarks


def _is_run(trace: Trace, row: Json) -> bool:
    """Whether a trace is a run of the agent: it has token counts or content, or a span that the row names."""
    marker = row.get("run_span")
    if marker:
        return any(re.search(marker, span["name"]) for span in trace.spans)
    return bool(trace.counts()) or any("gen_ai." in key or "llm." in key for key, _ in trace.values()) or len(trace.spans) > 3


def check_script(scenario: str, turns: list[Json], replies: list[Reply], ledger: list[Json]) -> list[str]:
    """Report deviations from the script: steps requested twice or never, tools not run."""
    positions = [(reply.turn, reply.step) for reply in replies]
    wanted = [(turn, step) for turn, script in enumerate(turns) for step in range(len(script["steps"]) + 1)]
    remarks = [] if positions == wanted else [f"{scenario}: the model was called at {positions}, the script has {wanted}"]
    requested = [(call.name, call.arguments) for reply in replies for call in reply.calls]
    ran = [(one["name"], one["arguments"]) for one in ledger]
    if len(requested) != len(ran) or any(one not in ran for one in requested):
        remarks.append(f"{scenario}: the model requested {requested}, tools ran {ran}")
    return remarks


def describe_run(row: Json, scenario: str, trace: Trace, turns: list[Json], replies: list[Reply], ledger: list[Json]) -> Json:
    """Return the facts of one run that its trace carries."""
    lacks, carries = set(row.get("lacks", [])), set(row.get("carries", []))
    carries |= set(row.get("carries_in", {}).get(scenario, []))
    lacks |= set(row.get("lacks_in", {}).get(scenario, []))

    def has(part: str, found: bool) -> bool:
        return part not in lacks and (found or part in carries)

    truth: Json = {"scenario": scenario, "others": [], "run": True}
    requested = [call for reply in replies for call in reply.calls]
    seen = all(trace.holds_value(call.arguments) or trace.tool_spans(call.name) for call in requested)
    if not has("names", seen):
        truth["hidden"] = True
    else:
        truth["calls"] = [describe_call(call, trace, ledger, has, row) for call in requested]
        together = any(len(reply.calls) > 1 for reply in replies)
        if together and "names" not in carries and not all("arguments" in call for call in truth["calls"]):
            # Calls requested at once and seen only as spans: the order in which the model named them is unknown.
            truth["unordered"] = True
    inputs, texts = list_texts(turns, replies)
    if inputs and has("input", trace.holds_text(inputs[0])):
        truth["input"] = inputs[0]
    if texts and has("text", trace.holds_text(texts[-1])):
        truth["text"] = texts[-1]
    wanted = {float(count) for reply in replies for count in (reply.input_tokens, reply.output_tokens)}
    totals = [sum(reply.input_tokens for reply in replies), sum(reply.output_tokens for reply in replies)]
    if has("usage", wanted <= trace.counts() or set(totals) <= trace.counts()):
        truth["usage"] = totals
    if len(texts) > 1 and "calls" in truth and has("turns", all(trace.holds_text(word) for word in inputs + texts)):
        by_turn = [[call.name for reply in replies if reply.turn == turn for call in reply.calls] for turn in range(len(texts))]
        truth["turns"] = [{"input": i, "text": t, "calls": c} for i, t, c in zip(inputs, texts, by_turn, strict=True)]
    if row.get("agent") and has("agent", trace.names_agent(row["agent"])):
        truth["agent"] = row["agent"]
    if row.get("beside"):
        truth["beside"] = row["beside"]
    return truth


def list_texts(turns: list[Json], replies: list[Reply]) -> tuple[list[str], list[str]]:
    """Return the inputs and answers of the turns that these replies belong to."""
    mine = sorted({reply.turn for reply in replies})
    return [turns[turn]["input"] for turn in mine], [turns[turn]["text"] for turn in mine]


def describe_call(call: Ask, trace: Trace, ledger: list[Json], has: Any, row: Json) -> Json:
    """Return one call with the parts that the trace carries."""
    noted = next(one for one in ledger if one["name"] == call.name and one["arguments"] == call.arguments)
    recorded: Json = {"name": call.name}
    if has("arguments", trace.holds_value(call.arguments)):
        recorded["arguments"] = call.arguments
    if "result" in noted and has("results", trace.holds_value(noted["result"])):
        recorded["result"] = noted["result"]
    own = trace.tool_spans(call.name)
    if has("errors", bool(own) and row["fails_in_spans"]):
        recorded["failed"] = "error" in noted
    # Other spans may name a tool in passing and end at once; each call needs a span with a duration.
    lasting = [span for span in own if int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) > 1_000_000]
    if has("timed", len(lasting) >= sum(one["name"] == call.name for one in ledger)):
        recorded["timed"] = True
    return recorded


def describe_messages(promise: Json, documents: Json, recording: Recording) -> Json:
    """Return the truth of message lists by scenario, from the script that the model followed."""
    scenarios: Json = {}
    for scenario in documents:
        turns = recording.scenarios[scenario]
        ledger = recording.ledger[scenario]
        calls = [[{"name": name, "arguments": arguments} for step in turn["steps"] for name, arguments in step] for turn in turns]
        truth: Json = {"calls": [call for turn in calls for call in turn], "text": turns[-1]["text"]}
        if promise.get("failed", True):
            truth["failed"] = any("error" in one for one in ledger)
        if promise.get("usage"):
            steps = [step for turn in turns for step in range(len(turn["steps"]) + 1)]
            truth["usage"] = [sum(100 + 10 * step for step in steps), sum(10 + step for step in steps)]
        if len(turns) > 1 and promise.get("turns", True):
            truth["turns"] = [
                {"input": t["input"], "text": t["text"], "calls": [c["name"] for c in mine]} for t, mine in zip(turns, calls, strict=True)
            ]
        scenarios[scenario] = truth
    return {"what": promise["what"], "required": promise.get("required", True), "scenarios": scenarios}
