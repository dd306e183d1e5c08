"""Viewers next to ours in one browser: bytes, requests and first paint of a list and of one record, with an empty cache.

Ours and Arize Phoenix show the same 30 OTLP traces; ours and Inspect view show 30 attempts, which a scripted model answered for Inspect.
Phoenix shows one trace in a panel over its list, which its address alone does not open: it has no figure here. Each page is loaded several
times: bytes and requests are those of the last load, and first paint is the least. Peers are measured where they are installed: in this
environment, or where `PHOENIX_PYTHON` and `INSPECT_PYTHON` point. It needs Chromium and the package playwright.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from tests.live.browser.served_page import Place, Visitor, opened_place

from benchmarks.measure import find_chromium
from benchmarks.pages import Load, load, serve
from benchmarks.report import Figure

TRACES = 30
_ROUNDS = 2
_INSPECT = f"""
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

@tool
def refund():
    async def execute(order: int) -> str:
        \"\"\"Refund an order.

        Args:
            order: The order.
        \"\"\"
        return f"order {{order}} was refunded"
    return execute

def reply(messages, tools, choice, config):
    number = int(messages[0].text.rpartition(" ")[2].rstrip("?"))
    text = f"Your order {{number}} was refunded." if number % 3 else "I do not know."
    is_asked = messages[-1].role == "user"
    call = ModelOutput.for_tool_call("mockllm/model", "refund", {{"order": number}})
    found = call if is_asked else ModelOutput.from_content("mockllm/model", text)
    # Without it, a tokenizer is downloaded.
    found.usage = ModelUsage(input_tokens=300, output_tokens=40, total_tokens=340)
    return found

samples = [Sample(input=f"Where is my money for order {{n}}?", target="refunded") for n in range({TRACES})]
task = Task(dataset=samples, solver=[use_tools(refund()), generate()], scorer=includes(), name="shop")
log = eval(task, model=get_model("mockllm/model", custom_outputs=reply), log_dir=sys.argv[1], display="none")[0]
assert log.status == "success", log.error
"""
Measured = dict[str, Load]
"""A load of each page, by its name."""


def make_trace(number: int, service: str, *, calls: int, answer: str, failing: tuple[int, ...] = (), customer: str = "c-1") -> Any:
    """Return OTLP as JSON: an agent that calls a model and a tool in turn, and answers; the tools at these positions fail."""
    trace_id, start, ms = f"{number + 1:032x}", time.time_ns() - (number + 1) * 60 * 10**9, 10**6
    spans: list[dict[str, Any]] = []

    def add(name: str, begin: int, took: int, attributes: dict[str, object], error: str = "") -> None:
        span = {"traceId": trace_id, "spanId": f"{len(spans) + 1:016x}", "name": name, "attributes": _list_attributes(attributes)}
        span |= {"startTimeUnixNano": str(start + begin * ms), "endTimeUnixNano": str(start + (begin + took) * ms)}
        spans.append(span | ({"parentSpanId": f"{1:016x}"} if spans else {}) | ({"status": {"code": 2, "message": error}} if error else {}))

    question = f"Where is my money for order {number}?"
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": service, "input.value": question, "output.value": answer}
    add(f"invoke_agent {service}", 0, calls * 100 + 100, root | {"user.id": customer, "session.id": f"session-{customer}"})
    for call in range(calls + 1):
        tool = ("lookup_order", "track_parcel", "refund")[call % 3]
        given = {"type": "tool_call", "id": f"call-{call}", "name": tool, "arguments": {"order": number}}
        part = given if call < calls else {"type": "text", "content": answer}
        output = json.dumps([{"role": "assistant", "parts": [part], "finish_reason": "tool_call" if call < calls else "stop"}])
        model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small", "gen_ai.output.messages": output}
        add("chat small", call * 100 + 10, 40, model | {"gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 40})
        if call < calls:
            used: dict[str, object] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": f"call-{call}",
            }
            used |= {"gen_ai.tool.call.arguments": json.dumps({"order": number}), "gen_ai.tool.call.result": '{"ok": true}'}
            add(f"execute_tool {tool}", call * 100 + 50, 40, used, "timeout after 30 s" if call in failing else "")
    resource = _list_attributes({"service.name": service, "openinference.project.name": service})
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": spans}]}]}


def _list_attributes(values: dict[str, object]) -> list[Any]:
    kinds = {int: "intValue", str: "stringValue"}
    return [{"key": name, "value": {kinds[type(value)]: str(value)}} for name, value in values.items()]


def make_traces() -> list[Any]:
    """Return the traces that every viewer gets."""
    return [
        make_trace(n, "shop", calls=1 + n % 4, answer=f"Your order {n} was refunded." if n % 3 else "I do not know.", customer=f"c-{n % 5}")
        for n in range(TRACES)
    ]


def wait_until(is_so: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


def _load_pages(browser: Any, pages: dict[str, tuple[str, str]], state: Any = None) -> Measured:
    """Load each page: an address and an element that shows it is complete."""
    found: Measured = {}
    for name, (address, ready) in pages.items():
        loads = [load(browser, address, ready, state) for _ in range(_ROUNDS)]
        found[name] = loads[-1]._replace(paint_s=min(one.paint_s for one in loads))
    return found


def measure_ours(browser: Any) -> Measured:
    """Show the traces, and a run of as many attempts, in our pages."""
    with tempfile.TemporaryDirectory() as folder, opened_place(Path(folder), None, "--quiet-period-s", "0.5") as place:
        trace = send_traces(place, make_traces())
        cases = [{"id": f"order-{n}", "input": f"order {n}", "expect": [{"response_contains": "order"}]} for n in range(TRACES)]
        run = place.start_run(cases)
        place.wait_for(run)
        attempt = place.ask("GET", f"/api/runs/{run}/results?limit=1")["data"][0]["id"]
        home = f"{place.server.url}/ui/p/{place.project}"
        with Visitor(browser, place) as visitor:
            visitor.log_in()
            state = visitor.context.storage_state()
        pages = {
            "list of traces": (f"{home}/traces", ".feed tbody tr"),
            "one trace": (f"{home}/traces/{trace}", "#spans .span"),
            "run": (f"{home}/runs/{run}", ".attempts-table tr[data-row]"),
            "one attempt": (f"{home}/runs/{run}/r/{attempt}", "#evidence"),
        }
        return _load_pages(browser, pages, state)


def send_traces(place: Place, traces: list[Any]) -> str:
    """Send traces of one agent, wait until they can be read, and return the id of the newest."""
    place.ask("POST", "/api/agents", {"project_id": place.project, "name": "shop", "kind": "otlp", "service_name": "shop"})
    for trace in traces:
        place.ask("POST", "/v1/traces", trace)
    address = f"/api/traces?project_id={place.project}&status=evaluated&limit=100"
    wait_until(lambda: len(place.ask("GET", address)["data"]) == min(100, len(traces)))
    return str(place.ask("GET", address)["data"][0]["id"])


def measure_phoenix(browser: Any, python: str) -> Measured:
    """Show the traces in Arize Phoenix."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with tempfile.TemporaryDirectory() as folder:
        port = _find_free_port()
        environment = {
            **os.environ, "PHOENIX_WORKING_DIR": folder, "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(_find_free_port()),
            "PHOENIX_HOST": "127.0.0.1", "PHOENIX_TELEMETRY_ENABLED": "false",
        }  # fmt: skip
        url = f"http://127.0.0.1:{port}/"
        with serve([python, "-m", "phoenix.server.main", "serve"], Path(folder), lambda log: answers(url), environment):
            for trace in make_traces():
                for span in trace["resourceSpans"][0]["scopeSpans"][0]["spans"]:
                    # JSON of protobuf has ids in base64, JSON of OTLP in hexadecimal digits.
                    span |= {name: base64.b64encode(bytes.fromhex(span[name])).decode() for name in _IDS if name in span}
                body = json_format.ParseDict(trace, ExportTraceServiceRequest()).SerializeToString()
                urlopen(Request(f"{url}v1/traces", body, {"content-type": "application/x-protobuf"}), timeout=60).close()
            with urlopen(f"{url}v1/projects", timeout=60) as answer:
                project = next(one["id"] for one in json.load(answer)["data"] if one["name"] == "shop")
            listed = f"{url}projects/{project}/traces?timeRangeKey=7d"
            row = f"a[href*='/projects/{project}/traces/']"
            return _load_pages(browser, {"list of traces": (listed, row)})


_IDS = ("traceId", "spanId", "parentSpanId")


def measure_inspect(browser: Any, python: str) -> Measured:
    """Show the attempts in Inspect view."""
    with tempfile.TemporaryDirectory() as folder:
        logs, environment = Path(folder) / "logs", {**os.environ, "INSPECT_DISABLE_UPDATE_CHECK": "1"}
        subprocess.run([python, "-c", _INSPECT, str(logs)], check=True, stdout=subprocess.DEVNULL, env=environment)
        port = _find_free_port()
        url = f"http://127.0.0.1:{port}/"
        command = [python, "-m", "inspect_ai", "view", "start", "--log-dir", str(logs), "--port", str(port), "--host", "127.0.0.1"]
        with serve(command, Path(folder), lambda log: answers(url), environment):
            row = "a[href*='/samples/sample/']"
            one = _find_address(browser, url, row)
            return _load_pages(browser, {"run": (url, row), "one attempt": (one, "text=/Where is my money/")})


def _find_address(browser: Any, listed: str, row: str) -> str:
    """Return the address of the first record of a list."""
    page = browser.new_page()
    page.goto(listed)
    page.wait_for_selector(row, state="attached", timeout=120_000)
    found = urljoin(listed, page.locator(row).first.get_attribute("href"))
    page.close()
    return found


def find_python(module: str, variable: str) -> str | None:
    """Return the interpreter that has a peer."""
    return os.environ.get(variable) or (sys.executable if importlib.util.find_spec(module) else None)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> str | None:
    """Return the address once something answers there."""
    try:
        with urlopen(url, timeout=5):
            return url
    except OSError:
        return None


def figures() -> Iterator[Figure]:
    """Load the pages of every viewer that is installed."""
    chromium = find_chromium()
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("  left out: no Chromium, or no package playwright")
        return
    from playwright.sync_api import sync_playwright  # only here: without it everything else is measured

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        ours = measure_ours(browser)
        yield from _show(f"proctor, Chromium {browser.version}", "ours", ours)
        for name, package, module, variable, measure in (
            ("Inspect view", "inspect-ai", "inspect_ai", "INSPECT_PYTHON", measure_inspect),
            ("Phoenix", "arize-phoenix", "phoenix", "PHOENIX_PYTHON", measure_phoenix),
        ):
            if (python := find_python(module, variable)) is None:
                continue
            ask = f"import importlib.metadata as m; print(m.version({package!r}))"
            version = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
            try:
                theirs = measure(browser, python)
            except AssertionError:
                print(f"  left out: {name} did not start in time")
                continue
            yield from _show(f"{package} {version}", name, theirs)
            for page, one in theirs.items():
                yield Figure(f"viewers: {page}: bytes of {name} / ours", one.all_bytes / ours[page].all_bytes, at_least=100)
        browser.close()


def _show(note: str, name: str, found: Measured) -> Iterator[Figure]:
    for page, one in found.items():
        about = f"{note}; {one.requests} requests, {one.elements:,} elements"
        yield Figure(f"viewers: {page}: {name}, KB on the wire", one.all_bytes / 1000, note=about)
        yield Figure(f"viewers: {page}: {name}, first contentful paint, s", one.paint_s)


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
