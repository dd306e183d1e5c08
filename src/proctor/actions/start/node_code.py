"""Finds agents of Node.js by reading `package.json` and the files that it names; nothing is imported and nothing runs.

A script or a `bin` is an agent if its name suggests it or its file imports a model client, and if it takes a message: from its
arguments or from standard input. A file that listens on a port is a server, whose paths are found. An exported function that takes one
message is called by a few lines of ours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from proctor.actions.start.found import FoundFunction, FoundProgram, FoundRoute, list_files, read_text_of
from proctor.model.evidence import Json

_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")
_AGENTS = re.compile(r"(?:^|[^a-z])(?:agent|assistant|bot|chatbot|chat|ask|answer)(?:$|[^a-z])", re.IGNORECASE)
_NEVER = re.compile(r"^(?:pre|post)?(?:test|lint|build|format|clean|prepare|typecheck|release|publish|install)")
_MODELS = (
    "openai",
    "ai",
    "@ai-sdk/",
    "@openai/agents",
    "@anthropic-ai/",
    "@langchain/",
    "langchain",
    "@mastra/",
    "genkit",
    "@google/genai",
    "@mistralai/",
    "ollama",
    "llamaindex",
    "@aws-sdk/client-bedrock",
)
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


class NodeCode(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of a project of Node.js."""

    programs: tuple[FoundProgram, ...] = ()
    functions: tuple[FoundFunction, ...] = ()
    routes: tuple[FoundRoute, ...] = ()


def read_node_code(folder: Path, package: dict[str, Json]) -> NodeCode:
    """Look through a project of Node.js."""
    started = list(_list_started(folder, package))
    programs = [found for name, words, file in started if (found := _read_program(folder, name, words, file)) is not None]
    programs.sort(key=lambda one: not _AGENTS.search(one.why.partition(":")[2]))
    functions: list[FoundFunction] = []
    routes: list[FoundRoute] = []
    for path in list_files(folder, _SUFFIXES):
        file, text = path.relative_to(folder).as_posix(), read_text_of(path)
        if _is_left_out(path.name):
            continue
        functions += _list_functions(file, text)
        routes += _list_routes(file, text)
    functions.sort(key=lambda one: (_FUNCTIONS.index(one.name), one.file.count("/"), one.file))
    routes.sort(key=lambda one: not _AGENTS.search(one.path))
    return NodeCode(programs=tuple(programs), functions=tuple(functions), routes=tuple(routes))


def _is_left_out(name: str) -> bool:
    return name == "proctor_agent.mjs" or name.endswith(".d.ts") or bool(re.search(r"\.(?:test|spec|config)\.\w+$", name))


def _list_started(folder: Path, package: dict[str, Json]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield what `package.json` starts: how it is called there, the command, and the file that runs."""
    scripts, programs = package.get("scripts"), package.get("bin")
    named = {str(package.get("name", "bin")): programs} if isinstance(programs, str) else programs
    for name, file in named.items() if isinstance(named, dict) else ():
        if isinstance(file, str) and (folder / file).is_file():
            yield f"bin {name}", ("node", PurePosixPath(file).as_posix()), file
    for name, text in scripts.items() if isinstance(scripts, dict) else ():
        if not isinstance(text, str) or _NEVER.match(name):
            continue
        try:
            words = shlex.split(text)
        except ValueError:  # an unclosed quote is no command that we could parse
            continue
        file = next((word for word in words if word.endswith(_SUFFIXES) and (folder / word).is_file()), None)
        if file is not None:
            yield f"script {name}", _make_command(name, text, words), file


def _make_command(name: str, text: str, words: list[str]) -> tuple[str, ...]:
    """Return a script without the shell of npm, if it needs none: then no shell reads the message to the agent."""
    if _SHELL.search(text) or "=" in words[0] or words[0] in ("npm", "npx", "yarn", "pnpm", "cross-env", "dotenv", "nodemon"):
        return ("npm", "run", "--silent", name, "--")
    return tuple(words) if words[0] in _PLAIN else (f"node_modules/.bin/{words[0]}", *words[1:])


def _read_program(folder: Path, name: str, command: tuple[str, ...], file: str) -> FoundProgram | None:
    text = _read_with_neighbours(folder, file)
    speaks = any(one == root or (root.endswith("/") and one.startswith(root)) for one in _IMPORTED.findall(text) for root in _MODELS)
    if not (speaks or _AGENTS.search(name) or _AGENTS.search(PurePosixPath(file).stem)) or _LISTENS.search(text):
        return None
    if _ARGUMENTS.search(text):
        return FoundProgram(file=file, why=f"package.json: {name} takes a message", command=(*command, "{input}"))
    if not _STANDARD_INPUT.search(text):
        return None
    words = command[:-1] if command[-1] == "--" else command
    remark = f"{file} reads lines: if it goes on asking, let it end with its input, and print nothing but the answer"
    remarks = (remark,) if "readline" in text else ()
    return FoundProgram(file=file, why=f"package.json: {name} reads a message", command=words, remarks=remarks)


def _read_with_neighbours(folder: Path, file: str) -> str:
    """Return the text of a file and of its relative imports: a `bin` is often two lines."""
    text = read_text_of(folder / file)
    place = (folder / file).parent
    near = [place / one for one in _IMPORTED.findall(text) if one.startswith(".")]
    inside = [path for path in near if path.resolve().is_relative_to(folder.resolve())]
    return "\n".join([text, *(read_text_of(path) for path in inside[:20])])


def _list_functions(file: str, text: str) -> Iterator[FoundFunction]:
    for found in _DECLARED.finditer(text):
        name, parameters = (found[1], found[2]) if found[1] else (found[3], found[4])
        given = [one.strip() for one in parameters.split(",") if one.strip()]
        required = [one for one in given if "=" not in one and not re.match(r"\w+\?", one)]
        if name in _FUNCTIONS and len(required) == 1 and not given[0].startswith(("{", "...")):
            yield FoundFunction(file=file, line=text.count("\n", 0, found.start()) + 1, name=name)


def _list_routes(file: str, text: str) -> Iterator[FoundRoute]:
    port = next((int(one) for one in _PORT.findall(text)), 3000)
    taken = [word for one, several in _BODY.findall(text) for word in re.findall(r"\w+", one or several)]
    field = next((name for name in _FIELDS if name in taken), None)
    for found in _POST.finditer(text):
        # Every client posts too: a path counts where the request is taken apart.
        if field is not None:
            yield FoundRoute(file=file, line=text.count("\n", 0, found.start()) + 1, path=found[1], field=field, port=port)
