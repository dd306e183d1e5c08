"""Finds agents in Python code that use no framework: a function, or a class with a method, that takes one message.

Where its name does not say so, a function counts that takes a message by the name of its parameter and asks a model: it stands in a module
that imports what speaks to models, and calls what such packages are called with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from proctor.actions.start.found import FoundFunction

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

_NAMES = ("answer", "ask", "chat", "respond", "reply", "handle_message", "run_agent", "ask_agent", "call_agent", "invoke", "query")
_METHODS = (*_NAMES, "run", "send", "__call__")
_MESSAGES = ("message", "user_message", "question", "user_input", "user_query", "prompt", "user_prompt")
_PACKAGES = ("openai", "anthropic", "litellm", "google.genai", "mistralai", "ollama", "cohere", "groq", "together", "boto3")
_ASKED = frozenset(
    ("create", "parse", "generate_content", "chat", "complete", "stream", "converse", "completion", "acompletion", "responses")
)
_TEXT = re.compile(r"^['\"]?(?:\w+\.)*(?:Any|object)['\"]?$|^(?!.*\b(?:list|dict|List|Dict|Sequence|Iterable)\b).*\bstr\b")
_HOLDERS = re.compile(r"agent|assistant|bot|chat", re.IGNORECASE)


def list_functions(tree: ast.Module, file: str, imported: Iterable[str]) -> Iterator[FoundFunction]:
    """Yield the functions and methods of a module that an agent could be asked by."""
    speaks = any(path == package or path.startswith(f"{package}.") for path in imported for package in _PACKAGES)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            wanted = _list_required(node)
            if (
                wanted is not None
                and len(wanted) == 1
                and _may_take_text(node, wanted[0])
                and (node.name in _NAMES or (speaks and wanted[0] in _MESSAGES and _asks_model(node)))
            ):
                yield FoundFunction(file=file, line=node.lineno, name=node.name)
        elif isinstance(node, ast.ClassDef) and (speaks or _HOLDERS.search(node.name)):
            yield from _list_methods(node, file)


def rank_function(found: FoundFunction) -> tuple[int, int, str, int]:
    """Return where a function stands among others: those whose name says it first, of others the last of a file, which calls the rest."""
    names = _NAMES if found.holder is None else _METHODS
    known = names.index(found.name) if found.name in names else len(_METHODS)
    return (found.holder is not None, known, found.file, -found.line)


def _list_methods(node: ast.ClassDef, file: str) -> Iterator[FoundFunction]:
    methods = {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    made = methods.get("__init__")
    # `self` alone, and the message beside it below.
    if node.name.startswith("_") or (made is not None and len(_list_required(made) or ("", "")) > 1):
        return
    for name in _METHODS:
        wanted = _list_required(methods[name]) or () if name in methods else ()
        if len(wanted) == 2 and not methods[name].decorator_list and _may_take_text(methods[name], wanted[1]):
            yield FoundFunction(file=file, line=methods[name].lineno, name=name, holder=node.name)
            return


def _list_required(node: AnyFunction) -> list[str] | None:
    """Return the parameters that have to be given; None where one of them has to be named."""
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    if any(default is None for default in arguments.kw_defaults):
        return None
    return [one.arg for one in places[: len(places) - len(arguments.defaults)]]


def _may_take_text(node: AnyFunction, parameter: str) -> bool:
    """Return whether a parameter takes a text, as far as its annotation says: a request or a list of messages is none."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    written = next((one.annotation for one in arguments if one.arg == parameter), None)
    return written is None or bool(_TEXT.search(ast.unparse(written)))


def _asks_model(node: AnyFunction) -> bool:
    called = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return any((one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")) in _ASKED for one in called)
