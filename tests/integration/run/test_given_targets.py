"""`proctor run --target` and `proctor try`: an agent that no file describes, over a function, an address and a program."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

import proctor.pytest_plugin.items
import proctor.pytest_plugin.reporting
from proctor.cli.commands.try_ import list_not_recorded
from proctor.model.account import Account
from proctor.model.evidence import Evidence
from tests.integration.running import proctor

pytest_plugins = ["pytester"]

APP = """\
def answer(message):
    print("a word that agents print")
    call = {"name": "lookup_order", "arguments": {"id": 17}, "result": {"status": "sent"}}
    return {"text": "Order 17 is on its way.", "tool_calls": [call], "usage": {"input_tokens": 12, "output_tokens": 8}, "model": "m-1"}

def text(message):
    return "Order 17 is on its way."

def broken(message):
    raise RuntimeError("no model")
"""
SUITE = """\
# A remark that must stay.
proctor: 1
name: Orders

cases:
    - id: where   # another
      input: Where is order 17?
      expect:
        - response_contains: on its way
"""
MESSAGE = "Where is order 17?"


class _Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps({"answer": f"on its way: {request['input']}", "tool_calls": []}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "app_of_this_test.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("app_of_this_test", None)


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Agent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/chat"
    server.shutdown()
    server.server_close()
    thread.join()


# --- run ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["app_of_this_test:answer", "sh -c 'echo on its way'"])
def test_a_suite_of_the_folder_runs_against_a_target_without_a_file(place: Path, target: str) -> None:
    (place / "suite.yaml").write_text(SUITE)
    (place / "compose.yaml").write_text("services: {}\n")
    done = proctor("run", "--target", target, "--format", "json")
    assert done.code == 0, done
    assert json.loads(done.out)["counts"]["pass"] == 1 and "suites: suite.yaml" in done.err


def test_an_address_is_posted_to_and_its_answer_is_looked_up(place: Path, address: str) -> None:
    (place / "suite.yaml").write_text(SUITE + "        - http_status: 200\n        - no_tools_called\n")
    assert proctor("run", "suite.yaml", "--target", address).code == 0


def test_the_name_of_a_run_hides_secrets_of_an_address(place: Path, address: str) -> None:
    (place / "suite.yaml").write_text(SUITE)
    hidden = address.replace("127", "ada:sesame-open@127") + "?key=open-sesame"
    assert proctor("run", "suite.yaml", "--target", hidden, "--quiet").code in (0, 1)
    stored = "".join(path.read_text() for path in (place / ".proctor").rglob("*.json*"))
    assert address in stored and "sesame" not in stored


def test_a_described_name_wins_and_a_mistyped_one_starts_nothing(place: Path) -> None:
    (place / "suite.yaml").write_text(SUITE)
    (place / "proctor.yaml").write_text('targets: {shop: {type: callable, function: "app_of_this_test:text"}}\n')
    assert proctor("run", "suite.yaml", "--target", "shop").code == 0
    done = proctor("run", "suite.yaml", "--target", "shopp")
    assert done.code == 4 and "nearest: shop" in done.err and "a command in quotes" in done.err
    assert proctor("run", "suite.yaml", "--target", "true").code == 4


def test_a_missing_suite_is_reported_with_the_next_step(place: Path) -> None:
    done = proctor("run", "--target", "app_of_this_test:answer")
    assert done.code == 4 and "proctor init --target" in done.err and "proctor try" in done.err


def test_a_marked_suite_is_used_and_a_broken_one_is_an_error(place: Path) -> None:
    (place / "orders.yaml").write_text(SUITE)
    (place / "more.proctor.yaml").write_text(SUITE.replace("where", "there"))
    (place / "proctor.yaml").write_text("# proctor: 1\n")
    done = proctor("run", "--target", "app_of_this_test:text")
    assert done.code == 0 and "suites: more.proctor.yaml, orders.yaml" in done.err, done
    (place / "bad.yaml").write_text("proctor: 1\ncases: 17\n")
    assert proctor("run", "--target", "app_of_this_test:text").code == 4


def test_a_target_on_the_command_line_needs_and_gives_no_trust(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    foreign = tmp_path_factory.mktemp("foreign") / "suite.yaml"
    foreign.write_text(SUITE)
    assert proctor("run", foreign, "--target", "app_of_this_test:text").code == 0
    foreign.write_text(SUITE + 'targets: {"app_of_this_test:text": {type: command, command: [touch, mark]}}\n')
    done = proctor("run", foreign, "--target", "app_of_this_test:text")
    assert done.code == 4 and "starts" in done.err and "touch mark" in done.err
    assert not list(place.rglob("mark")) and not list(foreign.parent.rglob("mark"))


# --- try ---------------------------------------------------------------------------------------------------------------------


def test_a_message_shows_what_was_recorded(place: Path) -> None:
    done = proctor("try", MESSAGE, "--target", "app_of_this_test:answer")
    assert done.code == 0, done
    assert 'lookup_order {"id":17} → {"status":"sent"}' in done.out and "Order 17 is on its way." in done.out
    assert "12 in, 8 out" in done.out and "m-1" in done.out and " ms" in done.out
    assert "Not recorded" not in done.out and "a word that agents print" in done.err


def test_missing_recordings_are_reported_with_how_to_record_them(place: Path, address: str) -> None:
    done = proctor("try", MESSAGE, "--target", "app_of_this_test:text")
    assert "Not recorded" in done.out and "tool calls" in done.out and '"tool_calls": [{"name"' in done.out
    assert "capture: otel" in done.out and "docs/how-to/test-a-python-function.md" in done.out
    found = json.loads(proctor("try", MESSAGE, "--target", address, "--format", "json").out)
    assert found["evidence"]["http_status"] == 200 and found["evidence"]["text"] == f"on its way: {MESSAGE}"
    assert [one["part"] for one in found["not_recorded"]] == ["token usage", "the model"]
    assert found["account"]["parts"]["tool_calls"]["status"] == "none"


TRACED = """
from opentelemetry import trace

tracer = trace.get_tracer("openinference.instrumentation.test")


def traced(message):
    with tracer.start_as_current_span("lookup_order") as span:
        span.set_attribute("openinference.span.kind", "TOOL")
        span.set_attribute("tool.name", "lookup_order")
        span.set_attribute("input.value", '{"id": 17}')
    return "on its way"
"""


def test_spans_are_captured_without_any_file(pytester: pytest.Pytester, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (place / "traced_of_this_test.py").write_text(TRACED)
    given = ("--target", "traced_of_this_test:traced", "--capture", "otel")
    tried = proctor("try", MESSAGE, *given, "--save")
    assert tried.code == 0 and 'lookup_order {"id":17}' in tried.out, tried
    assert "next: proctor run suite.yaml --target traced_of_this_test:traced --capture otel" in tried.out
    (place / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: hi, expect: [{tool_called: lookup_order}]}]\n")
    assert proctor("run", "suite.yaml", *given, "--quiet").code == 0
    assert proctor("run", "suite.yaml", *given[:2], "--quiet").code == 1, "without it no call was recorded"
    (place / "live.proctor.yaml").write_text((place / "suite.yaml").read_text())
    words = ["--proctor-live", "--proctor-target", given[1], "--proctor-capture", "otel", str(place / "live.proctor.yaml")]
    done = pytester.runpytest_inprocess("-p", "proctor.pytest_plugin.plugin", "-p", "no:cacheprovider", "--rootdir", str(place), *words)
    done.assert_outcomes(passed=1)


@pytest.mark.parametrize("target", [(), ("--target", "shop"), ("--target", "http://127.0.0.1:9/"), ("--target", "python agent.py")])
def test_capture_refuses_targets_that_are_no_functions(place: Path, target: tuple[str, ...]) -> None:
    (place / "proctor.yaml").write_text('targets: {shop: {type: callable, function: "app_of_this_test:answer"}}\n')
    for command in (("try", MESSAGE), ("run", str(place / "suite.yaml"))):
        (place / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: hi, expect: [{tool_called: lookup_order}]}]\n")
        done = proctor(*command, *target, "--capture", "otel")
        assert done.code == 4 and "--capture is for a Python function" in done.err, done


def test_a_framework_value_gets_a_usable_hint() -> None:
    seen = Evidence(text="hi", tool_calls=(), account=Account("langchain messages"))
    (usage, model) = list_not_recorded(seen, "callable")
    for one in (usage, model):
        assert one.how == "the returned value (langchain messages) does not contain it; read the framework's spans with --capture otel"
    (_, model) = list_not_recorded(msgspec.structs.replace(seen, account=Account("langchain messages and otlp")), "callable")
    assert model.how is not None and "neither the returned value nor its spans contain it" in model.how
    (_, model) = list_not_recorded(Evidence(text="hi", tool_calls=()), "callable")
    assert model.how == 'return "model": "NAME" next to the text'
    (_, model) = list_not_recorded(msgspec.structs.replace(seen, account=Account("openai messages")), "http")
    assert model.how == 'respond with "model": "NAME" next to the text'


def test_a_failing_agent_is_reported_and_exits_with_1(place: Path) -> None:
    done = proctor("try", MESSAGE, "--target", "app_of_this_test:broken", "--save")
    assert done.code == 1 and "no model" in done.out and not (place / "suite.yaml").exists()
    found = json.loads(proctor("try", MESSAGE, "--target", "sh -c 'exit 3'", "--format", "json").out)
    assert found["code"] == "agent_failed" and "code 3" in found["error"]


def test_a_missing_target_is_taken_from_the_workspace_or_requested(place: Path) -> None:
    done = proctor("try", MESSAGE)
    assert done.code == 4 and "no target is described" in done.err
    (place / "proctor.yaml").write_text('targets: {shop: {type: callable, function: "app_of_this_test:answer"}}\n')
    assert proctor("try", MESSAGE).code == 0


def test_a_message_becomes_a_passing_case(place: Path) -> None:
    assert proctor("try", MESSAGE, "--target", "app_of_this_test:answer", "--save").code == 0
    written = (place / "suite.yaml").read_text()
    assert "$schema=.proctor/native-schema.json" in written and (place / ".proctor" / "native-schema.json").is_file()
    assert "tool_called: {name: lookup_order, arguments: {id: 17}}" in written and "review" in written
    assert proctor("run", "--target", "app_of_this_test:answer").code == 0
    assert proctor("run", "--target", "app_of_this_test:text").code == 1


@pytest.mark.parametrize(
    "printed",
    [
        '{"result": {"output": "Done."}}',
        '{"choices": [{"message": {"role": "assistant", "content": "Done."}}]}',
        '{"text": "Done.", "toolCalls": [], "toolResults": []}',
        '[{"role": "assistant", "content": "Done."}]',
    ],
)
def test_unrecorded_tools_get_no_claims(place: Path, printed: str) -> None:
    (place / "printed.json").write_text(printed)
    assert proctor("try", MESSAGE, "--target", "cat printed.json", "--save").code == 0
    written = (place / "suite.yaml").read_text()
    assert "no_tools_called" not in written and "nothing is claimed of them" in written and "response_not_empty" in written


def test_a_case_is_appended_and_nothing_else_changes(place: Path) -> None:
    for line_end in ("\n", "\r\n"):
        before = SUITE.replace("\n", line_end).rstrip()
        (place / "suite.yaml").write_bytes(before.encode())
        done = proctor("try", MESSAGE, "--target", "app_of_this_test:answer", "--save", "--format", "json")
        assert json.loads(done.out)["saved"] == {"file": "suite.yaml", "case": "where-is-order-17", "created": False}, done
        after = (place / "suite.yaml").read_bytes().decode()
        assert after.startswith(before) and "    - id: where-is-order-17" in after
        assert proctor("run", "suite.yaml", "--target", "app_of_this_test:answer").code == 0


@pytest.mark.parametrize(
    "written",
    [
        "proctor: 1\ncases: [{id: a, input: hi, expect: [response_not_empty]}]\n",
        SUITE + "context: {A: 1}\n",
        "proctor: 1\ncases:\n  a: {input: hi, expect: [response_not_empty]}\n",
    ],
    ids=["in one line", "something follows", "by id"],
)
def test_an_unextendable_suite_stays_unchanged_and_the_case_is_printed(place: Path, written: str) -> None:
    (place / "suite.yaml").write_text(written)
    done = proctor("try", MESSAGE, "--target", "app_of_this_test:answer", "--save")
    assert done.code == 4 and "id: where-is-order-17" in done.err and (place / "suite.yaml").read_text() == written


def test_a_suite_of_another_dialect_is_not_changed(place: Path) -> None:
    text = "test_cases: [{id: a, input_utterance: hi, assertions: {procedural: []}}]\n"
    (place / "suite.yaml").write_text(text)
    done = proctor("try", MESSAGE, "--target", "app_of_this_test:answer", "--save")
    assert done.code == 4 and (place / "suite.yaml").read_text() == text
