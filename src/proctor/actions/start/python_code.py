"""Finds agents in Python code by reading it; nothing is imported and nothing runs.

An agent is created when a module is imported: `agent = Agent(...)`, `graph = builder.compile()`, or returned by a function without
parameters. Agents inside `main()` or under `if __name__ == "__main__"` cannot be imported and are only listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from proctor.actions.start.found import FoundAgent, FoundFunction, FoundRoute, PythonCode, list_files
from proctor.actions.start.frameworks import FRAMEWORKS, Framework

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

_NAMES = ("answer", "ask", "chat", "respond", "reply", "handle_message", "run_agent", "ask_agent", "call_agent", "invoke", "query")
_METHODS = (*_NAMES, "run", "send", "__call__")
_MESSAGES = ("message", "user_message", "question", "user_input", "user_query", "prompt", "user_prompt")
_PACKAGES = ("openai", "anthropic", "litellm", "google.genai", "mistralai", "ollama", "cohere", "groq", "together", "boto3")
_MODEL_CALLS = frozenset(
    ("create", "parse", "generate_content", "chat", "complete", "stream", "converse", "completion", "acompletion", "responses")
)
_TEXT = re.compile(r"^['\"]?(?:\w+\.)*(?:Any|object)['\"]?$|^(?!.*\b(?:list|dict|List|Dict|Sequence|Iterable)\b).*\bstr\b")
_HOLDERS = re.compile(r"agent|assistant|bot|chat", re.IGNORECASE)


def list_functions(tree: ast.Module, file: str, imported: Iterable[str]) -> Iterator[FoundFunction]:
    """Yield the functions and methods of a module by which an agent could be called."""
    speaks = any(path == package or path.startswith(f"{package}.") for path in imported for package in _PACKAGES)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            required = _list_required(node)
            if required is None or len(required) != 1 or not _may_take_text(node, required[0]):
                continue
            if node.name in _NAMES or (speaks and required[0] in _MESSAGES and _asks_model(node)):
                yield FoundFunction(file=file, line=node.lineno, name=node.name)
        elif isinstance(node, ast.ClassDef) and (speaks or _HOLDERS.search(node.name)):
            yield from _list_methods(node, file)


def rank_function(function: FoundFunction) -> tuple[int, int, str, int]:
    """Return the rank of a function: typical names first, then the last function of a file, which usually calls the others."""
    names = _NAMES if function.holder is None else _METHODS
    known = names.index(function.name) if function.name in names else len(_METHODS)
    return (function.holder is not None, known, function.file, -function.line)


def _list_methods(node: ast.ClassDef, file: str) -> Iterator[FoundFunction]:
    methods = {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    constructor = methods.get("__init__")
    # A class that cannot be constructed without arguments is no candidate.
    if node.name.startswith("_") or (constructor is not None and len(_list_required(constructor) or ("", "")) > 1):
        return
    for name in _METHODS:
        required = _list_required(methods[name]) or () if name in methods else ()
        if len(required) == 2 and not methods[name].decorator_list and _may_take_text(methods[name], required[1]):
            yield FoundFunction(file=file, line=methods[name].lineno, name=name, holder=node.name)
            return


def _list_required(node: AnyFunction) -> list[str] | None:
    """Return the required parameters; None if one of them is keyword-only."""
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    if any(default is None for default in arguments.kw_defaults):
        return None
    return [argument.arg for argument in places[: len(places) - len(arguments.defaults)]]


def _may_take_text(node: AnyFunction, parameter: str) -> bool:
    """Return whether a parameter takes a text by its annotation, not a request or a list of messages."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    annotation = next((argument.annotation for argument in arguments if argument.arg == parameter), None)
    return annotation is None or bool(_TEXT.search(ast.unparse(annotation)))


def _asks_model(node: AnyFunction) -> bool:
    called = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    return any((child.attr if isinstance(child, ast.Attribute) else getattr(child, "id", "")) in _MODEL_CALLS for child in called)


OWN_FILES = ("proctor_agent.py", "conftest.py", "setup.py")
_PREFERRED = ("agent", "root_agent", "graph", "app", "crew", "workflow", "team", "program")
_TOOL_MARKS = frozenset(("tool", "function_tool", "tool_plain", "ai_function", "kernel_function"))
_MESSAGE_FIELDS = ("message", "input", "question", "query", "prompt", "text", "user_message", "user_input", "content", "messages")
_PORTS = {"flask": 5000}
_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


def read_python_code(folder: Path) -> PythonCode:
    """Search the Python files of a folder."""
    parsed = [parsed_module for path in list_files(folder, (".py",)) if (parsed_module := _read_module(path, folder)) is not None]
    modules = [parsed_module for parsed_module in parsed if isinstance(parsed_module, _Module)]
    agents = [agent for module in modules for agent in module.agents]
    agents.sort(key=lambda function: (_rank(function.name), function.is_factory, function.file.count("/"), function.file, -function.line))
    return PythonCode(
        agents=tuple(agents),
        hidden=tuple(agent for module in modules for agent in module.hidden),
        functions=tuple(sorted((function for module in modules for function in module.functions), key=rank_function)),
        routes=tuple(route for module in modules for route in module.routes),
        tools=tuple(dict.fromkeys(name for module in modules for name in module.tools)),
        imported=tuple(name for name in FRAMEWORKS if any(name in module.frameworks for module in modules)),
        files=len(parsed),
        unread=tuple(parsed_module for parsed_module in parsed if isinstance(parsed_module, str)),
    )


def _rank(name: str) -> int:
    return _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED) + (0 if "agent" in name or "graph" in name else 1)


class _Module:
    def __init__(self, tree: ast.Module, file: str) -> None:
        self._file = file
        self._names: dict[str, str] = {}
        """Full names of imported names: `Agent` is `pydantic_ai.Agent`."""
        self.agents: list[FoundAgent] = []
        self.hidden: list[FoundAgent] = []
        self.routes: list[FoundRoute] = []
        self.tools: list[str] = []
        self.frameworks: list[str] = []
        self._read_imports(tree)
        self.functions = list(list_functions(tree, file, self._names.values()))
        self._fields = {node.name: _list_fields(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self._port = next(_list_ports(tree), None) or _PORTS.get(self._find_web(), 8000)
        self._placeholders = list(_list_task_placeholders(tree))
        for node in tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and node.value is not None and (maker := self._find_maker(node.value)):
                    self.agents.append(self._make_agent(maker, node, target.id))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._read_function(node)
            elif isinstance(node, ast.If):
                self._hide_agents(node)
        self._read_tools(tree)

    def _read_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        for framework in FRAMEWORKS.values():
            if any(_starts_with(path, framework.roots) for path in self._names.values()):
                self.frameworks.append(framework.name)

    def _read_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._read_route(node)
        returned = [child.value for child in ast.walk(node) if isinstance(child, ast.Return) and child.value is not None]
        maker = next((maker_found for value in returned if (maker_found := self._find_maker(value))), None)
        if maker is not None and _list_required(node) == [] and isinstance(node, ast.FunctionDef):
            self.agents.append(self._make_agent(maker, node, node.name, is_factory=True))
        else:
            self._hide_agents(node)

    def _hide_agents(self, node: ast.stmt) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name) and (maker := self._find_maker(inner.value)):
                self.hidden.append(self._make_agent(maker, inner, inner.targets[0].id))

    def _find_maker(self, value: ast.expr) -> tuple[Framework, str] | None:
        """Return the framework whose agent an expression creates, and the name that creates it."""
        if not isinstance(value, ast.Call):
            return None
        path = self._resolve(value.func)
        name = path.rpartition(".")[2]
        for framework in FRAMEWORKS.values():
            if name in framework.makers and _starts_with(path, framework.roots):
                return framework, name
            called = isinstance(value.func, ast.Attribute) and value.func.attr in framework.methods
            # `re.compile(...)` is called on a module that does not belong to the framework.
            if called and framework.name in self.frameworks and not _is_module(value.func, self._names):
                return framework, name
        return None

    def _resolve(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Subscript):  # `Agent[Deps, Answer](...)`
            return self._resolve(node.value)
        root = self._names.get(node.id, "") if isinstance(node, ast.Name) else ""
        return ".".join((root, *reversed(parts)))

    def _make_agent(self, made: tuple[Framework, str], node: ast.stmt, name: str, *, is_factory: bool = False) -> FoundAgent:
        framework, maker = made
        field: str | None = None
        if framework.name == "crewai":
            field = next(iter(self._placeholders), None)
        if framework.name == "dspy":
            field = next(
                (input_name for call in ast.walk(node) if isinstance(call, ast.Call) for input_name in self._list_signature(call)), None
            )
        return FoundAgent(
            framework=framework.name, file=self._file, line=node.lineno, name=name, maker=maker, is_factory=is_factory, field=field
        )

    def _list_signature(self, call: ast.Call) -> Iterator[str]:
        """Yield the first input of a signature of dspy: `"question -> answer"`, or a class whose first field is an input."""
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and "->" in first.value:
            yield re.split(r"[,:\s-]", first.value.strip())[0]
        elif isinstance(first, ast.Name) and self._fields.get(first.id):
            yield self._fields[first.id][0]

    def _find_web(self) -> str:
        return next((path.partition(".")[0] for path in self._names.values() if path.partition(".")[0] in ("fastapi", "flask")), "")

    def _read_route(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not self._find_web():
            return
        for mark in node.decorator_list:
            if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Attribute) or not mark.args:
                continue
            path = mark.args[0]
            posts = mark.func.attr == "post" or (mark.func.attr == "route" and "POST" in ast.unparse(mark))
            if posts and isinstance(path, ast.Constant) and isinstance(path.value, str) and "{" not in path.value and "<" not in path.value:
                self.routes.append(
                    FoundRoute(file=self._file, line=node.lineno, path=path.value, field=self._find_field(node), port=self._port)
                )

    def _find_field(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """Return the member of the request that takes the message."""
        kinds = [argument.annotation.id for argument in node.args.args if isinstance(argument.annotation, ast.Name)]
        names = [field for kind in kinds for field in self._fields.get(kind, ())]
        # Without a model of the request: `request.json["message"]`, `body.get("message")`.
        names += [child.value for child in ast.walk(node) if isinstance(child, ast.Constant) and isinstance(child.value, str)]
        return next((field for field in _MESSAGE_FIELDS if field in names), "input")

    def _read_tools(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
                words = [mark.attr if isinstance(mark, ast.Attribute) else getattr(mark, "id", "") for mark in marks]
                if _TOOL_MARKS.intersection(words):
                    self.tools.append(node.name)
            elif isinstance(node, ast.keyword) and node.arg == "tools" and isinstance(node.value, ast.List) and self.frameworks:
                self.tools += [item.id for item in node.value.elts if isinstance(item, ast.Name) and item.id.islower()]
            elif isinstance(node, ast.Dict):
                self.tools += _list_described_tools(node)


def _read_module(path: Path, folder: Path) -> _Module | str | None:
    """Return a module, or the reason why Python cannot parse it; None for a file without an agent."""
    if path.name in OWN_FILES or path.name.startswith("test_"):
        return None
    file = path.relative_to(folder).as_posix()
    try:
        # As bytes, so that Python detects the declared encoding.
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        return f"{file}:{error.lineno or 1}: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"{file}: {type(error).__name__}"
    return _Module(tree, file)


def _list_described_tools(node: ast.Dict) -> Iterator[str]:
    """Yield the name of a tool in the format of model providers: `{"name": ..., "parameters": {...}}`."""
    members = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
    name = members.get("name")
    word = name.value if isinstance(name, ast.Constant) else None
    # Only a single word can become a line of a suite.
    if isinstance(word, str) and re.fullmatch(r"[\w.-]{1,64}", word) and not {"parameters", "input_schema"}.isdisjoint(members):
        yield word


def _starts_with(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _is_module(node: ast.expr, names: dict[str, str]) -> bool:
    """Return whether a method is called on a module that was imported by its own name."""
    holder = node.value if isinstance(node, ast.Attribute) else node
    return isinstance(holder, ast.Name) and names.get(holder.id) == holder.id


def _list_fields(node: ast.ClassDef) -> list[str]:
    return [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and "OutputField" not in ast.unparse(statement)
    ]


def _list_ports(tree: ast.Module) -> Iterator[int]:
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "port")
    yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, int))


def _list_task_placeholders(tree: ast.Module) -> Iterator[str]:
    """Yield the inputs that are named in the descriptions of crewai tasks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "description" and isinstance(node.value, ast.Constant):
            yield from _PLACEHOLDER.findall(str(node.value.value))
