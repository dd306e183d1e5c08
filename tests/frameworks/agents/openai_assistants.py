"""The data that OpenAI's Assistants left: the messages of a thread and the steps of its runs, built with the package's own types.

The service no longer exists, so the steps follow the scripted model and are put into the types by hand.
"""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import openai_sdk


def prepare(settings: dict[str, Any]) -> Any:
    client = openai_sdk.make_client(settings)
    return lambda: Agent(client)


class Agent:
    """One thread."""

    def __init__(self, client: Any) -> None:
        self.loop = openai_sdk.Chat(client)
        self.thread: list[Any] = []
        self.steps: list[Any] = []
        self.runs = 0

    def ask(self, text: str, streamed: bool) -> str:
        self.runs += 1
        self.say("user", text)
        self.loop.history.append({"role": "user", "content": text})
        while True:
            message = self.loop.complete()
            self.loop.history.append(message)
            if not message.get("tool_calls"):
                id = self.say("assistant", str(message["content"]))
                self.step("message_creation", {"type": "message_creation", "message_creation": {"message_id": id}})
                return str(message["content"])
            calls = []
            for call in message["tool_calls"]:
                result, _ = shop.use(call["function"]["name"], json.loads(call["function"]["arguments"]))
                self.loop.history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                calls.append({"id": call["id"], "type": "function", "function": {**call["function"], "output": result}})
            self.step("tool_calls", {"type": "tool_calls", "tool_calls": calls})

    def say(self, role: str, text: str) -> str:
        from openai.types.beta.threads import Message

        id = f"msg_{len(self.thread) + 1}"
        content = [{"type": "text", "text": {"value": text, "annotations": []}}]
        rest = {"assistant_id": "asst_1", "run_id": f"run_{self.runs}"} if role == "assistant" else {}
        fields = {
            "id": id,
            "object": "thread.message",
            "created_at": 1794700000,
            "thread_id": "thread_1",
            "status": "completed",
            "attachments": [],
            "metadata": {},
        }
        self.thread.append(
            Message.model_validate({**fields, "role": role, "content": content, **rest}).model_dump(mode="json", exclude_none=True)
        )
        return id

    def step(self, kind: str, details: dict[str, Any]) -> None:
        from openai.types.beta.threads.runs import RunStep

        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        fields = {
            "id": f"step_{len(self.steps) + 1}",
            "object": "thread.run.step",
            "created_at": 1794700000,
            "run_id": f"run_{self.runs}",
            "assistant_id": "asst_1",
            "thread_id": "thread_1",
            "status": "completed",
        }
        step = RunStep.model_validate({**fields, "type": kind, "step_details": details, "usage": usage})
        self.steps.append(step.model_dump(mode="json", exclude_none=True))

    def messages(self) -> dict[str, Any]:
        return {"openai-assistants": {"messages": self.thread, "steps": self.steps}}
