"""Writes the files of a first run, for each kind of agent: a suite with one case, the workspace file, and an adapter or a template."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from proctor.actions.start.candidates import Candidate
from proctor.actions.start.found import FoundAgent
from proctor.actions.start.frameworks import FRAMEWORKS, START, Framework
from proctor.actions.workspace.run_history import WORKSPACE_FILES
from proctor.errors import InputError
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.evidence import Json
from proctor.sources.pyproject import PYPROJECT, read_workspace_table

_EXTEND_PATH = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "{root}"))
"""


def write_adapter(framework: Framework, agent: FoundAgent) -> str:
    """Return the adapter for an agent that was found in the code."""
    module, root = find_module(agent.file)
    name = agent.name if agent.name != "answer" else "agent"
    imported = agent.name if name == agent.name else f"{agent.name} as {name}"
    called = "agent" if agent.is_factory else name
    setup = [*([f"agent = {name}()"] if agent.is_factory else []), *([_fill(framework.before, called)] if framework.before else [])]
    lines = [
        f'"""Asks the agent in {agent.file} for proctor."""',
        "",
        *([_EXTEND_PATH.format(root=root)] if root else []),
        *sorted((*framework.imports, f"from {module} import {imported}"), key=lambda line: line.startswith("from")),
        *([""] if setup else []),
        *setup,
        "",
        "",
        _fill(framework.find_ask(agent.maker), called, agent.field or framework.field),
        "",
    ]
    return "\n".join(lines)


def _fill(lines: str, agent: str, field: str = "") -> str:
    return lines.replace("{agent}", agent).replace("{field}", field)


def find_module(file: str) -> tuple[str, str | None]:
    """Return the import of a file from the folder of the suite, and the folder to add to the path, if any."""
    parts = PurePosixPath(file).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if parts[0] == "src" and len(parts) > 1:
        return ".".join(parts[1:]), "src"
    # A folder whose name is not a Python identifier cannot be a package.
    bad = max((index for index, part in enumerate(parts[:-1]) if not part.isidentifier()), default=-1)
    return ".".join(parts[bad + 1 :]), "/".join(parts[: bad + 1]) or None


ADAPTER = "proctor_agent.py"
NODE_ADAPTER = "proctor_agent.mjs"
_ADDRESS = "http://127.0.0.1:9000/chat"
SCHEMA_FILE = ".proctor/native-schema.json"
SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
TARGET = "agent"
_ORDER = "Where is order 17?"
_ORDER_CLAIMS = ("tool_called: {name: lookup_order, arguments: {id: 17}}", "response_contains: on its way")
_TEMPLATE_MARK = '"""TEMPLATE: an agent of {name} to start from; put your own in its place."""\n\n'
_TO_FILL_IN = "{name} is a template: every case is an error until you call your own agent in it"
_OWN_ADAPTER: dict[str, Json] = {"type": "callable", "function": "proctor_agent:answer"}
_MOST_TOOLS = 8
WORKSPACE_FILE = "proctor.yaml"
SUITE_FILE = "suite.yaml"


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a first run."""

    files: dict[str, str]
    """Contents by path in the folder."""
    next: str
    """The command to run in that folder."""
    remarks: tuple[str, ...] = ()
    schema: bool = True
    """Whether the schema of suites is written next to them."""
    keeps_suite: bool = True
    """Whether an existing suite may stay, because only the target is new."""
    workspace: dict[str, Json] = {}


def make_starter(kind: str, candidate: Candidate | None) -> Starter:
    """Return the files for a kind of agent: they drive the found agent, or a template. Raises `InputError`."""
    agent = candidate or Candidate(kind=kind, why="")
    if kind in FRAMEWORKS:
        return _start_framework(FRAMEWORKS[kind], agent)
    if agent.settings is not None:
        models = {"main": {"provider": "openai", "model": "gpt-4.1-mini"}} if kind == "mcp" else None
        needs = ("the model needs OPENAI_API_KEY, or another provider under `models`",) if kind == "mcp" else ()
        return start_target(agent.settings, tools=agent.tools, models=models, remarks=(*agent.remarks, *needs))
    match kind:
        case "function":
            return _start_function(agent)
        case "command" if agent.function is not None:
            adapter = _read_template("node-adapter").format(name=agent.function.name, file=json.dumps(f"./{agent.function.file}"))
            return start_target({"type": "command", "command": ["node", NODE_ADAPTER]}, more={NODE_ADAPTER: adapter})
        case "command":
            program, name, template = ("node", NODE_ADAPTER, "command-node") if agent.is_node else ("python", ADAPTER, "command")
            settings: dict[str, Json] = {"type": "command", "command": [program, name]}
            return start_target(settings, more={name: _read_template(template)}, remarks=(_TO_FILL_IN.format(name=name),))
        case "openapi":
            raise InputError("no OpenAPI file was found (openapi: or swagger: at its top); put one there, or take --for http")
        case "mcplab" if agent.workspace is not None:
            return Starter(files={}, next=f"proctor run {shlex.quote(agent.workspace)}", schema=False)
        case "mcplab":
            files = {SUITE_FILE: _read_template("mcplab")}
            remarks = (f"write the address of your MCP server into {SUITE_FILE}", "the agent needs OPENAI_API_KEY")
            return Starter(files=files, next=f"proctor run {SUITE_FILE}", remarks=remarks, schema=False, keeps_suite=False)
        case _:
            return make_starter(kind, Candidate(kind=kind, why="", settings=_DESCRIBED[kind], remarks=_TO_SET[kind]))


_DESCRIBED: dict[str, dict[str, Json]] = {
    "http": {"type": "http", "url": _ADDRESS, "template": {"input": "{user_message}"}},
    "n8n": {"type": "n8n", "webhook": "${N8N_WEBHOOK}"},
    "flowise": {"type": "flowise", "url": "http://127.0.0.1:3000", "flow": "${FLOWISE_FLOW}"},
    "mcp": {"type": "mcp_agent", "model": "main", "servers": {"server": {"url": "${MCP_SERVER_URL}"}}},
}
_TO_SET = {
    "http": (f"write the address of your agent into proctor.yaml, which has {_ADDRESS}, and the names of its fields under `template`",),
    "n8n": ("set N8N_WEBHOOK to the address of the workflow's webhook: http://127.0.0.1:5678/webhook/agent",),
    "flowise": ("set FLOWISE_FLOW to the id of the flow, which is in the address of its page",),
    "mcp": ("set MCP_SERVER_URL, or describe a server that is started: {command: ..., args: [...]}",),
}


def _start_framework(framework: Framework, candidate: Candidate) -> Starter:
    remarks = (*candidate.remarks, *([framework.remark] if framework.remark else []))
    if candidate.agent is not None:
        return start_target(_OWN_ADAPTER, more={ADAPTER: write_adapter(framework, candidate.agent)}, tools=candidate.tools, remarks=remarks)
    before = [_fill(framework.before, "agent")] if framework.before else []
    setup = _read_template(framework.name).rstrip("\n")
    # The additional imports come after those of the template, and end with their own empty line.
    separator = [""]
    if framework.imports:
        last = max(match.end() for match in re.finditer(r"^(?:import|from) .*$", setup, re.MULTILINE))
        setup = "\n".join([setup[:last], *framework.imports]) + setup[last:] + "\n"
        separator = []
    text = "\n".join([setup, *([*separator, *before, ""] if before else [""]), "", _fill(framework.ask, "agent", framework.field), ""])
    install = " ".join(f'"{word}"' if "[" in word else word for word in framework.install.split())
    to_do = (
        f"{ADAPTER} holds a template agent: put your own in its place",
        f"it needs: pip install {install}",
        f"its model needs {framework.key}",
    )
    adapter = _TEMPLATE_MARK.format(name=framework.name) + text
    return start_target(_OWN_ADAPTER, more={ADAPTER: adapter}, greeting=False, remarks=(*remarks, *to_do))


def _start_function(candidate: Candidate) -> Starter:
    function = candidate.function
    if function is None:
        text = '"""TEMPLATE: a function to start from; put your own agent in its place."""\n\n\n' + _read_template("function")
        return start_target(_OWN_ADAPTER, more={ADAPTER: text}, remarks=(_TO_FILL_IN.format(name=ADAPTER),))
    module, root = find_module(function.file)
    path, noqa = (_EXTEND_PATH.format(root=root) + "\n", "  # noqa: E402") if root else ("", "")
    if function.holder is not None:
        # One object per case, since such objects store their conversation.
        method = "" if function.name == "__call__" else f".{function.name}"
        names = {"called": function.called, "module": module, "holder": function.holder, "method": method}
        text = _read_template("class-adapter").format(**names, path=path, noqa=noqa)
        return start_target(_OWN_ADAPTER, more={ADAPTER: text}, tools=candidate.tools)
    if root is None:
        return start_target({"type": "callable", "function": f"{module}:{function.name}"}, tools=candidate.tools)
    text = f"{path}from {module} import {function.name} as answer{noqa}\n"
    return start_target(_OWN_ADAPTER, more={ADAPTER: text}, tools=candidate.tools)


def start_target(
    settings: dict[str, Json],
    *,
    more: dict[str, str] | None = None,
    greeting: bool = True,
    tools: Sequence[str] = (),
    models: dict[str, Json] | None = None,
    remarks: tuple[str, ...] = (),
) -> Starter:
    """Return the files for a target with these settings."""
    # One entry per line even if one line would do, because users will edit the file.
    described = "".join(f"    {line}\n" for key, value in settings.items() for line in to_yaml({key: value}).splitlines())
    text = f"targets:\n  {TARGET}:\n{described}default_target: {TARGET}\n" + (to_yaml({"models": models}) if models else "")
    top = (
        "# How the agent is reached: `proctor describe targets` lists every setting.\n"
        "# `${NAME}` reads an environment variable, the only way to a secret.\n"
    )
    files = {SUITE_FILE: write_suite(greeting=greeting, tools=tools), WORKSPACE_FILE: top + text, **(more or {})}
    workspace: dict[str, Json] = {"default_target": TARGET, "targets": {TARGET: settings}, **({"models": models} if models else {})}
    return Starter(files=files, next=f"proctor run {SUITE_FILE}", remarks=remarks, workspace=workspace)


def write_suite(*, greeting: bool, tools: Sequence[str] = ()) -> str:
    """Return a suite with one case: a greeting that any agent can answer, or the order question of the framework templates."""
    message, claims = ("Hello, what can you do for me?", ("response_not_empty",)) if greeting else (_ORDER, _ORDER_CLAIMS)
    lines = [f"      - {claim}" for claim in claims]
    if greeting:
        lines += ["      # Say what it must do, for example:"]
        lines += [f"      # - tool_called: {tool}" for tool in tools[:_MOST_TOOLS] or ("NAME",)]
        lines += ["      # - response_contains: what the answer must say", "      # - responded_within: 5000   # milliseconds"]
    return (
        f"{SCHEMA_LINE}"
        "# What the agent must do: `proctor describe checks` lists all that may stand under `expect`.\n"
        "proctor: 1\n"
        "name: First suite\n"
        "\n"
        "cases:\n"
        "  - id: first\n"
        f"    input: {message}\n"
        "    expect:\n" + "\n".join(lines) + "\n"
    )


def _read_template(name: str) -> str:
    return (START / f"{name}.txt").read_text(encoding="utf-8")


# Projects with settings in `pyproject.toml`: a `proctor.yaml` would hide the table `[tool.proctor]`.


def use_pyproject_table(folder: Path, starter: Starter) -> Starter:
    """Return the files without a workspace file if the project has the table; remarks list what it lacks. Raises `InputError`."""
    if WORKSPACE_FILE not in starter.files or any((folder / name).exists() for name in WORKSPACE_FILES):
        return starter
    table = read_workspace_table(folder)
    if table is None:
        return starter
    remark = f"left the table [tool.proctor] in {PYPROJECT} as it is, and wrote no {WORKSPACE_FILE}, which would hide it"
    targets = table.get("targets")
    files = {name: text for name, text in starter.files.items() if name != WORKSPACE_FILE}
    if not starter.workspace:
        return msgspec.structs.replace(starter, files=files, remarks=(*starter.remarks, remark))
    if isinstance(targets, dict) and targets:
        name = table.get("default_target") or next(iter(targets))
        chosen = "" if "default_target" in table or len(targets) == 1 else f" --target {name}"
        files = {SUITE_FILE: starter.files[SUITE_FILE]}
        remark = f"{remark}: the agent is its target {name!r}"
        return msgspec.structs.replace(starter, files=files, next=f"proctor run {SUITE_FILE}{chosen}", remarks=(remark,))
    lines = "\n  ".join(write_table(starter.workspace))
    remark = f"{remark}; add the agent to it before you run:\n  {lines}"
    return msgspec.structs.replace(starter, files=files, remarks=(*starter.remarks, remark))


def write_table(workspace: dict[str, Json]) -> list[str]:
    """Return settings of a workspace as lines of TOML below `[tool.proctor]`."""
    return ["[tool.proctor]", *(f"{key} = {_write_value(value)}" for key, value in workspace.items())]


def _write_value(value: Json) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_write_value(member)}" for key, member in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_value, value)) + "]"
    # Text, numbers and booleans are written alike in JSON and TOML.
    return json.dumps(value)
