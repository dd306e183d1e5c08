"""google-adk."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    def refund(id: int, amount: float) -> Any:
        """Refund an amount of an order."""
        if not settings.get("reported"):
            return shop.refund(id, amount)
        try:
            return shop.refund(id, amount)
        except ValueError as error:
            return {"error": str(error)}

    def handle(tool: Any, args: Any, tool_context: Any, error: Exception) -> Any:
        return {"error": str(error)}

    # Older versions have no such callback: there the tool itself reports its error.
    options = {} if settings.get("reported") else {"on_tool_error_callback": handle}
    os.environ["GOOGLE_GEMINI_BASE_URL"] = os.environ["MODEL_URL"]

    def make() -> Conversation:
        agent = LlmAgent(
            name="shop_agent",
            model=shop.GEMINI_MODEL,
            instruction=shop.SYSTEM,
            tools=[shop.lookup_order, refund, shop.search_docs],
            **options,
        )
        return Conversation(InMemoryRunner(agent=agent, app_name="shop"), types)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, runner: Any, types: Any) -> None:
        self.runner, self.types = runner, types
        self.loop = shared_loop()
        self.session = self.loop.run_until_complete(runner.session_service.create_session(app_name="shop", user_id="u"))

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        from google.adk.agents.run_config import RunConfig, StreamingMode

        config = RunConfig(streaming_mode=StreamingMode.SSE) if streamed else RunConfig()
        message = self.types.Content(role="user", parts=[self.types.Part(text=text)])
        found = ""
        async for event in self.runner.run_async(user_id="u", session_id=self.session.id, new_message=message, run_config=config):
            if event.is_final_response() and event.content and not event.partial:
                found = "".join(part.text or "" for part in event.content.parts)
        return found

    def messages(self) -> dict[str, Any]:
        session = self.loop.run_until_complete(
            self.runner.session_service.get_session(app_name="shop", user_id="u", session_id=self.session.id)
        )
        return {
            "adk-session-snake": session.model_dump(mode="json", exclude_none=True),
            "adk-events": [e.model_dump(mode="json", by_alias=True, exclude_none=True) for e in session.events],
        }
