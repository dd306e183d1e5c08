"""What is known of single instrumentations, by the names of their scopes: what they leave out, and what their silence means.

The conventions in `vocabulary` say what things are called. Whether something that a trace does not tell did not happen depends on who wrote
it; a weakness that is found is one more name here, with a row in `tests/evidence/cases/span_gaps.yaml`.
"""

from __future__ import annotations

from typing import Final

DROPS_HOSTED: Final = frozenset(
    (
        *("opentelemetry.instrumentation.openai.v1", "@traceloop/instrumentation-openai", "opentelemetry.instrumentation.openai_agents"),
        *("opentelemetry.instrumentation.anthropic", "openlit.instrumentation.openai", "openlit.instrumentation.anthropic"),
    )
)
"""Instrumentations that do not record what a provider runs itself, nor, at least of some such tools, that they were offered.

Tools that were offered and are an application's own show nothing about the others, so this goes by the scope alone.
"""
TELLS_SERVERS: Final = {"opentelemetry.instrumentation.anthropic": "com.anthropic.sdk.python"}
"""Instrumentations among these that name every tool that was offered but those of an MCP server, each with the scope of the client's own
span, which names the beta that servers need."""
RUNS_NO_TOOLS: Final = {
    "gen_ai.operation.name": ("text_completion", "completion"),
    "llm.request.type": ("completion",),
    "openai.api.type": ("chat_completions",),
}
"""Attributes that name an interface of OpenAI that runs no tools of its own."""

RUNS_ALL_TOOLS: Final = frozenset(
    (
        *("openinference.instrumentation.crewai", "openinference.instrumentation.llama_index", "openinference.instrumentation.autogen"),
        *("openinference.instrumentation.claude_agent_sdk", "openinference.instrumentation.smolagents", "haystack"),
        *("opentelemetry.instrumentation.crewai", "opentelemetry.instrumentation.llamaindex", "opentelemetry.instrumentation.agno"),
    )
)
"""Instrumentations of frameworks that run every tool themselves, with a span of each: without requests to a model those are all."""

KEEPS_ONE_CALL: Final = frozenset(("openlit.instrumentation.openai",))
"""Instrumentations that record one call of an answer of OpenAI's Responses, however many it has."""

NAMES_ENDS: Final = frozenset(("opentelemetry.instrumentation.openai.v1",))
"""Instrumentations that say why an answer ended unless it broke off; others may leave the reason empty."""

NAMES_CALLS: Final = frozenset(("@opentelemetry/instrumentation-openai",))
"""Instrumentations that name the calls of an answer in its event also where its content is not captured."""

DROPS_CALLS: Final = frozenset(("opentelemetry.instrumentation.mistralai", "opentelemetry.instrumentation.together"))
"""Instrumentations that record what a model said and never what it called."""

UNRELIABLE: Final = {
    "opentelemetry.instrumentation.haystack": "it writes the word 'replies' in place of what the model said",
}
"""Instrumentations whose messages are known to be wrong: they count as not captured."""
