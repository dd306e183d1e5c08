"""What evaluating costs around taking traces in: a real `proctor serve` on SQLite, OTLP requests of 50 traces of 7 spans each.

The clock runs from the first request to the moment when every trace is durable and evaluated against 5 checks; against the same server
with evaluating switched off, from the first request to the last answer, which is sent when everything is durable. Arize Phoenix runs
for comparison if installed (in this environment, or where `PHOENIX_PYTHON` points): from the first request to the moment when its
database holds every trace. It keeps and evaluates what it does by default.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.measure import is_compiled
from benchmarks.report import Figure

REQUESTS = 200
"""Ten thousand traces: fewer are over before the second decision process, which starts under load, has done any work."""
TRACES = 50
SPANS = 7
AT_ONCE = 8
ROUNDS = 3
PHOENIX_REQUESTS = 6
PROTOBUF = {"content-type": "application/x-protobuf"}
SUITE = """\
proctor: 1
cases:
  - id: refund
    expect:
      - response_contains: Refund
      - http_status: 200
      - tool_called: lookup_order
      - responded_within: 60000
      - tokens_within: 100000
"""


def requests(count: int) -> list[bytes]:
    """OTLP requests in protobuf, every trace with ids of its own."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made: list[bytes] = []
    for _ in range(count):
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        _set(group.resource, {"service.name": "shop"})
        scope = group.scope_spans.add()
        for _ in range(TRACES):
            trace, root, now = os.urandom(16), os.urandom(8), time.time_ns()
            for number in range(SPANS):
                span = scope.spans.add()
                span.trace_id, span.span_id = trace, os.urandom(8) if number else root
                if number:
                    span.parent_span_id = root
                span.name = _NAMES[number]
                span.start_time_unix_nano, span.end_time_unix_nano = now + number * 1_000_000, now + 900_000_000
                _set(span, _ATTRIBUTES[number])
        made.append(request.SerializeToString())
    return made


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


_MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "some-model",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 80,
}
_TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup_order", "gen_ai.tool.call.arguments": '{"id": 17}',
    "gen_ai.tool.call.result": '{"total": 9}',
}  # fmt: skip
_QUESTION, _ANSWER = "I was charged twice for order 17, please help", "Refund processed for order 17. It takes three days to arrive."
_ROOT = {
    "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop", "http.response.status_code": 200,
    "gen_ai.input.messages": _message("user", _QUESTION), "gen_ai.output.messages": _message("assistant", _ANSWER),
}  # fmt: skip
_ATTRIBUTES: list[dict[str, object]] = [
    _ROOT,
    _MODEL,
    _TOOL,
    _MODEL,
    _TOOL,
    {},
    {**_MODEL, "gen_ai.output.messages": _message("assistant", _ANSWER)},
]
_NAMES = [
    "invoke_agent shop",
    "chat some-model",
    "execute_tool lookup_order",
    "chat some-model",
    "execute_tool lookup_order",
    "policy",
    "chat some-model",
]


def _set(holder: object, attributes: dict[str, object]) -> None:
    for key, value in attributes.items():
        pair = holder.attributes.add()  # type: ignore[attr-defined]
        pair.key = key
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value


def send(port: int, bodies: list[bytes]) -> None:
    """Post all of them, a few concurrently, and wait for every answer."""

    def post(mine: list[bytes]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for body in mine:
            connection.request("POST", "/v1/traces", body, PROTOBUF)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200 and not content, (answer.status, content)
        connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(post, [bodies[start::AT_ONCE] for start in range(AT_ONCE)]))


@contextlib.contextmanager
def proctor_serving(home: Path, *flags: str) -> Iterator[int]:
    """A real server with a project, an agent and a case of five checks; its port."""
    # In a file: an unread pipe would fill up with log lines.
    log = home / "log"
    words = ("serve", "--port", "0", "--home", str(home), "--quiet-period-s", "0", "--requests-per-minute", "0", *flags)
    with log.open("wb") as out, _process([sys.executable, "-m", "proctor", *words], out) as process:
        port = _wait(lambda: _port_in(log), process)
        project = _post(port, "/api/projects", {"name": "bench"})["id"]
        _post(port, "/api/agents", {"project_id": project, "name": "shop", "kind": "otlp", "service_name": "shop"})
        _post(port, "/api/cases", {"project_id": project, "document": SUITE})
        yield port


def _port_in(log: Path) -> int | None:
    line = next((line for line in log.read_text(errors="replace").splitlines() if "serves on http://" in line), None)
    return None if line is None else int(line.rpartition(":")[2])


@contextlib.contextmanager
def _process(command: list[str], out: object, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def _post(port: int, path: str, body: object) -> dict[str, str]:
    request = Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _wait(look: Callable[[], int | None], process: subprocess.Popen[bytes], seconds: float = 180) -> int:
    end = time.monotonic() + seconds
    while (found := look()) is None:
        assert process.poll() is None and time.monotonic() < end, "the server did not get there"
        time.sleep(0.02)
    return found


def _ours(bodies: list[bytes], *, evaluating: bool) -> float:
    """Traces a second."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with proctor_serving(home, "--evaluators", "1" if evaluating else "0") as port:
            send(port, bodies[:2])  # imports and compiles
            time.sleep(1.0)
            rest = bodies[2:]
            wanted = len(bodies) * TRACES
            started = time.monotonic()
            send(port, rest)
            if evaluating:
                _until(home / "proctor.db", "SELECT count(*) FROM results", wanted)
            rate = len(rest) * TRACES / (time.monotonic() - started)
            _until(home / "proctor.db", "SELECT count(*) FROM traces", wanted)
            return rate


def _until(database: Path, question: str, wanted: int, seconds: float = 300) -> None:
    """Wait until a question to a database has this answer, or more."""
    end = time.monotonic() + seconds
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        while True:
            with contextlib.suppress(sqlite3.OperationalError):
                if connection.execute(question).fetchone()[0] >= wanted:
                    return
            assert time.monotonic() < end, question
            time.sleep(0.02)


def _phoenix_python() -> str | None:
    named = os.environ.get("PHOENIX_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("phoenix") else None)


def _phoenix(python: str, bodies: list[bytes]) -> float:
    """Traces a second."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe, socket.socket() as grpc:
        for sock in (probe, grpc):
            sock.bind(("127.0.0.1", 0))
        port, other = probe.getsockname()[1], grpc.getsockname()[1]
        probe.close()
        grpc.close()
        environment = {
            **os.environ, "PHOENIX_WORKING_DIR": folder, "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(other),
            "PHOENIX_HOST": "127.0.0.1", "PHOENIX_TELEMETRY_ENABLED": "false",
        }  # fmt: skip
        with (
            (Path(folder) / "log").open("wb") as out,
            _process([python, "-m", "phoenix.server.main", "serve"], out, environment) as process,
        ):
            _wait(lambda: _answers(port), process)
            send(port, bodies[:1])
            database = Path(folder) / "phoenix.db"
            _until(database, "SELECT count(*) FROM spans", TRACES * SPANS)
            started = time.monotonic()
            send(port, bodies[1:])
            _until(database, "SELECT count(*) FROM spans", len(bodies) * TRACES * SPANS)
            return (len(bodies) - 1) * TRACES / (time.monotonic() - started)


def _answers(port: int) -> int | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return port
    except OSError:
        return None


def figures() -> Iterator[Figure]:
    """Traces a second with and without evaluating, turn by turn; the best of each."""
    best = {True: 0.0, False: 0.0}
    for _ in range(ROUNDS):
        for evaluating in (False, True):
            best[evaluating] = max(best[evaluating], _ours(requests(REQUESTS), evaluating=evaluating))
    note = f"{best[True]:.0f} against {best[False]:.0f} traces/s, durable, {SPANS} spans each"
    yield Figure("taking traces in: evaluated / only kept", best[True] / best[False], at_least=0.6 if is_compiled() else 0.5, note=note)
    python = _phoenix_python()
    if python is not None:
        theirs = max(_phoenix(python, requests(PHOENIX_REQUESTS)) for _ in range(2))
        note = f"{theirs:.1f} traces/s"
        yield Figure("taking traces in: proctor, evaluated / Arize Phoenix, kept", best[True] / theirs, at_least=20, note=note)


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
