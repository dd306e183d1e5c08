"""What `proctor init` finds in a folder and writes there, and that the result runs."""

from __future__ import annotations

import ast
import io
import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from proctor.actions.help.init import find_starter, init
from proctor.actions.start.candidates import KINDS, find_candidates
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.python_code import read_python_code
from proctor.actions.start.starters import write_adapter
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from tests.integration.running import proctor
from tests.tables import rows


class _Agent(BaseHTTPRequestHandler):
    """Answers anything, in the words of every platform."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": "hello"}
        body: Any = {"answer": "hello"}
        if self.path.endswith("/chat/completions"):
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"], "usage": usage}
            body["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Agent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the import path; its modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{'/usr/bin:/bin'}")
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or str(getattr(sys.modules[name], "__path__", ""))):
            del sys.modules[name]


@pytest.mark.in_turn
@pytest.mark.timeout(60)  # importing a framework takes seconds on a busy machine
@rows("actions/cases/init.yaml")
def test_the_content_of_a_folder_becomes_a_runnable_suite(
    row: dict[str, Any], place: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in row["files"].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    before = {path: path.read_text() for path in place.rglob("*") if path.is_file()}
    done = proctor("init", *(["--for", row["for"]] if "for" in row else []))
    if "fails" in row:
        assert done.code == 4 and row["fails"] in done.err, done
        assert {path: path.read_text() for path in place.rglob("*") if path.is_file()} == before
        return
    assert done.code == 0, done
    assert all(text in done.out for text in row.get("prints", ())), done.out
    assert f"found {row['finds']}\n" in done.out if "finds" in row else True, done.out
    assert {path: path.read_text() for path in before} == before
    if "writes" in row:
        assert [str(path.relative_to(place)) for path in written(done.out, place)] == row["writes"]
    if "target" in row:
        found = yaml.safe_load((place / "proctor.yaml").read_text())
        assert (found["targets"]["agent"], found["default_target"]) == (row["target"], "agent")
        assert not any("not_to_be_copied" in path.read_text() for path in written(done.out, place))
    for line in row.get("adapter", ()):
        assert line in (place / "proctor_agent.py").read_text().splitlines()
    if "runs" in row:
        if "serve" in row:
            workspace = (place / "proctor.yaml").read_text()
            (place / "proctor.yaml").write_text(workspace.replace(row["serve"], address))
        for name, value in row.get("env", {}).items():
            monkeypatch.setenv(name, value)
        ran = proctor(*shlex.split(done.out.rpartition("next: proctor ")[2]), "--format", "json")
        result = json.loads(ran.out)
        assert result["outcome"] == row["runs"], ran
        assert row.get("reports", "") in ran.out
        if "calls" in row:
            seen = result["cases"][0]["exchange"]["tool_calls"]
            assert [{key: call[key] for key in ("name", "arguments")} for call in seen] == row["calls"]


def written(out: str, place: Path) -> list[Path]:
    return [place / line.removeprefix("wrote ") for line in out.splitlines() if line.startswith("wrote ")]


def test_an_unchanged_example_is_replaced_by_the_agent(place: Path) -> None:
    (place / "main.py").write_text("def run(message):\n    return 'hello'\n")
    assert proctor("init").code == 0
    assert proctor("init", "--target", "main:run").code == 0
    ran = proctor("run", "suite.yaml", "--quiet")
    assert ran.code == 0 and "PASS  first" in ran.out, ran


def test_a_broken_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "suite.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(InputError, match="cannot write to"):
        init(tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["suite.yaml"]
    assert not (tmp_path / "elsewhere.yaml").exists()


@pytest.mark.parametrize("name", ["proctor.yaml", "suite.yaml"])
def test_a_changed_example_stays(place: Path, name: str) -> None:
    assert proctor("init").code == 0
    (place / name).write_text((place / name).read_text() + "# mine\n")
    before = (place / name).read_text()
    done = proctor("init", "--target", "main:run")
    assert (place / name).read_text() == before
    assert done.code == (4 if name == "proctor.yaml" else 0), done


@rows("actions/cases/agents_in_code.yaml")
def test_an_agent_is_found_by_reading_the_code(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(row["code"] + "raise SystemExit('nobody may import this')\n")
    agents = read_python_code(tmp_path).agents
    if row["found"] is None:
        assert not agents
        remarks = [remark for candidate in find_candidates(tmp_path) for remark in candidate.remarks]
        assert [row["mentioned"] in remark for remark in remarks] == [True] if "mentioned" in row else not remarks
        return
    agent = agents[0]
    assert [agent.framework, agent.name, agent.line] == row["found"]
    assert find_candidates(tmp_path)[0].agent == agent
    text = write_adapter(FRAMEWORKS[agent.framework], agent)
    lines = [line for line in text.splitlines()[1:] if line]
    assert ast.parse(text) and len(lines) <= 14
    assert lines == row.get("lines", lines)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "openapi"])
def test_every_kind_has_a_valid_template(kind: str, tmp_path: Path) -> None:
    starter = find_starter(kind)
    assert "suite.yaml" in starter.files
    assert read_suite(starter.files["suite.yaml"], name="suite").cases
    for name, text in starter.files.items():
        if name.endswith(".py"):
            assert ast.parse(text) and "TEMPLATE" in text.splitlines()[0]
            assert max(map(len, text.splitlines())) <= 140
    paths = init(tmp_path / "here", kind)
    assert paths and all(path.is_file() for path in paths)


def test_the_schema_of_a_suite_is_where_its_first_line_points_and_accepts_it(place: Path) -> None:
    proctor("init", "--for", "function")
    text = (place / "suite.yaml").read_text()
    first = text.splitlines()[0]
    schema = json.loads((place / first.partition("$schema=")[2]).read_text())
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_tools_found_in_the_code_are_offered_as_claims(place: Path) -> None:
    described = '{"name": "lookup_order", "parameters": {}}, {"name": "a\\nb", "input_schema": {}}, {"name": "no tool"}'
    (place / "app.py").write_text(f"TOOLS = [{described}]\ndef answer(message): return 'hello'\n")
    assert proctor("init").code == 0
    text = (place / "suite.yaml").read_text()
    assert "# - tool_called: lookup_order\n" in text and "no tool" not in text and text.count("tool_called") == 1


def test_a_target_on_the_command_line_is_written_down(place: Path, address: str) -> None:
    done = proctor("init", "--target", f"http://{address}/chat")
    assert done.code == 0 and proctor("run").code == 0, done
    assert proctor("init", "there", "--target", "shop").code == 4
    assert proctor("init", "there", "--target", "app:answer", "--for", "http").code == 4


@pytest.mark.timeout(60)  # importing the MCP client takes seconds on a busy machine
def test_servers_of_an_mcp_configuration_are_started_and_their_tools_offered(
    place: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Path(__file__).parents[2] / "targets" / "bare_server.py"
    config = {"mcpServers": {"shop": {"command": sys.executable, "args": [str(server)]}}}
    (place / "claude_desktop_config.json").write_text(json.dumps(config))
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{address}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    assert proctor("init").code == 0
    done = proctor("run", "--format", "json")
    assert done.code == 0, done


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "kind"), [("\n", "pydantic-ai"), ("9\n2\n", "function"), ("3\n", "recorded")])
def test_a_terminal_user_is_prompted(place: Path, monkeypatch: pytest.MonkeyPatch, typed: str, kind: str) -> None:
    from proctor.cli.main import run

    code = "from pydantic_ai import Agent\nagent = Agent('x')\ndef answer(message): return 'hello'\n"
    (place / "app.py").write_text(code)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdin", _Terminal(typed))
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(["init"]) == 0
    assert "Which agent is the suite for?" in terminal.getvalue()
    assert (place / "proctor_agent.py").exists() == (kind == "pydantic-ai")
    assert (place / "evidence.jsonl").exists() == (kind == "recorded")


def test_without_a_terminal_the_likeliest_agent_is_used_and_the_others_are_listed(place: Path) -> None:
    (place / "app.py").write_text("from pydantic_ai import Agent\nagent = Agent('x')\ndef answer(message): return 'hello'\n")
    done = proctor("init")
    assert "found pydantic-ai" in done.out and "also found (use --for):\n  function " in done.out
