"""autogen of old and its continuation in ag2 0.x: two conversable agents."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from autogen import ConversableAgent, register_function

    def lookup_order(id: int) -> str:
        return json.dumps(shop.lookup_order(id))

    def refund(id: int, amount: float) -> str:
        return json.dumps(shop.refund(id, amount))

    def search_docs(query: str) -> str:
        return json.dumps(shop.search_docs(query))

    class Conversation:
        """One conversation."""

        def __init__(self) -> None:
            entry = {"model": shop.MODEL, "api_key": "sk-none", "base_url": os.environ["MODEL_URL"] + "/v1", "price": [0, 0]}
            self.agent = ConversableAgent(
                "shop_agent", system_message=shop.SYSTEM, llm_config={"config_list": [entry], "cache_seed": None}, human_input_mode="NEVER"
            )
            self.user = ConversableAgent(
                "customer",
                llm_config=False,
                human_input_mode="NEVER",
                default_auto_reply="",
                is_termination_msg=lambda m: not m.get("tool_calls"),
            )
            for function in (lookup_order, refund, search_docs):
                register_function(function, caller=self.agent, executor=self.user, description=shop.describe(function.__name__))
            self.first = True

        def ask(self, text: str, streamed: bool) -> str:
            clear, self.first = self.first, False
            result = self.user.initiate_chat(self.agent, message=text, clear_history=clear, max_turns=6, silent=True)
            return str(result.chat_history[-1]["content"])

        def messages(self) -> dict[str, Any]:
            return {"ag2-history": self.user.chat_messages[self.agent]}

    return Conversation
