"""crewai: a crew of one agent and one task."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    tools = [tool(name)(function) for name, function in shop.TOOLS.items()]

    class Conversation:
        """One conversation; a crew has no memory, so every turn is a task with the earlier messages."""

        def __init__(self) -> None:
            model = LLM(model=f"openai/{shop.MODEL}", base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
            self.agent = Agent(role="Shop agent", goal="Help the customer", backstory=shop.SYSTEM, tools=tools, llm=model)

        def ask(self, text: str, streamed: bool) -> str:
            self.agent.llm.stream = streamed
            task = Task(description=text, expected_output="An answer to the customer", agent=self.agent)
            return str(Crew(agents=[self.agent], tasks=[task]).kickoff())

    return Conversation
