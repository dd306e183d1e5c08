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
            if node.name in _NAMES or (
                speaks
                and required[0] in _MESSAGES
                and any(_name_last(child.func) in _MODEL_CALLS for child in ast.walk(node) if isinstance(child, ast.Call))
            ):
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


def _name_last(node: ast.expr) -> str:
    """Return the last word of a name: `tool` for `agent.tool`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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
    agents.sort(
        key=lambda function: (
            (
                _PREFERRED.index(function.name)
                if function.name in _PREFERRED
                else len(_PREFERRED) + (0 if "agent" in function.name or "graph" in function.name else 1)
            ),
            function.is_factory,
            function.file.count("/"),
            function.file,
            -function.line,
        )
    )
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


class _Module:
    def __init__(self, tree: ast.Module, file: str) -> None:
        self._file = file
        self._names: dict[str, str] = {}
        """Full names of imported names: `Agent` is `pydantic_ai.Agent`."""
        self.agents: list[FoundAgent] = []
        self.hidden: list[FoundAgent] = []
        self.routes: list[FoundRoute] = []
        self.tools: list[str] = []
        self._fields: dict[str, list[str]] = {}
        """The fields of each class."""
        self._placeholders: list[str] = []
        """The inputs that are named in the descriptions of crewai tasks."""
        self._ports: list[int] = []
        self._read_imports(tree)
        paths = self._names.values()
        self.frameworks = [each.name for each in FRAMEWORKS.values() if any(_starts_with(path, each.roots) for path in paths)]
        self._web = next((root for path in paths if (root := path.partition(".")[0]) in ("fastapi", "flask")), None)
        self.functions = list(list_functions(tree, file, paths))
        self._read_facts(tree)
        for node in tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and node.value is not None and (maker := self._find_maker(node.value)):
                    self.agents.append(self._make_agent(maker, node, target.id))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._read_function(node)
            elif isinstance(node, ast.If):
                self._hide_agents(node)

    def _read_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})

    def _read_facts(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef():
                    fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and "OutputField" not in ast.unparse(each)]
                    self._fields[node.name] = [each.target.id for each in fields if isinstance(each.target, ast.Name)]
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
                    self.tools += [node.name] if _TOOL_MARKS.intersection(map(_name_last, marks)) else []
                case ast.keyword(arg="tools", value=ast.List(elts=items)) if self.frameworks:
                    self.tools += [item.id for item in items if isinstance(item, ast.Name) and item.id.islower()]
                case ast.keyword(arg="port", value=ast.Constant(value=int() as port)):
                    self._ports.append(port)
                case ast.keyword(arg="description", value=ast.Constant(value=text)):
                    self._placeholders += _PLACEHOLDER.findall(str(text))
                case ast.Dict():
                    self.tools += _list_described_tools(node)
                case _:
                    pass

    def _read_function(self, node: AnyFunction) -> None:
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
            field = self._placeholders[0] if self._placeholders else None
        if framework.name == "dspy":
            calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
            field = next(filter(None, map(self._find_input, calls)), None)
        return FoundAgent(
            framework=framework.name, file=self._file, line=node.lineno, name=name, maker=maker, is_factory=is_factory, field=field
        )

    def _find_input(self, call: ast.Call) -> str | None:
        """Return the first input of a signature of dspy: `"question -> answer"`, or a class whose first field is an input."""
        match call.args:
            case [ast.Constant(value=str() as text), *_] if "->" in text:
                return re.split(r"[,:\s-]", text.strip())[0]
            case [ast.Name(id=name), *_] if self._fields.get(name):
                return self._fields[name][0]
            case _:
                return None

    def _read_route(self, node: AnyFunction) -> None:
        for mark in node.decorator_list if self._web is not None else ():
            match mark:
                case ast.Call(func=ast.Attribute(attr="post" | "route" as verb), args=[ast.Constant(value=str() as path), *_]):
                    if "{" not in path and "<" not in path and (verb == "post" or "POST" in ast.unparse(mark)):
                        port = self._ports[0] if self._ports else _PORTS.get(self._web or "", 8000)
                        route = FoundRoute(file=self._file, line=node.lineno, path=path, field=self._find_field(node), port=port)
                        self.routes.append(route)
                case _:
                    pass

    def _find_field(self, node: AnyFunction) -> str:
        """Return the member of the request that takes the message."""
        kinds = [argument.annotation.id for argument in node.args.args if isinstance(argument.annotation, ast.Name)]
        names = [field for kind in kinds for field in self._fields.get(kind, ())]
        # Without a model of the request: `request.json["message"]`, `body.get("message")`.
        names += [child.value for child in ast.walk(node) if isinstance(child, ast.Constant) and isinstance(child.value, str)]
        return next((field for field in _MESSAGE_FIELDS if field in names), "input")


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
