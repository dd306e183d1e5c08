"""Answers of providers' own clients: a chat completion, a response, a message. One answer is the last step of a loop.

Tried with openai 3 (`ChatCompletion`, `Response`), anthropic 2 (`Message`). A hand-written loop has a list of messages that mixes client
objects and mappings: `unpack_answers` makes all of them mappings.
"""

from __future__ import annotations

from typing import cast

from proctor.model.json_values import MAX_DEPTH
from proctor.targets.frameworks.base import (
    Framework,
    RunData,
    are_instances,
    find_package,
    is_instance_of,
    join_texts,
    list_members,
    read_member,
)
from proctor.targets.frameworks.simplify import Budget, simplify

_ANSWERS = (
    ("openai", ("ChatCompletion",), "openai"),
    ("openai", ("Response",), "responses"),
    ("litellm", ("ModelResponse",), "openai"),
    ("anthropic", ("Message",), "anthropic"),
)
_CLIENTS = ("openai", "anthropic", "litellm", "mistralai", "groq", "cohere", "ollama", "together", "google.genai")
"""Packages whose objects mirror their API, member by member."""


def unpack_answers(value: object, budget: Budget, depth: int = 0) -> object:
    """Return a list or mapping with client objects converted to mappings; other values are unchanged."""
    if type(value) in (list, tuple) and depth <= MAX_DEPTH:
        return [unpack_answers(item, budget, depth + 1) for item in cast("list[object]", value)]
    if type(value) is dict and depth <= MAX_DEPTH:
        return {key: unpack_answers(member, budget, depth + 1) for key, member in cast("dict[object, object]", value).items()}
    package = find_package(value)
    return simplify(value, budget) if any(package == client or package.startswith(f"{client}.") for client in _CLIENTS) else value


def read(value: object, budget: Budget) -> RunData | None:
    """Read the answer of a provider."""
    for package, names, format in _ANSWERS:
        if is_instance_of(value, package, *names):
            why = "one answer of a provider shows the last step only: return the messages of the whole loop"
            return RunData(document=simplify(value, budget), format=format).mark_calls(why)
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the chunks of one streamed chat completion."""
    if not are_instances(items, "openai", "ChatCompletionChunk"):
        return None
    deltas = [read_member(choice, "delta") for item in items for choice in list_members(item, "choices")]
    why = "the chunks of one completion show the last step only: return the messages of the whole loop"
    return RunData(document={"text": join_texts(deltas, "content", budget)}).mark_calls(why)


FRAMEWORK = Framework(name="a provider's client", page="", packages=("openai", "litellm", "anthropic"), read=read, read_stream=read_stream)
