"""Fake agents of frameworks: each stores its conversation where the real one does, and records what its model would see.

Every fake has `seen`: the user messages of each request to the model. Awaited fakes yield to others in between.
"""

from __future__ import annotations

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

ANSWER = {"role": "assistant", "content": "It is on its way."}


async def give_way() -> None:
    """Yield to the other cases, as a request to a model would."""
    for _ in range(5):
        await asyncio.sleep(0)


class Fake:
    """The base of all fakes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.busy = False

    def think(self, messages: list[Any]) -> None:
        """Record the user messages that the model sees."""
        users = [each for each in messages if isinstance(each, str) or each["role"] == "user"]
        self.seen.append(tuple(each if isinstance(each, str) else each["content"] for each in users))

    async def think_alone(self, messages: list[Any]) -> None:
        """The same for an agent with one conversation: a concurrent request is refused, as Strands does."""
        assert not self.busy, "the agent is already processing a request"
        self.busy = True
        await give_way()
        self.think(messages)
        await give_way()
        self.busy = False


class PydanticAgent(Fake):
    async def run(self, message: str, *, message_history: list[Any] | None = None) -> Any:
        messages = [*(message_history or []), message]
        await give_way()
        self.think(messages)
        return SimpleNamespace(all_messages=lambda: messages)


class Graph(Fake):
    checkpointer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, list[Any]] = {}

    async def ainvoke(self, inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        before = self.threads.get(config["configurable"]["thread_id"], []) if self.checkpointer else []
        messages = [*before, *inputs["messages"]]
        await give_way()
        self.think(messages)
        messages.append(ANSWER)
        self.threads[config["configurable"]["thread_id"]] = messages
        return {"messages": messages}


class GraphWithMemory(Graph):
    checkpointer = object()


class Executor(Fake):
    async def ainvoke(self, inputs: dict[str, Any]) -> dict[str, Any]:
        await give_way()
        self.think([*(text for role, text in inputs["chat_history"] if role == "human"), inputs["input"]])
        return {**inputs, "output": ANSWER["content"]}


class OpenaiAgent(Fake):
    pass


class Runner:
    @staticmethod
    async def run(agent: OpenaiAgent, inputs: list[Any]) -> Any:
        await give_way()
        agent.think(inputs)
        return SimpleNamespace(to_input_list=lambda: [*inputs, ANSWER])


class Crew(Fake):
    def copy(self) -> Crew:
        return self

    def kickoff(self, *, inputs: dict[str, str]) -> str:
        self.think([*inputs.values()])
        return ANSWER["content"]


class AutogenAgent(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.context: list[Any] = []

    async def on_reset(self, token: object) -> None:
        self.context = []

    async def reset(self) -> None:
        self.context = []

    async def save_state(self) -> dict[str, Any]:
        return {"messages": list(self.context)}

    async def load_state(self, state: dict[str, Any]) -> None:
        self.context = list(state["messages"])

    async def run(self, *, task: str) -> Any:
        self.context.append(task)
        await self.think_alone(self.context)
        return SimpleNamespace(messages=[task])


class Ag2Agent(Fake):
    async def ask(self, message: str) -> Any:
        return await self.go_on([], message)

    async def go_on(self, before: list[str], message: str) -> Any:
        await give_way()
        self.think([*before, message])
        return SimpleNamespace(ask=lambda later: self.go_on([*before, message], later))


class ClassicAg2Agent(Fake):
    run_executor: Any = None

    def run(self, *, message: str, clear_history: bool, max_turns: int, user_input: bool) -> Any:
        partner = self.run_executor = self.run_executor or SimpleNamespace(messages=[])

        def process() -> None:
            if clear_history:
                partner.messages.clear()
            partner.messages.append(message)
            self.think(partner.messages)

        return SimpleNamespace(process=process)


class AgnoAgent(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, list[str]] = {}

    async def arun(self, message: str, *, session_id: str) -> Any:
        self.sessions.setdefault(session_id, []).append(message)
        await give_way()
        self.think(self.sessions[session_id])
        return SimpleNamespace()


class AdkAgent(Fake):
    pass


class InMemoryRunner:
    def __init__(self, *, agent: AdkAgent, app_name: str) -> None:
        self.agent = agent
        self.sessions: dict[str, list[str]] = {}
        self.session_service = self

    async def create_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        assert session_id not in self.sessions, "there is such a session"
        self.sessions[session_id] = []

    async def run_async(self, *, user_id: str, session_id: str, new_message: Any) -> Any:
        self.sessions[session_id].append(new_message.parts[0].text)
        await give_way()
        self.agent.think(self.sessions[session_id])
        yield SimpleNamespace()


class Memory:
    def __init__(self) -> None:
        self.messages: list[str] = []

    @classmethod
    def from_defaults(cls, *, session_id: str) -> Memory:
        return cls()


class LlamaIndexAgent(Fake):
    async def run(self, *, user_msg: str, memory: Memory | None = None) -> Any:
        memory = memory or Memory()
        memory.messages.append(user_msg)
        await give_way()
        self.think(memory.messages)
        return SimpleNamespace()


class SmolAgent(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.memory = SimpleNamespace(steps=[])

    def run(self, task: str, *, reset: bool, return_full_result: bool) -> Any:
        if reset:
            self.memory.steps = []
        self.memory.steps.append(task)
        self.think(self.memory.steps)
        return SimpleNamespace(steps=list(self.memory.steps))


class StrandsAgent(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []

    async def invoke_async(self, message: str) -> Any:
        self.messages.append({"role": "user", "content": message})
        await self.think_alone(self.messages)
        self.messages.append(ANSWER)
        return SimpleNamespace()


class ChatMessage(dict[str, str]):
    @classmethod
    def from_user(cls, text: str) -> ChatMessage:
        return cls(role="user", content=text)

    def is_from(self, role: str) -> bool:
        return self["role"] == role


class HaystackAgent(Fake):
    def run(self, *, messages: list[ChatMessage]) -> dict[str, Any]:
        assert not any(each.is_from("system") for each in messages), "the system message is duplicated"
        self.think(messages)
        return {"messages": [ChatMessage(role="system", content="You help."), *messages, ChatMessage(ANSWER)]}


class KernelAgent(Fake):
    async def get_response(self, *, messages: str, thread: Any = None) -> Any:
        thread = thread or SimpleNamespace(messages=[])
        thread.messages.append(messages)
        await give_way()
        self.think(thread.messages)
        return SimpleNamespace(thread=thread)


class FrameworkAgent(Fake):
    def create_session(self, *, session_id: str) -> Any:
        return SimpleNamespace(messages=[])

    async def run(self, message: str, *, session: Any = None) -> Any:
        session = session or SimpleNamespace(messages=[])
        session.messages.append(message)
        await give_way()
        self.think(session.messages)
        return SimpleNamespace()


class Program(Fake):
    def __call__(self, *, question: str) -> Any:
        self.think([question])
        return SimpleNamespace()


AGENTS: tuple[tuple[str, str, type[Fake]], ...] = (
    ("pydantic-ai", "Agent", PydanticAgent),
    ("langgraph", "compile", Graph),
    ("langgraph", "compile", GraphWithMemory),
    ("langchain", "create_agent", Graph),
    ("langchain", "AgentExecutor", Executor),
    ("openai-agents", "Agent", OpenaiAgent),
    ("crewai", "Crew", Crew),
    ("autogen", "AssistantAgent", AutogenAgent),
    ("autogen", "RoundRobinGroupChat", AutogenAgent),
    ("ag2", "Agent", Ag2Agent),
    ("ag2-classic", "ConversableAgent", ClassicAg2Agent),
    ("agno", "Agent", AgnoAgent),
    ("google-adk", "Agent", AdkAgent),
    ("llamaindex", "FunctionAgent", LlamaIndexAgent),
    ("smolagents", "ToolCallingAgent", SmolAgent),
    ("strands", "Agent", StrandsAgent),
    ("haystack", "Agent", HaystackAgent),
    ("semantic-kernel", "ChatCompletionAgent", KernelAgent),
    ("agent-framework", "Agent", FrameworkAgent),
    ("dspy", "ReAct", Program),
)
"""Framework, the code that creates the agent, and its fake."""


def make_modules(agent: Fake) -> dict[str, ModuleType]:
    """Return the modules that an adapter imports, by their names: the user's own and those of frameworks."""

    def content(*, role: str, parts: list[Any]) -> Any:
        return SimpleNamespace(role=role, parts=parts)

    def part(*, text: str) -> Any:
        return SimpleNamespace(text=text)

    members: dict[str, dict[str, object]] = {
        "app": {"agent": agent},
        "agents": {"Runner": Runner},
        "autogen_core": {"CancellationToken": object},
        "google.adk.runners": {"InMemoryRunner": InMemoryRunner},
        "google.genai": {"types": SimpleNamespace(Content=content, Part=part)},
        "llama_index.core.memory": {"Memory": Memory},
        "haystack.dataclasses": {"ChatMessage": ChatMessage},
    }
    made: dict[str, ModuleType] = {}
    for name, values in members.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        vars(made[name]).update(values)
    return made
