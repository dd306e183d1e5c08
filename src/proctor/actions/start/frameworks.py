"""A table of agent frameworks, usable without installing them: how an agent of each is created, found in code, and called.

`makers` are the names that create an agent, as an import spells them. `ask` are the lines of a thin adapter: `{agent}` is replaced by the
agent, and the adapter returns the result of the framework, which the target reads. Cases run concurrently, and a case may have several
turns: each case has its own conversation, stored by its `session_id`. An agent with an internal conversation is called one turn at a
time, and gets the conversation of that case first.
"""

from __future__ import annotations

import msgspec


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """One agent framework."""

    name: str
    roots: tuple[str, ...]
    """The modules that its users import."""
    packages: tuple[str, ...]
    """Its names in a list of requirements."""
    install: str
    """What the template needs."""
    makers: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """Methods that make an agent: `builder.compile()`."""
    imports: tuple[str, ...] = ()
    """What the adapter imports."""
    before: tuple[str, ...] = ()
    """Lines between the imports and the function."""
    ask: tuple[str, ...]
    ask_by_maker: dict[str, tuple[str, ...]] = {}
    """Other lines for agents that are created by this name."""
    key: str = "OPENAI_API_KEY"
    """The variable that the template's model needs."""
    remark: str = ""
    """A remark about turns, if the framework's agent handles them itself."""


_HISTORY = ("_history = {{}}  # the messages of each case",)
_ALONE = "_alone = asyncio.Lock()  # the agent holds one conversation: one turn at a time"
_ASK_GRAPH = (
    "async def answer(message, session_id):",
    "    before = [] if {agent}.checkpointer else _history.get(session_id, [])",
    '    request = {{"messages": [*before, {{"role": "user", "content": message}}]}}',
    '    state = await {agent}.ainvoke(request, {{"configurable": {{"thread_id": session_id}}}})',
    '    _history[session_id] = state["messages"]',
    "    return state",
)
_ASK_EXECUTOR = (
    "async def answer(message, session_id):",
    "    history = _history.setdefault(session_id, [])",
    '    found = await {agent}.ainvoke({{"input": message, "chat_history": list(history)}})',
    '    history += [("human", message), ("ai", found["output"])]',
    "    return found",
)
_TEAMS = ("RoundRobinGroupChat", "SelectorGroupChat", "Swarm", "MagenticOneGroupChat")
_ASK_AUTOGEN = (
    "async def answer(message, session_id, turn):",
    "    async with _alone:",
    "        if turn == 0:",
    "            await {agent}.on_reset(CancellationToken())",
    "        else:",
    "            await {agent}.load_state(_states[session_id])",
    "        result = await {agent}.run(task=message)",
    "        _states[session_id] = await {agent}.save_state()",
    "        return result",
)
_ASK_TEAM = tuple(line.replace("on_reset(CancellationToken())", "reset()") for line in _ASK_AUTOGEN)

FRAMEWORKS: dict[str, Framework] = {
    each.name: each
    for each in (
        Framework(
            name="pydantic-ai",
            roots=("pydantic_ai",),
            packages=("pydantic-ai", "pydantic-ai-slim"),
            install="pydantic-ai-slim[openai]",
            makers=("Agent",),
            before=_HISTORY,
            ask=(
                "async def answer(message, session_id):",
                "    result = await {agent}.run(message, message_history=_history.get(session_id))",
                "    _history[session_id] = result.all_messages()",
                "    return result",
            ),
        ),
        Framework(
            name="langgraph",
            roots=("langgraph",),
            packages=("langgraph",),
            install="langgraph langchain langchain-openai",
            makers=("create_react_agent",),
            methods=("compile",),
            before=_HISTORY,
            ask=_ASK_GRAPH,
        ),
        Framework(
            name="langchain",
            roots=("langchain", "langchain_core", "langchain_classic"),
            packages=("langchain", "langchain-core", "langchain-openai"),
            install="langchain langchain-openai",
            makers=("create_agent", "AgentExecutor", "initialize_agent"),
            before=_HISTORY,
            ask=_ASK_GRAPH,
            ask_by_maker=dict.fromkeys(("AgentExecutor", "initialize_agent"), _ASK_EXECUTOR),
        ),
        Framework(
            name="openai-agents",
            roots=("agents",),
            packages=("openai-agents",),
            install="openai-agents",
            makers=("Agent",),
            imports=("from agents import Runner",),
            before=_HISTORY,
            ask=(
                "async def answer(message, session_id):",
                '    messages = [*_history.get(session_id, []), {{"role": "user", "content": message}}]',
                "    result = await Runner.run({agent}, messages)",
                "    _history[session_id] = result.to_input_list()",
                "    return result",
            ),
        ),
        Framework(
            name="crewai",
            roots=("crewai",),
            packages=("crewai",),
            install="crewai",
            makers=("Crew",),
            ask=("def answer(message):", '    return {agent}.copy().kickoff(inputs={{"{field}": message}})'),
            remark="a crew has no conversation: in a case with several turns each turn starts from the beginning",
        ),
        Framework(
            name="autogen",
            roots=("autogen_agentchat",),
            packages=("autogen-agentchat",),
            install="autogen-agentchat autogen-ext[openai]",
            makers=("AssistantAgent", *_TEAMS),
            imports=("import asyncio", "from autogen_core import CancellationToken"),
            before=(_ALONE, "_states = {{}}  # the conversation of each case"),
            ask=_ASK_AUTOGEN,
            ask_by_maker=dict.fromkeys(_TEAMS, _ASK_TEAM),
        ),
        Framework(
            name="ag2",
            roots=("ag2",),
            packages=("ag2",),
            install="ag2[openai]",
            makers=("Agent",),
            before=("_replies = {{}}  # the last one of each case, which goes on with it",),
            ask=(
                "async def answer(message, session_id):",
                "    _replies[session_id] = await _replies.get(session_id, {agent}).ask(message)",
                "    return _replies[session_id]",
            ),
        ),
        Framework(
            name="ag2-classic",
            roots=("autogen",),
            packages=("ag2-classic", "pyautogen"),
            install="ag2[openai]<0.10",
            makers=("ConversableAgent", "AssistantAgent"),
            imports=("import threading",),
            before=(
                "_alone = threading.Lock()  # the agent talks to one partner: one turn at a time",
                "_partners = {{}}  # with whom it talks in each case",
            ),
            ask=(
                "def answer(message, session_id, turn):",
                "    with _alone:",
                "        {agent}.run_executor = _partners.get(session_id)",
                "        response = {agent}.run(message=message, clear_history=turn == 0, max_turns=3, user_input=False)",
                "        response.process()",
                "        _partners[session_id] = {agent}.run_executor",
                "        return response",
            ),
        ),
        Framework(
            name="agno",
            roots=("agno",),
            packages=("agno",),
            install="agno openai",
            makers=("Agent", "Team"),
            ask=("async def answer(message, session_id):", "    return await {agent}.arun(message, session_id=session_id)"),
            remark="the agent remembers earlier turns of a case only with a `db` and `add_history_to_context=True`",
        ),
        Framework(
            name="google-adk",
            roots=("google.adk",),
            packages=("google-adk",),
            install="google-adk",
            makers=("Agent", "LlmAgent", "SequentialAgent", "LoopAgent", "ParallelAgent"),
            imports=("from google.adk.runners import InMemoryRunner", "from google.genai import types"),
            before=('_runner = InMemoryRunner(agent={agent}, app_name="proctor")',),
            ask=(
                "async def answer(message, session_id, turn):",
                "    if turn == 0:",
                '        await _runner.session_service.create_session(app_name="proctor", user_id="p", session_id=session_id)',
                '    content = types.Content(role="user", parts=[types.Part(text=message)])',
                '    return [e async for e in _runner.run_async(user_id="p", session_id=session_id, new_message=content)]',
            ),
            key="GOOGLE_API_KEY",
        ),
        Framework(
            name="llamaindex",
            roots=("llama_index",),
            packages=("llama-index", "llama-index-core"),
            install="llama-index-core llama-index-llms-openai",
            makers=("FunctionAgent", "ReActAgent", "CodeActAgent", "AgentWorkflow"),
            imports=("from llama_index.core.memory import Memory",),
            before=("_memories = {{}}  # one for each case",),
            ask=(
                "async def answer(message, session_id):",
                "    if session_id not in _memories:",
                "        _memories[session_id] = Memory.from_defaults(session_id=session_id)",
                "    return await {agent}.run(user_msg=message, memory=_memories[session_id])",
            ),
        ),
        Framework(
            name="smolagents",
            roots=("smolagents",),
            packages=("smolagents",),
            install="smolagents[openai]",
            makers=("CodeAgent", "ToolCallingAgent"),
            imports=("import threading",),
            before=(
                "_alone = threading.Lock()  # the agent holds one conversation: one turn at a time",
                "_steps = {{}}  # the conversation of each case",
            ),
            ask=(
                "def answer(message, session_id, turn):",
                "    with _alone:",
                "        {agent}.memory.steps = _steps.get(session_id, [])",
                "        result = {agent}.run(message, reset=turn == 0, return_full_result=True)",
                "        _steps[session_id] = {agent}.memory.steps",
                "        return result",
            ),
        ),
        Framework(
            name="strands",
            roots=("strands",),
            packages=("strands-agents",),
            install="strands-agents[openai]",
            makers=("Agent",),
            imports=("import asyncio",),
            before=(_ALONE, "_first = list({agent}.messages)", "_history = {{}}  # the messages of each case"),
            ask=(
                "async def answer(message, session_id):",
                "    async with _alone:",
                "        {agent}.messages = _history.get(session_id) or list(_first)",
                "        result = await {agent}.invoke_async(message)",
                "        _history[session_id] = {agent}.messages",
                "        return result",
            ),
        ),
        Framework(
            name="haystack",
            roots=("haystack",),
            packages=("haystack-ai",),
            install="haystack-ai",
            makers=("Agent",),
            imports=("from haystack.dataclasses import ChatMessage",),
            before=_HISTORY,
            ask=(
                "def answer(message, session_id):",
                "    result = {agent}.run(messages=[*_history.get(session_id, []), ChatMessage.from_user(message)])",
                '    _history[session_id] = [each for each in result["messages"] if not each.is_from("system")]  # the agent adds it again',
                "    return result",
            ),
        ),
        Framework(
            name="semantic-kernel",
            roots=("semantic_kernel",),
            packages=("semantic-kernel",),
            install="semantic-kernel",
            makers=("ChatCompletionAgent", "OpenAIAssistantAgent", "AzureAIAgent"),
            before=("_threads = {{}}  # one for each case",),
            ask=(
                "async def answer(message, session_id):",
                "    response = await {agent}.get_response(messages=message, thread=_threads.get(session_id))",
                "    _threads[session_id] = response.thread",
                "    return response",
            ),
        ),
        Framework(
            name="agent-framework",
            roots=("agent_framework",),
            packages=("agent-framework", "agent-framework-core"),
            install="agent-framework-core agent-framework-openai",
            makers=("Agent", "ChatAgent"),
            methods=("create_agent", "as_agent"),
            before=("_sessions = {{}}  # one for each case",),
            ask=(
                "async def answer(message, session_id):",
                "    if session_id not in _sessions:",
                "        _sessions[session_id] = {agent}.create_session(session_id=session_id)",
                "    return await {agent}.run(message, session=_sessions[session_id])",
            ),
        ),
        Framework(
            name="dspy",
            roots=("dspy",),
            packages=("dspy", "dspy-ai"),
            install="dspy",
            makers=("ReAct", "ChainOfThought", "Predict", "ProgramOfThought"),
            ask=("def answer(message):", "    return {agent}({field}=message)"),
            remark="a program of DSPy has no conversation: in a case with several turns each turn starts from the beginning",
        ),
    )
}
"""Every framework by name; those built on others come first."""
