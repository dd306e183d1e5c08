"""Message lists of providers and frameworks: whose they are, and the evidence in them.

Accepted are a bare list of messages, `{"messages": [...]}` with keys of plain evidence beside it (`case`, `usage`, `now`, ...), the answers
of the providers' endpoints as they come, and the envelopes in which frameworks store them. Each format is known by marks no other has;
messages of nothing but role and text are the same everywhere and are read as OpenAI's. Messages with marks of two formats are refused, and
so is an envelope with a list or an object that is not understood: it could hold more messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages import adk as messages_adk
from proctor.evidence.messages import ag2 as messages_ag2
from proctor.evidence.messages import agent_framework as messages_agent_framework
from proctor.evidence.messages import agno as messages_agno
from proctor.evidence.messages import ai_sdk as messages_ai_sdk
from proctor.evidence.messages import ai_sdk_steps as messages_ai_sdk_steps
from proctor.evidence.messages import anthropic as messages_anthropic
from proctor.evidence.messages import assistants as messages_assistants
from proctor.evidence.messages import autogen as messages_autogen
from proctor.evidence.messages import bedrock as messages_bedrock
from proctor.evidence.messages import beeai as messages_beeai
from proctor.evidence.messages import claude as messages_claude
from proctor.evidence.messages import cohere as messages_cohere
from proctor.evidence.messages import gemini as messages_gemini
from proctor.evidence.messages import genkit as messages_genkit
from proctor.evidence.messages import haystack as messages_haystack
from proctor.evidence.messages import langchain as messages_langchain
from proctor.evidence.messages import llama_index as messages_llama_index
from proctor.evidence.messages import mistral as messages_mistral
from proctor.evidence.messages import openai as messages_openai
from proctor.evidence.messages import pydantic_ai as messages_pydantic_ai
from proctor.evidence.messages import responses as messages_responses
from proctor.evidence.messages import semantic_kernel as messages_semantic_kernel
from proctor.evidence.messages import smolagents as messages_smolagents
from proctor.evidence.messages.builder import EVERYTHING, MISSING, Opened, Reader, list_with_paths
from proctor.evidence.messages.markers import weigh_signs, weigh_steps
from proctor.evidence.plain.record import KEYS, read_plain
from proctor.evidence.platforms import mcplab
from proctor.evidence.shared.conversation import Message, build_evidence
from proctor.evidence.shared.truncated_conversations import mark_beginning, tells_of_gap
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten, show


class MessageFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One format in which messages are written down."""

    name: str
    """What `--evidence-format` takes."""
    summary: str
    marks: Callable[[dict[str, Any]], bool]
    """Whether a message can only be of this form."""
    read: Reader
    open: Callable[[Json], Opened | None] | None = None
    """Finds the messages in an envelope of this form; nothing where the document is no such envelope."""
    extends: tuple[str, ...] = ()
    """Forms whose marks this one's messages bear too."""
    beside: frozenset[str] = frozenset()
    """Keys beside `messages` that carry no messages in this form."""
    keys: tuple[str, ...] = ("messages",)
    finish: Callable[[list[Message], dict[str, Json], Unknowns], list[Message]] | None = None
    """Adds what stands beside the messages and belongs to them."""


def _open_object(open: Callable[[dict[str, Any]], Opened | None]) -> Callable[[Json], Opened | None]:
    return lambda document: open(document) if isinstance(document, dict) else None


_ALL = (
    MessageFormat(
        name="openai",
        summary="OpenAI chat messages or a chat completion",
        marks=messages_openai.is_own_message,
        read=messages_openai.read,
        open=_open_object(messages_openai.open_completion),
        keys=("messages", "choices"),
    ),
    MessageFormat(
        name="responses",
        summary="items or an answer of OpenAI's Responses API",
        marks=messages_responses.is_item,
        read=messages_responses.read,
        open=_open_object(messages_responses.open_response),
        keys=("output",),
    ),
    MessageFormat(
        name="assistants",
        summary="thread messages and run steps of OpenAI's Assistants API",
        marks=messages_assistants.is_own_message,
        read=messages_assistants.read,
        open=_open_object(messages_assistants.open_lists),
        keys=("run_steps",),
    ),
    MessageFormat(
        name="anthropic",
        summary="Anthropic messages or an answer",
        marks=messages_anthropic.is_own_message,
        read=messages_anthropic.read,
        open=_open_object(messages_anthropic.open_answer),
        beside=messages_anthropic.list_harmless_keys(),
        keys=("messages", "content"),
    ),
    MessageFormat(
        name="claude",
        summary="the stream of a run of the Claude Agent SDK or of Claude Code, as a list",
        marks=messages_claude.is_own_message,
        read=messages_claude.read,
        open=messages_claude.open_stream,
    ),
    MessageFormat(
        name="gemini",
        summary="Gemini contents or an answer",
        marks=messages_gemini.is_own_message,
        read=messages_gemini.read,
        open=_open_object(messages_gemini.open_contents),
        keys=("contents", "candidates"),
    ),
    MessageFormat(
        name="langchain",
        summary="LangChain messages",
        marks=messages_langchain.is_own_message,
        read=messages_langchain.read,
        beside=frozenset(("remaining_steps", "is_last_step", *messages_langchain.BESIDE)),
        finish=messages_langchain.finish,
    ),
    MessageFormat(
        name="ai-sdk",
        summary="AI SDK messages, or the steps of a result",
        marks=messages_ai_sdk.is_own_message,
        read=messages_ai_sdk.read,
        open=messages_ai_sdk_steps.open_result,
        keys=("steps",),
    ),
    MessageFormat(
        name="pydantic-ai",
        summary="Pydantic AI messages",
        marks=messages_pydantic_ai.is_own_message,
        read=messages_pydantic_ai.read,
        open=_open_object(messages_pydantic_ai.open_result),
        keys=("all_messages",),
    ),
    MessageFormat(
        name="bedrock",
        summary="messages of Bedrock's Converse and of Strands",
        marks=messages_bedrock.is_own_message,
        read=messages_bedrock.read,
        open=_open_object(messages_bedrock.open_answer),
    ),
    MessageFormat(
        name="haystack",
        summary="Haystack messages",
        marks=messages_haystack.is_own_message,
        read=messages_haystack.read,
        beside=frozenset(("last_message", "step_count", "token_usage", "tool_call_counts")),
    ),
    MessageFormat(
        name="agent-framework",
        summary="messages or a session of Microsoft Agent Framework",
        marks=messages_agent_framework.is_own_message,
        read=messages_agent_framework.read,
        open=_open_object(messages_agent_framework.open_session),
    ),
    MessageFormat(
        name="semantic-kernel",
        summary="a Semantic Kernel chat history",
        marks=messages_semantic_kernel.is_own_message,
        read=messages_semantic_kernel.read,
        beside=frozenset(("system_message",)),
    ),
    MessageFormat(
        name="autogen",
        summary="AutoGen messages, a task result or an agent's state",
        marks=messages_autogen.is_own_message,
        read=messages_autogen.read,
        open=messages_autogen.open_state,
        keys=("llm_context",),
    ),
    MessageFormat(
        name="ag2", summary="the history of a chat of AG2", marks=messages_ag2.is_own_message, read=messages_ag2.read, extends=("openai",)
    ),
    MessageFormat(
        name="llama-index",
        summary="LlamaIndex messages or a chat store",
        marks=messages_llama_index.is_own_message,
        read=messages_llama_index.read,
        open=_open_object(messages_llama_index.open_store),
        keys=("chat_store",),
    ),
    MessageFormat(
        name="adk",
        summary="a session of Google ADK, or its events",
        marks=messages_adk.is_own_message,
        read=messages_adk.read,
        open=_open_object(messages_adk.open_session),
        keys=("events",),
    ),
    MessageFormat(
        name="cohere",
        summary="Cohere messages or an answer",
        marks=messages_cohere.is_own_message,
        read=messages_cohere.read,
        open=_open_object(messages_cohere.open_answer),
        extends=("openai",),
    ),
    MessageFormat(
        name="mistral", summary="Mistral messages", marks=messages_mistral.is_own_message, read=messages_mistral.read, extends=("openai",)
    ),
    MessageFormat(
        name="agno",
        summary="Agno messages or runs",
        marks=messages_agno.is_own_message,
        read=messages_agno.read,
        open=messages_agno.open_runs,
        extends=("openai",),
    ),
    MessageFormat(
        name="smolagents", summary="steps of smolagents' memory", marks=messages_smolagents.is_own_message, read=messages_smolagents.read
    ),
    MessageFormat(name="beeai", summary="BeeAI messages", marks=messages_beeai.is_own_message, read=messages_beeai.read),
    MessageFormat(
        name="genkit", summary="Genkit messages", marks=messages_genkit.is_own_message, read=messages_genkit.read, extends=("bedrock",)
    ),
)

MESSAGE_FORMATS: dict[str, MessageFormat] = {family.name: family for family in _ALL}

# Keys of plain evidence that may stand beside messages; the others would contradict them.
BESIDE = frozenset(
    ("case", "context", "timezone", "now", "available_tools", "renders", "state", "http_status", "duration_ms", "error", "metadata")
)
_TAKEN = frozenset((*HOLDERS, "tools", "id", "model", "spans", "input", "meta", "responseMetadata", "response_metadata"))
_HARMLESS_ENDS = ("id", "_at", "At", "time", "Time", "timestamp", "name", "Name", "version", "status", "reason", "Reason", "type", "object")


def recognise_formats(document: Json) -> list[str]:
    """Return the formats whose marks a document bears: several if it mixes them, none if these are no messages."""
    if mcplab.sniff(document):
        # Its lines hold messages too, but say themselves what they are.
        return []
    # An envelope decides before the messages in it, which may look like another format's: several frameworks store OpenAI's form.
    opening = [family.name for family in _ALL if family.open is not None and family.open(document) is not None]
    if opening:
        return _drop_wider_formats(opening)
    found = _find_entries(document)
    if found is None:
        return []
    marked = _drop_wider_formats([family.name for family in _ALL if any(family.marks(entry) for entry in found)])
    if marked:
        return marked
    if not all(_is_common(entry) for entry in found):
        return []
    return ["ag2"] if messages_ag2.is_history(found) else ["openai"]


def make_reader(name: str) -> Callable[[Json], list[Evidence]]:
    """Return the function that reads a document of this format."""
    return lambda document: [_read(document, MESSAGE_FORMATS[name])]


def find_broken_entry(document: Json) -> EvidenceError | None:
    """Return the error for a list that begins like messages but has an entry that is none, else None."""
    found = _find_entries(document)
    if not found or not _is_common(found[0]):
        return None
    at = next((index for index, entry in enumerate(found) if not _is_common(entry)), None)
    where = "$.messages" if isinstance(document, dict) else "$"
    return None if at is None else EvidenceError(f"{where}[{at}]: not a message: it has no role with content, parts or tool calls")


def _drop_wider_formats(names: list[str]) -> list[str]:
    covered = {wider for name in names for wider in MESSAGE_FORMATS[name].extends}
    return [name for name in names if name not in covered]


def _find_entries(document: Json) -> list[dict[str, Any]] | None:
    entries = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    # An empty bare list holds nothing at all; `{"messages": []}` is a conversation that never began.
    return None if not entries and not isinstance(document, dict) else entries


def _is_common(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("role"), str) and any(key in entry for key in ("content", "tool_calls", "function_call"))


def _read(document: Json, family: MessageFormat) -> Evidence:
    opened = (family.open(document) if family.open is not None else None) or _open_plainly(document)
    unknowns = Unknowns()
    for part, why in opened.unknowns:
        unknowns.mark(part, why)
    entries: list[tuple[str, dict[str, Any]]] = []
    for at, entry in opened.entries:
        if not isinstance(entry, dict):
            raise EvidenceError(f"{at}: expected a message, found {show(entry, 40)}")
        entries.append((at, entry))
    messages = family.read(entries, unknowns)
    if family.finish is not None:
        messages = family.finish(messages, opened.beside, unknowns)
    spoken = [message.role for message in messages if message.role in ("assistant", "user")]
    if spoken[:1] == ["assistant"] and spoken[-1] == "user":
        unknowns.mark("answer", "the assistant begins and nobody answers the user, so the roles may be the wrong way round")
    # MCPJam judges calls by its spans; what a tool answered may be left out.
    promised = not (family.name == "ai-sdk" and "spans" in opened.beside)
    usage = opened.usage or find_usage(opened.beside)
    if usage is not None and usage.total_tokens is None and (usage.input_tokens is None or usage.output_tokens is None):
        unknowns.mark("usage", "$.usage: tokens of one kind are not told")
    evidence = build_evidence(messages, unknowns, usage=usage, results_promised=promised)
    if family.name == "ai-sdk":
        calls = messages_ai_sdk.mark_failed_calls(evidence.tool_calls or (), opened.beside.get("spans"))
        evidence = msgspec.structs.replace(evidence, tool_calls=calls)
    evidence = _with_envelope(evidence, opened, family, unknowns)
    weigh_signs(document, entries, evidence.tool_calls or (), unknowns)
    weigh_steps(document, spoken.count("assistant"), unknowns)
    if evidence.input is None and not opened.is_whole:
        mark_beginning(unknowns)
    return msgspec.structs.replace(evidence, account=unknowns.close_account(f"{family.name} messages"))


def _open_plainly(document: Json) -> Opened:
    if isinstance(document, list):
        return Opened(entries=list_with_paths(document, "$"))
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise EvidenceError("$: expected a list of messages, or an object with a list under messages")
    return Opened(
        entries=list_with_paths(document["messages"], "$.messages"),
        beside={key: value for key, value in document.items() if key != "messages"},
    )


def _with_envelope(evidence: Evidence, opened: Opened, family: MessageFormat, unknowns: Unknowns) -> Evidence:
    envelope = opened.beside
    strange = _weigh_envelope(evidence, envelope, family, unknowns)
    given = {key: value for key, value in envelope.items() if key in BESIDE and value is not None}
    tools = _list_offered_tools(envelope.get("tools"))
    if tools and "available_tools" not in given:
        given["available_tools"] = tools
    model = opened.model or text_or_none(envelope.get("model")) or evidence.model
    ids = {key: envelope[key] for key in ("id", "model") if isinstance(envelope.get(key), str)}
    if opened.model is not None:
        ids["model"] = opened.model
    # Read as plain evidence, so that these keys follow the same rules and give the same errors as there.
    beside = read_plain(given)
    fields = {key: getattr(beside, key) for key in given if key in KEYS and key != "metadata"}
    return msgspec.structs.replace(evidence, **fields, model=model, metadata={**strange, **ids, **beside.metadata})


def _weigh_envelope(evidence: Evidence, envelope: dict[str, Json], family: MessageFormat, unknowns: Unknowns) -> dict[str, Json]:
    """Refuse what could hold more messages, doubt what could be the answer; return what is kept beside."""
    kept: dict[str, Json] = {}
    for key, value in envelope.items():
        if key in BESIDE or key in _TAKEN or key in family.beside or value in (None, "", False) or value == [] or value == {}:
            continue
        if isinstance(value, (list, dict)):
            told = f"$.{shorten(key, 40)}: this key beside the messages is not understood ({family.name})"
            raise EvidenceError(f"{told}; leave it out, or put it into metadata")
        kept[key] = value
        if tells_of_gap(key, value) and not key.endswith(_HARMLESS_ENDS):
            unknowns.mark_parts(EVERYTHING, f"$.{shorten(key, 40)}: {MISSING}")
        if isinstance(value, str) and value != evidence.text and not key.endswith(_HARMLESS_ENDS):
            unknowns.mark("answer", f"$.{shorten(key, 40)}: this key beside the messages is not understood")
    return kept


def _list_offered_tools(tools: Json) -> list[str]:
    """Return the names of the tools a request offered, in each provider's spelling."""
    names: list[str] = []
    for tool in map(dict_or_empty, list_of(tools)):
        declared = [tool, dict_or_empty(tool.get("function")), dict_or_empty(tool.get("toolSpec"))]
        declared.extend(map(dict_or_empty, list_of(find_first(tool, "functionDeclarations", "function_declarations"))))
        names.extend(entry["name"] for entry in declared if isinstance(entry.get("name"), str))
    return names
