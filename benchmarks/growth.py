"""Cost grows with the work, no faster: twice the input against once, CPU.

Twice the work takes twice the time; the bound allows for smaller caches and a busy machine. What grows with the
square of its input takes four times as long.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proctor
from benchmarks.measure import interleaved
from benchmarks.report import Figure
from benchmarks.traces import SUITE, traces
from proctor.actions.workspace.run_history import list_runs
from proctor.evidence.reading import read_document
from proctor.report.builders.run import render_markdown
from proctor.report.data.json_text import render_json
from proctor.report.data.junit import render_junit
from proctor.report.html.report import render_html

BOUND = 2.3
ROUNDS = 5

Grow = Callable[[int], Callable[[], object]]
"""Prepares input of a size, and returns the work on it."""

_MCPJAM: dict[str, Any] = {
    "schemaVersion": "1",
    "mode": "agentWorkflow",
    "reportingMode": "standard",
    "suite": {"id": "s", "name": "s"},
    "target": {"servers": [{"name": "shop"}]},
    "defaults": {"model": "m", "repetitions": 1, "passThreshold": 1, "validity": {}},
}


def _read(document: object) -> Callable[[], object]:
    text = json.dumps(document)
    return lambda: proctor.parse_suite(text)


def _native_cases(size: int) -> Callable[[], object]:
    return _read({"proctor": 1, "cases": [{"id": f"case {n}", "input": "hi", "expect": [{"tool_called": f"t{n}"}]} for n in range(size)]})


def _native_cases_in_yaml(size: int) -> Callable[[], object]:
    text = "proctor: 1\ncases:\n" + "".join(f"  - id: case {n}\n    expect:\n      - tool_called: t{n}\n" for n in range(size))
    return lambda: proctor.parse_suite(text)


def _native_assertions(size: int) -> Callable[[], object]:
    return _read({"proctor": 1, "cases": [{"id": "one", "expect": [{"tool_called": f"t{n}"} for n in range(size)]}]})


def _dependencies(size: int) -> Callable[[], object]:
    claims = [{"tool_called": "a", "id": f"a{n}", "depends_on": [f"a{at}" for at in range(max(0, n - 20), n)]} for n in range(size)]
    return _read({"proctor": 1, "cases": [{"id": "one", "expect": claims}]})


def _mcplab_scenarios(size: int) -> Callable[[], object]:
    scenarios = [{"id": f"s{n}", "prompt": "hi", "eval": {"tool_constraints": {"required_tools": ["a"]}}} for n in range(size)]
    return _read({"servers": [], "agents": [], "scenarios": scenarios})


def _mibo_cases(size: int) -> Callable[[], object]:
    claim = {"target": "node_call", "condition": "MUST_CALL", "expected_name": "AI Agent"}
    cases = [{"name": f"case {n}", "input_utterance": "hi", "assertions": {"procedural": [claim]}} for n in range(size)]
    return _read({"test_cases": cases})


def _mcpjam_cases(size: int) -> Callable[[], object]:
    steps = [{"id": "s1", "kind": "prompt", "prompt": "hi"}]
    return _read(
        {
            **_MCPJAM,
            "cases": [{"id": f"c{n}", "title": f"c{n}", "steps": steps, "assertions": [{"type": "noToolErrors"}]} for n in range(size)],
        }
    )


def _calls(size: int) -> dict[str, Any]:
    return {"text": "done", "tool_calls": [{"name": f"t{n % 50}", "arguments": {"n": n}} for n in range(size)]}


def _plain_calls(size: int) -> Callable[[], object]:
    document = _calls(size)
    return lambda: read_document(document)


def _checked_calls(size: int) -> Callable[[], object]:
    claims = ["tool_called: {name: t49, arguments: {n: -1}}", "tool_not_called: nothing", "tools_in_order: [t1, t2, t3]", "no_tool_errors"]
    suite = proctor.parse_suite("proctor: 1\ncases:\n  - id: one\n    expect:\n" + "".join(f"      - {claim}\n" for claim in claims))
    evidence = proctor.read_evidence(_calls(size))
    return lambda: proctor.check(suite, evidence)


def _messages(size: int) -> Callable[[], object]:
    turns: list[Any] = []
    for n in range(size):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "search", "arguments": json.dumps({"q": n})}}
        turns += [
            {"role": "user", "content": f"question {n}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "found"},
            {"role": "assistant", "content": f"answer {n}"},
        ]
    document = {"messages": turns}
    return lambda: read_document(document)


def _spans(size: int) -> Callable[[], object]:
    def attributes(**named: str) -> list[dict[str, Any]]:
        return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in named.items()]

    def span(number: int, parent: str | None, name: str, **named: str) -> dict[str, Any]:
        times = {"startTimeUnixNano": str(10**18 + number * 10**6), "endTimeUnixNano": str(10**18 + number * 10**6 + 10**5)}
        above = {} if parent is None else {"parentSpanId": parent}
        return {"traceId": "a" * 32, "spanId": f"{number + 1:016x}", "name": name, **above, **times, "attributes": attributes(**named)}

    root = f"{1:016x}"
    made = [span(0, None, "invoke_agent shop", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="shop")]
    for n in range(1, size):
        kind = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": f"t{n % 50}", "gen_ai__tool__call__id": f"c{n}"}
        made.append(
            span(n, root, f"execute_tool t{n % 50}", **kind, gen_ai__tool__call__arguments='{"q": 1}', gen_ai__tool__call__result="ok")
        )
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "bench"}, "spans": made}]}]}
    return lambda: read_document(document)


def _records(size: int) -> Callable[[], object]:
    suite = proctor.parse_suite(SUITE)
    evidence = [proctor.read_evidence(trace) for trace in traces(size)]
    return lambda: proctor.check(suite, evidence)


def _report(render: Callable[[proctor.RunResult], object]) -> Grow:
    def grow(size: int) -> Callable[[], object]:
        cases = "".join(f"  - id: case {n}\n    expect:\n      - tool_called: t{n}\n" for n in range(size))
        suite = proctor.parse_suite("proctor: 1\ncases:\n" + cases)
        run = proctor.check(suite, [{"case": f"case {n}", "text": "x", "tool_calls": [{"name": "t0"}]} for n in range(size)])
        return lambda: render(run)

    return grow


def _stored_runs(home: Path) -> Grow:
    def grow(size: int) -> Callable[[], object]:
        here = home / str(size)
        for _ in range(size):
            proctor.run(proctor.parse_suite("proctor: 1\ncases: [{id: a, input: hi}]"), target=lambda message: message, home=here)
        return lambda: list(list_runs(here))

    return grow


def figures() -> Iterator[Figure]:
    """CPU of twice the input, as a ratio to once."""
    with tempfile.TemporaryDirectory() as folder:
        rows: tuple[tuple[str, int, Grow], ...] = (
            ("cases of a native suite, JSON", 2_000, _native_cases),
            ("cases of a native suite, YAML", 1_000, _native_cases_in_yaml),
            ("assertions of one case", 2_000, _native_assertions),
            ("assertions that depend on twenty others", 500, _dependencies),
            ("scenarios of an MCPLab suite", 1_000, _mcplab_scenarios),
            ("cases of a Mibo suite", 1_000, _mibo_cases),
            ("cases of an MCPJam suite", 250, _mcpjam_cases),
            ("tool calls of plain evidence, read", 2_000, _plain_calls),
            ("tool calls of plain evidence, checked", 4_000, _checked_calls),
            ("turns of a message list", 1_000, _messages),
            ("spans of a trace", 1_000, _spans),
            ("records checked", 4_000, _records),
            ("results as JSON", 2_000, _report(render_json)),
            ("results as JUnit", 2_000, _report(render_junit)),
            ("results as Markdown", 2_000, _report(render_markdown)),
            ("results as HTML", 1_000, _report(render_html)),
            ("stored runs listed", 40, _stored_runs(Path(folder))),
        )
        for name, size, grow in rows:
            best = interleaved({"once": grow(size), "twice": grow(2 * size)}, ROUNDS)
            note = f"{best['once'] * 1e3:.0f} ms for {size:,}"
            yield Figure(f"{name}: twice / once, CPU", best["twice"] / best["once"], at_most=BOUND, note=note)
