"""A hand-written loop over the openai package: chat completions or responses."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from tests.frameworks import shop


def make_client(settings: dict[str, Any]) -> Any:
    """The openai client, or one of those that copied its form."""
    address = os.environ["MODEL_URL"] + settings.get("path", "/v1")
    module, _, name = settings.get("client", "openai.OpenAI").rpartition(".")
    if module == "litellm":
        import litellm

        litellm.callbacks = [settings["callback"]] if "callback" in settings else []
        return LiteLLM()
    client = getattr(importlib.import_module(module), name)(base_url=address, api_key="sk-none", **settings.get("options", {}))
    if settings.get("wrapper") == "langsmith":
        from langsmith.wrappers import wrap_openai

        return wrap_openai(client)
    return client


class LiteLLM:
    """litellm's function in the form of a client."""

    def __init__(self) -> None:
        self.chat = self.completions = self

    def create(self, *, model: str, **options: Any) -> Any:
        import litellm

        return litellm.completion(model=f"openai/{model}", api_base=os.environ["MODEL_URL"] + "/v1", api_key="sk-none", **options)


def prepare(settings: dict[str, Any]) -> Any:
    client = make_client(settings)
    if settings.get("api") == "responses":
        return lambda: Responses(client)
    return lambda: Chat(client, settings.get("no_stream_options", False))


class Chat:
    """One conversation over chat completions."""

    def __init__(self, client: Any, bare: bool = False) -> None:
        self.client, self.bare = client, bare
        self.history: list[Any] = [{"role": "system", "content": shop.SYSTEM}]
        self.tools = [
            {"type": "function", "function": {"name": name, "description": shop.describe(name), "parameters": schema}}
            for name, schema in shop.PARAMETERS.items()
        ]

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            message = self.stream() if streamed else self.complete()
            self.history.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                result, _ = shop.use(call["function"]["name"], json.loads(call["function"]["arguments"]))
                self.history.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def complete(self) -> dict[str, Any]:
        done = self.client.chat.completions.create(model=shop.MODEL, messages=self.history, tools=self.tools)
        return done.choices[0].message.model_dump(exclude_none=True)

    def stream(self) -> dict[str, Any]:
        text, calls = "", {}
        options: dict[str, Any] = {} if self.bare else {"stream_options": {"include_usage": True}}
        for chunk in self.client.chat.completions.create(model=shop.MODEL, messages=self.history, tools=self.tools, stream=True, **options):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    call = calls.setdefault(
                        part.index, {"id": part.id, "type": "function", "function": {"name": part.function.name, "arguments": ""}}
                    )
                    call["function"]["arguments"] += part.function.arguments or ""
        return {"role": "assistant", "tool_calls": list(calls.values())} if calls else {"role": "assistant", "content": text}

    def messages(self) -> dict[str, Any]:
        return {"openai-chat": self.history}


class Responses:
    """One conversation over the Responses API."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []
        self.tools = [
            {"type": "function", "name": name, "description": shop.describe(name), "parameters": schema}
            for name, schema in shop.PARAMETERS.items()
        ]

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            response = self.respond(streamed)
            self.history += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return str(response.output_text)
            for call in calls:
                result, _ = shop.use(call.name, json.loads(call.arguments))
                self.history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})

    def respond(self, streamed: bool) -> Any:
        options = {"model": shop.MODEL, "instructions": shop.SYSTEM, "input": self.history, "tools": self.tools}
        if not streamed:
            return self.client.responses.create(**options)
        last = None
        for event in self.client.responses.create(stream=True, **options):
            if event.type == "response.completed":
                last = event.response
        return last

    def messages(self) -> dict[str, Any]:
        return {"openai-responses": self.history}
