"""agno."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb
    from agno.models.openai import OpenAIChat, OpenAIResponses

    kind = OpenAIResponses if settings.get("api") == "responses" else OpenAIChat

    def make() -> Conversation:
        model = kind(id=shop.MODEL, base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        agent = Agent(
            name="shop_agent",
            model=model,
            tools=list(shop.TOOLS.values()),
            instructions=shop.SYSTEM,
            db=InMemoryDb(),
            add_history_to_context=True,
            telemetry=False,
        )
        return Conversation(agent)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.results: list[Any] = []

    def ask(self, text: str, streamed: bool) -> str:
        if streamed:
            found = ""
            for event in self.agent.run(text, session_id="s1", stream=True, stream_events=True):
                if type(event).__name__ == "RunContentEvent":
                    found += str(event.content or "")
            return found
        result = self.agent.run(text, session_id="s1")
        self.results.append(result)
        return str(result.content)

    def messages(self) -> dict[str, Any]:
        if not self.results:
            return {}
        messages = [json.loads(json.dumps(m.to_dict(), default=str)) for m in self.results[-1].messages]
        return {"agno": messages, "agno-run": json.loads(json.dumps([r.to_dict() for r in self.results], default=str))}
