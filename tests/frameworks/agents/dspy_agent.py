"""dspy's ReAct."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    import dspy

    dspy.configure(lm=dspy.LM(f"openai/{shop.MODEL}", api_base=os.environ["MODEL_URL"] + "/v1", api_key="sk-none", cache=False))

    class Support(dspy.Signature):
        """You are a shop support agent. Use the tools to help the customer."""

        question: str = dspy.InputField()
        answer: str = dspy.OutputField()

    class Conversation:
        """One conversation; every turn is a program of its own."""

        def __init__(self) -> None:
            self.agent = dspy.ReAct(Support, tools=list(shop.TOOLS.values()), max_iters=6)

        def ask(self, text: str, streamed: bool) -> str:
            self.last = self.agent(question=text)
            return str(self.last.answer)

    return Conversation
