"""A hand-written loop over the google-genai package, or its automatic function calling."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=os.environ["MODEL_URL"]))
    return lambda: Agent(client, settings.get("automatic", False))


class Agent:
    """One conversation."""

    def __init__(self, client: Any, automatic: bool) -> None:
        from google.genai import types

        self.client, self.types = client, types
        self.history: list[Any] = []
        self.chat = client.chats.create(model=shop.GEMINI_MODEL, config=self.configure(list(shop.TOOLS.values()))) if automatic else None

    def configure(self, tools: list[Any]) -> Any:
        return self.types.GenerateContentConfig(system_instruction=shop.SYSTEM, tools=tools)

    def ask(self, text: str, streamed: bool) -> str:
        if self.chat and not streamed:
            return str(self.chat.send_message(text).text)
        if self.chat:
            return "".join(chunk.text or "" for chunk in self.chat.send_message_stream(text))
        types = self.types
        self.history.append(types.Content(role="user", parts=[types.Part(text=text)]))
        while True:
            parts = self.generate(streamed)
            self.history.append(types.Content(role="model", parts=parts))
            calls = [part.function_call for part in parts if part.function_call]
            if not calls:
                return "".join(part.text or "" for part in parts)
            results = []
            for call in calls:
                try:
                    response = {"result": shop.TOOLS[call.name](**call.args)}
                except ValueError as error:
                    response = {"error": str(error)}
                results.append(types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response)))
            self.history.append(types.Content(role="user", parts=results))

    def generate(self, streamed: bool) -> list[Any]:
        declared = [
            self.types.FunctionDeclaration(name=n, description=shop.describe(n), parameters_json_schema=s)
            for n, s in shop.PARAMETERS.items()
        ]
        options = {
            "model": shop.GEMINI_MODEL,
            "contents": self.history,
            "config": self.configure([self.types.Tool(function_declarations=declared)]),
        }
        if not streamed:
            return self.client.models.generate_content(**options).candidates[0].content.parts
        return [part for chunk in self.client.models.generate_content_stream(**options) for part in chunk.candidates[0].content.parts]

    def messages(self) -> dict[str, Any]:
        found = self.chat.get_history() if self.chat else self.history
        return {"gemini-snake": [content.model_dump(mode="json", exclude_none=True) for content in found]}
