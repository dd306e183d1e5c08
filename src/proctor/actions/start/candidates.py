"""Searches a folder for agents that a suite could be written for, the most likely first.

Agents of Node.js are found by reading `package.json` and the files that it names; nothing is imported and nothing runs. A script or a `bin`
is an agent if its name suggests it or its file imports a model client, and if it takes a message: from its arguments or from standard
input. A file that listens on a port is a server, whose paths are found. An exported function that takes one message is called by a short
adapter.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from proctor.actions.start.found import (
    FoundAgent,
    FoundFunction,
    FoundRoute,
    PythonCode,
    list_files,
    read_json_of,
    read_text_of,
)
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.python_code import read_python_code
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.model.evidence import Json
from proctor.report.words.wording import count_noun
from proctor.sources.workspaces import is_workspace

_MESSAGE_FIELDS = ("message", "input", "question", "query", "prompt", "text", "user_message", "content")
_NO_MESSAGE = frozenset(
    ("model", "user", "role", "name", "language", "lang", "locale", "stream", "token", "key", "api_key", "version", "type", "format")
)
"""Text fields that never take the message, even if a request has no other."""
_CHAT = "messages"
_RANKS = {**{field: rank for rank, field in enumerate(_MESSAGE_FIELDS)}, _CHAT: 0}
_MODEL_VARIABLE = "AGENT_MODEL"
_ANSWER_FIELDS = ("text", "message", "content", "output", "answer", "response", "reply")


def read_openapi_text(path: Path) -> Json:
    """Return a YAML file that declares itself as OpenAPI; other YAML is not parsed."""
    text = read_text_of(path)
    if not re.search(r"^(?:openapi|swagger):", text, re.MULTILINE):
        return None
    document = read_text(text, file=str(path), reading=Reading(file=str(path), text=text))
    return document.plain() if document is not None else None


def read_openapi(document: dict[str, Any], name: str) -> Candidate | None:
    """Return the path that is most likely to take a message; None if the document is not OpenAPI or has no such path."""
    if not isinstance(document.get("openapi") or document.get("swagger"), str) or not isinstance(document.get("paths"), dict):
        return None
    servers = document.get("servers")
    first = servers[0].get("url") if isinstance(servers, list) and servers and isinstance(servers[0], dict) else None
    base = first if isinstance(first, str) and first.startswith("http") else f"http://127.0.0.1:8000{first or ''}"
    posts = [
        (path, _read_body(_descend(post, document, "requestBody"), document), _read_body(_find_answer(post), document))
        for path, methods in document["paths"].items()
        if "{" not in path and isinstance(methods, dict) and isinstance(post := methods.get("post"), dict)
    ]
    if not posts:
        return None
    path, request, answer = min(posts, key=lambda post: _RANKS.get(_find_message_field(post[1].members) or "", 99))
    field = _find_message_field(request.members)
    settings: dict[str, Json] = {"type": "http", "url": base.rstrip("/") + path, "template": {field or "input": "{user_message}"}}
    remarks: list[str] = []
    answer_field = next((field for field in _ANSWER_FIELDS if field in answer.members), None)
    if field == _CHAT:
        model = _find_fixed_value(request.members.get("model"))
        if model is None and "model" in request.required:
            model = f"${{{_MODEL_VARIABLE}}}"
            remarks.append(f"set {_MODEL_VARIABLE} to the model that the request names, or write it into `template`")
        settings["template"] = {**({"model": model} if model is not None else {}), _CHAT: "{messages}"}
    elif field is None:
        remarks.append(f"the request of {path} has no member that looks like a message: see that `template` fits")
    if field == _CHAT and (path.endswith("/chat/completions") or "choices" in answer.members):
        settings["answer_format"] = "openai"
    elif answer_field is not None:
        settings["response_path"] = answer_field
    elif field == _CHAT:
        remarks.append("the answer has no member that looks like a text: see whether `answer_format` or `response_path` is needed")
    return _make_described("openapi", name, settings, remarks)


def _find_message_field(members: dict[str, Json]) -> str | None:
    texts = [name for name, schema in members.items() if isinstance(schema, dict) and schema.get("type", "string") == "string"]
    known = next((field for field in _MESSAGE_FIELDS if field in texts), None)
    chat = members.get(_CHAT)
    if known is None and isinstance(chat, dict) and chat.get("type") == "array":
        return _CHAT
    candidates = [name for name in texts if name.lower() not in _NO_MESSAGE and not name.lower().endswith("id")]
    return known or (candidates[0] if len(candidates) == 1 else None)


def _find_fixed_value(schema: Json) -> str | None:
    """Return the value that a schema suggests for a text: its default, its example, or the first of its choices."""
    if not isinstance(schema, dict):
        return None
    choices = schema.get("enum")
    several = (schema.get("const"), schema.get("default"), schema.get("example"), *(choices if isinstance(choices, list) else ()))
    return next((value for value in several if isinstance(value, str) and value), None)


def _find_answer(operation: dict[str, Any]) -> Json:
    responses = operation.get("responses")
    return next((responses[code] for code in ("200", "201", "default") if code in responses), None) if isinstance(responses, dict) else None


class _Body(msgspec.Struct, frozen=True):
    """The members of the JSON body that a request or a response describes."""

    members: dict[str, Json]
    required: list[Json]


def _read_body(holder: Json, document: dict[str, Any]) -> _Body:
    schema = _descend(holder, document, "content", "application/json", "schema")
    members, required = (schema.get("properties"), schema.get("required")) if isinstance(schema, dict) else (None, None)
    followed = {name: _descend(member, document) for name, member in members.items()} if isinstance(members, dict) else {}
    return _Body(followed, required if isinstance(required, list) else [])


def _descend(value: Json, document: dict[str, Any], *keys: str) -> Json:
    """Return what is under these keys, with references inside the document followed a few times at each."""
    for key in (None, *keys):
        if key is not None:
            value = value.get(key) if isinstance(value, dict) else None
        for _ in range(5):
            reference = value.get("$ref") if isinstance(value, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            value = document
            for part in reference[2:].split("/"):
                value = value.get(part) if isinstance(value, dict) else None
    return value


MCP_FILES = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", "claude_desktop_config.json")
_NAME = re.compile(r"[^A-Za-z0-9_]+")
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")


def find_mcp_configs(folder: Path) -> list[Candidate]:
    """Return the MCP configurations in a folder, each as an agent with the tools of its servers."""
    configs: list[Candidate] = []
    for file in MCP_FILES:
        document = read_json_of(folder / file)
        servers = document.get("mcpServers") or document.get("servers") if isinstance(document, dict) else None
        entries = servers.items() if isinstance(servers, dict) else ()
        described = {_NAME.sub("_", name): _read_server(entry) for name, entry in entries if isinstance(entry, dict)}
        usable: dict[str, Json] = {name: entry for name, entry in described.items() if entry is not None}
        if usable:
            needed = sorted(set(_REFERENCE.findall(msgspec.json.encode(usable).decode())))
            remarks = (f"the servers need the variables {', '.join(needed)}",) if needed else ()
            settings: dict[str, Json] = {"type": "mcp_agent", "model": "main", "servers": usable}
            configs.append(_make_described("mcp", file, settings, remarks))
    return configs


def _read_server(entry: Mapping[str, Any]) -> dict[str, Json] | None:
    """Return one server in our format; variables keep only their names."""
    env = {name: f"${{{name}}}" for name in entry.get("env") or {} if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    if isinstance(entry.get("command"), str):
        args = [_translate(arg) for arg in entry.get("args") or () if isinstance(arg, str)]
        return {"command": _translate(entry["command"]), **({"args": args} if args else {}), **({"env": env} if env else {})}
    address = entry.get("url") or entry.get("serverUrl")
    if not isinstance(address, str):
        return None
    headers = {name: f"${{{_NAME.sub('_', name).upper()}}}" for name in entry.get("headers") or {}}
    return {"url": _translate(address), **({"headers": headers} if headers else {})}


def _translate(text: str) -> str:
    """Return a text with the references of editors (`${env:NAME}`, `${NAME:-default}`) spelt as ours; `${input:...}` becomes a variable."""
    text = re.sub(r"\$\{input:([^}]*)\}", lambda match: f"${{{_NAME.sub('_', match[1]).upper()}}}", text)
    text = text.replace("${workspaceFolder}", ".")
    return _REFERENCE.sub(lambda match: f"${{{match[1]}}}", text)


def read_n8n(document: dict[str, Any], name: str) -> Candidate | None:
    """Return how a workflow is started, by its webhook or its chat; None if it is not an export of n8n."""
    nodes = document.get("nodes")
    if not isinstance(nodes, list) or not isinstance(document.get("connections"), dict):
        return None
    typed = [node for node in nodes if isinstance(node, dict) and isinstance(node.get("type"), str)]
    if not any("n8n-nodes" in node["type"] for node in typed):
        return None
    address: str | None = None
    template: Json = None
    for node in typed:
        node_parameters = node.get("parameters")
        parameters: dict[str, Any] = node_parameters if isinstance(node_parameters, dict) else {}
        if node["type"].endswith(".webhook") and isinstance(parameters.get("path"), str):
            address = f"http://127.0.0.1:5678/webhook/{parameters['path']}"
        elif node["type"].endswith(".chatTrigger") and isinstance(node.get("webhookId"), str):
            address = f"http://127.0.0.1:5678/webhook/{node['webhookId']}/chat"
            template = {"action": "sendMessage", "chatInput": "{user_message}", "sessionId": "{session_id}", "requestId": "{request_id}"}
        if address is not None:
            break
    remarks = ["activate the workflow, and see that the address is that of your n8n"]
    if address is None:
        address = "http://127.0.0.1:5678/webhook/agent"
        remarks.insert(0, "the workflow has no Webhook or Chat Trigger node to start it by: add one, and write its address")
    settings: dict[str, Json] = {"type": "n8n", "webhook": address}
    if template is not None:
        settings["template"] = template
    return _make_described("n8n", name, settings, remarks)


def read_flowise(document: dict[str, Any], name: str) -> Candidate | None:
    """Return how a flow is called; None if it is not an export of Flowise."""
    nodes, edges = document.get("nodes"), document.get("edges")
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return None
    inner = [node["data"] for node in nodes if isinstance(node, dict) and isinstance(node.get("data"), dict)]
    if not any("category" in data or "inputParams" in data or "inputAnchors" in data for data in inner):
        return None
    settings: dict[str, Json] = {"type": "flowise", "url": "http://127.0.0.1:3000", "flow": "${FLOWISE_FLOW}"}
    remark = "set FLOWISE_FLOW to the id of the flow: it is in the address of its page, and not in an export"
    return _make_described("flowise", name, settings, (remark,))


_REQUIREMENTS = ("pyproject.toml", "requirements.txt", "requirements.in", "requirements-dev.txt", "uv.lock", "Pipfile", "setup.cfg")


def find_exports(folder: Path) -> list[Candidate]:
    """Return the candidates, the most likely first."""
    exports = find_mcp_configs(folder)
    for path in list_files(folder, (".json", ".yaml", ".yml")):
        name = path.relative_to(folder).as_posix()
        document = read_json_of(path) if path.suffix == ".json" else read_openapi_text(path)
        if isinstance(document, dict):
            exports += [export for read in (read_n8n, read_flowise, read_openapi) if (export := read(document, name)) is not None]
    return exports


def list_required(folder: Path) -> list[str]:
    """Return the frameworks that a list of requirements names."""
    text = "\n".join(read_text_of(folder / name) for name in _REQUIREMENTS).lower().replace("_", "-")
    return [
        framework.name
        for framework in FRAMEWORKS.values()
        if any(re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) for package in framework.packages)
    ]


RECORDED = "recorded"
KINDS: dict[str, str] = {
    "function": "a Python function",
    "http": "an agent over HTTP",
    "command": "a program that reads the message and prints the answer",
    "n8n": "a workflow of n8n",
    "flowise": "a flow of Flowise",
    "mcp": "a model with the tools of MCP servers",
    "openapi": "an agent over HTTP that an OpenAPI file describes",
    "mcplab": "an MCPLab workspace",
    **{name: f"an agent of {name}" for name in FRAMEWORKS},
    RECORDED: "evidence that was recorded; no agent is called",
}
"""The values of `proctor init --for`."""
MOST_UNREAD = 3
"""The maximum number of unreadable files that are named."""
_MCPLAB_FOLDERS = (".", "mcplab")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that a suite could be written for, and how it was found."""

    kind: str
    why: str
    agent: FoundAgent | None = None
    function: FoundFunction | None = None
    settings: dict[str, Json] | None = None
    """The target as `proctor.yaml` describes it, if it needs no adapter."""
    is_node: bool = False
    """Whether it is a project of Node.js."""
    workspace: str | None = None
    tools: tuple[str, ...] = ()
    """Tools that the code names."""
    remarks: tuple[str, ...] = ()


def find_candidates(place: str | Path) -> list[Candidate]:
    """Return the agents in a folder, the most likely first; nothing is imported, started or called."""
    folder = Path(place)
    if not folder.is_dir():
        return []
    code = read_python_code(folder)
    package = read_json_of(folder / "package.json")
    node = _list_node(folder, package) if isinstance(package, dict) else []
    candidates: list[Candidate] = []
    for place in _MCPLAB_FOLDERS:
        if is_workspace(folder / place):
            candidates.append(Candidate(kind="mcplab", why=f"{place}: a workspace of MCPLab", workspace=place))
    for function in code.functions[:1]:
        reason = f"{function.file}:{function.line}: {function.called} takes a message"
        candidates.append(Candidate(kind="function", why=reason, function=function, tools=code.tools))
    candidates += find_exports(folder)
    candidates += [_make_served(route, code.tools) for route in code.routes[:1]]
    return [*_list_agents(code), *candidates, *node, *_list_mentioned(folder, code)]


def find_gaps(place: str | Path, *, is_found: bool) -> list[str]:
    """Return remarks about files that could not be searched, and about code without an agent."""
    code = read_python_code(Path(place)) if Path(place).is_dir() else PythonCode()
    remarks = [f"{unread}; nothing was looked for in this file" for unread in code.unread[:MOST_UNREAD]]
    if not is_found and code.files:
        remarks.append(f"no agent was found in {count_noun(code.files, 'Python file')}: this is an example with recorded evidence")
    return remarks


def _list_agents(code: PythonCode) -> list[Candidate]:
    candidates = [
        Candidate(
            kind=agent.framework,
            why=f"{agent.file}:{agent.line}: {agent.name}{'()' if agent.is_factory else ''} is made by {agent.maker}",
            agent=agent,
            tools=code.tools,
            remarks=tuple(
                f"also found: {other.name} in {other.file}:{other.line}"
                for other in code.agents
                if other is not agent and other.framework == agent.framework
            )[:3],
        )
        for agent in code.agents
    ]
    # The likeliest of each framework; its remarks list the others.
    return list({candidate.kind: candidate for candidate in reversed(candidates)}.values())[::-1]


def _make_described(kind: str, file: str, settings: dict[str, Json], remarks: Iterable[str]) -> Candidate:
    """Return the agent that a file describes; `remarks` are what the user must do."""
    return Candidate(kind=kind, why=f"{file}: {KINDS[kind]}", settings=settings, remarks=tuple(remarks))


def _make_served(route: FoundRoute, tools: tuple[str, ...] = ()) -> Candidate:
    value = "{messages}" if route.field == "messages" else "{user_message}"
    settings: dict[str, Json] = {"type": "http", "url": f"http://127.0.0.1:{route.port}{route.path}", "template": {route.field: value}}
    remarks = (f"start your agent first; proctor.yaml has port {route.port}",)
    why = f"{route.file}:{route.line}: POST {route.path}"
    return Candidate(kind="http", why=why, settings=settings, tools=tools, remarks=remarks)


def _list_node(folder: Path, package: dict[str, Json]) -> list[Candidate]:
    """Return the agents of a Node.js project; of programs, functions and the template only the likeliest, since all are commands."""
    started = _list_started(folder, package)
    programs = [program for name, words, file in started if (program := _read_program(folder, name, words, file)) is not None]
    programs.sort(key=lambda entry: not _AGENTS.search(entry.why.partition(":")[2]))
    functions: list[FoundFunction] = []
    routes: list[FoundRoute] = []
    for path in list_files(folder, _SUFFIXES):
        file, text = path.relative_to(folder).as_posix(), read_text_of(path)
        if path.name == "proctor_agent.mjs" or path.name.endswith(".d.ts") or bool(re.search(r"\.(?:test|spec|config)\.\w+$", path.name)):
            continue
        functions += _list_functions(file, text)
        routes += _list_routes(file, text)
    functions.sort(key=lambda entry: (_FUNCTIONS.index(entry.name), entry.file.count("/"), entry.file))
    routes.sort(key=lambda entry: not _AGENTS.search(entry.path))
    served = [_make_served(route) for route in routes[:1]]
    if programs:
        others = tuple(f"also found: {other.why}" for other in programs[1:4])
        return [msgspec.structs.replace(programs[0], remarks=(*programs[0].remarks, *others)), *served]
    for function in functions[:1]:
        reason = f"{function.file}:{function.line}: {function.name}() takes a message"
        return [Candidate(kind="command", why=reason, function=function, is_node=True), *served]
    return [*served, Candidate(kind="command", why="package.json: a project of Node.js", is_node=True)]


def _list_mentioned(folder: Path, code: PythonCode) -> list[Candidate]:
    """Return frameworks that are used or required but have no importable agent."""
    candidates: list[Candidate] = []
    with_agent = {agent.framework for agent in code.agents}
    for name in dict.fromkeys((*code.imported, *list_required(folder))):
        if name in with_agent:
            continue
        hidden = next((candidate for candidate in code.hidden if candidate.framework == name), None)
        remarks: list[str] = []
        if hidden is not None:
            remarks.append(
                f"{hidden.file}:{hidden.line}: {hidden.name} is made inside a function or block, where nothing can import it; "
                "make it at the top of the module, or write its call into proctor_agent.py"
            )
        origin = "imported in the code" if name in code.imported else "among the requirements"
        candidates.append(Candidate(kind=name, why=f"{name} is {origin}", remarks=tuple(remarks)))
    # langgraph depends on langchain: both are imported even if only one is used.
    if {"langgraph", "langchain"} <= {candidate.kind for candidate in candidates} or "langgraph" in with_agent:
        candidates = [candidate for candidate in candidates if candidate.kind != "langchain"]
    return candidates


_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")
_AGENTS = re.compile(r"(?:^|[^a-z])(?:agent|assistant|bot|chatbot|chat|ask|answer)(?:$|[^a-z])", re.IGNORECASE)
_NEVER = re.compile(r"^(?:pre|post)?(?:test|lint|build|format|clean|prepare|typecheck|release|publish|install)")
_MODELS = re.compile(
    r"(?:openai|ai|langchain|genkit|ollama|llamaindex|@openai/agents|@google/genai|@aws-sdk/client-bedrock"
    r"|@(?:ai-sdk|anthropic-ai|langchain|mastra|mistralai)/.*)"
)
"""The packages of model clients."""
_IMPORTED = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)["']([^"'\n]{1,200})["']""")
_ARGUMENTS = re.compile(r"\bprocess\.argv\b|\bparseArgs\s*\(|\b(?:Deno|Bun)\.(?:args|argv)\b|[\"'](?:commander|yargs|minimist)[\"']")
_STANDARD_INPUT = re.compile(r"\bprocess\.stdin\b|\breadFileSync\s*\(\s*0\b|/dev/stdin|\b(?:Bun|Deno)\.stdin\b|[\"'](?:node:)?readline")
_LISTENS = re.compile(r"\.listen\s*\(|\bserve\s*\(\s*[{a-z]|\bDeno\.serve\b|\bBun\.serve\b")
_POST = re.compile(r"""\.post\s*\(\s*["'`](/[^"'`\n:*]{0,200})["'`]""")
_PORT = re.compile(r"""(?:\.listen\s*\(\s*|\bport\s*[:=]\s*|\bPORT\b\W{1,12})["']?(\d{2,5})\b""", re.IGNORECASE)
_BODY = re.compile(r"""\bbody\??\.(\w+)|\{([\w\s,:]{1,200})\}\s*=\s*(?:await\s+)?[\w.]*(?:body|json\s*\()""")
_FUNCTIONS = ("answer", "ask", "chat", "respond", "reply", "handleMessage", "runAgent", "askAgent", "callAgent", "invoke", "agent", "run")
_DECLARED = re.compile(
    r"^export\s+(?:async\s+)?function\s+(\w+)\s*\(([^)]{0,300})\)|^export\s+const\s+(\w+)\s*=\s*(?:async\s*)?\(([^)]{0,300})\)[^=\n]{0,80}=>",
    re.MULTILINE,
)
_FIELDS = ("message", "input", "question", "query", "prompt", "text", "userMessage", "userInput", "content", "messages")
_PLAIN = ("node", "bun", "deno")
_SHELL = re.compile(r"[&|;<>$`*]")


def _list_started(folder: Path, package: dict[str, Json]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the programs in `package.json`: name, command, and the file that runs."""
    scripts, programs = package.get("scripts"), package.get("bin")
    programs_by_name = {str(package.get("name", "bin")): programs} if isinstance(programs, str) else programs
    for name, file in programs_by_name.items() if isinstance(programs_by_name, dict) else ():
        if isinstance(file, str) and (folder / file).is_file():
            yield f"bin {name}", ("node", PurePosixPath(file).as_posix()), file
    for name, text in scripts.items() if isinstance(scripts, dict) else ():
        if not isinstance(text, str) or _NEVER.match(name):
            continue
        try:
            words = shlex.split(text)
        except ValueError:  # an unclosed quote cannot be parsed
            continue
        file = next((word for word in words if word.endswith(_SUFFIXES) and (folder / word).is_file()), None)
        if file is not None:
            yield f"script {name}", _make_command(name, text, words), file


def _make_command(name: str, text: str, words: list[str]) -> tuple[str, ...]:
    """Return a script as a direct command if it needs no shell, so that no shell parses the message to the agent."""
    if _SHELL.search(text) or "=" in words[0] or words[0] in ("npm", "npx", "yarn", "pnpm", "cross-env", "dotenv", "nodemon"):
        return ("npm", "run", "--silent", name, "--")
    return tuple(words) if words[0] in _PLAIN else (f"node_modules/.bin/{words[0]}", *words[1:])


def _read_program(folder: Path, name: str, command: tuple[str, ...], file: str) -> Candidate | None:
    text = _read_with_neighbours(folder, file)
    speaks = any(map(_MODELS.fullmatch, _IMPORTED.findall(text)))
    if not (speaks or _AGENTS.search(name) or _AGENTS.search(PurePosixPath(file).stem)) or _LISTENS.search(text):
        return None
    if _ARGUMENTS.search(text):
        settings: dict[str, Json] = {"type": "command", "command": [*command, "{input}"]}
        return Candidate(kind="command", why=f"package.json: {name} takes a message", settings=settings)
    if not _STANDARD_INPUT.search(text):
        return None
    settings = {"type": "command", "command": list(command[:-1] if command[-1] == "--" else command)}
    remark = f"{file} reads lines: if it goes on asking, let it end with its input, and print nothing but the answer"
    remarks = (remark,) if "readline" in text else ()
    return Candidate(kind="command", why=f"package.json: {name} reads a message", settings=settings, remarks=remarks)


def _read_with_neighbours(folder: Path, file: str) -> str:
    """Return the text of a file and of its relative imports: a `bin` is often two lines."""
    text = read_text_of(folder / file)
    place = (folder / file).parent
    near = [place / imported for imported in _IMPORTED.findall(text) if imported.startswith(".")]
    in_folder = [path for path in near if path.resolve().is_relative_to(folder.resolve())]
    return "\n".join([text, *(read_text_of(path) for path in in_folder[:20])])


def _list_functions(file: str, text: str) -> Iterator[FoundFunction]:
    for declaration in _DECLARED.finditer(text):
        name, parameters = (declaration[1], declaration[2]) if declaration[1] else (declaration[3], declaration[4])
        parameter_names = [parameter.strip() for parameter in parameters.split(",") if parameter.strip()]
        required = [parameter for parameter in parameter_names if "=" not in parameter and not re.match(r"\w+\?", parameter)]
        if name in _FUNCTIONS and len(required) == 1 and not parameter_names[0].startswith(("{", "...")):
            yield FoundFunction(file=file, line=text.count("\n", 0, declaration.start()) + 1, name=name)


def _list_routes(file: str, text: str) -> Iterator[FoundRoute]:
    port = next((int(member) for member in _PORT.findall(text)), 3000)
    body_fields = [word for member, several in _BODY.findall(text) for word in re.findall(r"\w+", member or several)]
    field = next((name for name in _FIELDS if name in body_fields), None)
    for match in _POST.finditer(text):
        # Clients also call `post`: a path counts only if its handler reads the request.
        if field is not None:
            yield FoundRoute(file=file, line=text.count("\n", 0, match.start()) + 1, path=match[1], field=field, port=port)
