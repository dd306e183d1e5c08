"""Message lists of providers and frameworks: how each format is recognised, and the evidence in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages import ai_sdk, anthropic, frameworks, openai, providers
from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, list_with_paths, read_all, without
from proctor.evidence.plain.record import KEYS, read_plain
from proctor.evidence.platforms import mcplab
from proctor.evidence.shared.conversation import NO_BEGINNING, build_evidence
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_marker, find_stop_marker
from proctor.evidence.unknowns.statuses import STOP_FIELDS, find_failure, find_stop, to_snake_case
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_field, check_object
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import shorten, show

# --- fields of message lists that report loss, an early end or a failure (rules c, e and f)

_REPORTING = frozenset(HOLDERS) | split_words("""
    response_metadata responseMetadata additional_kwargs provider_specific_fields provider_data providerData meta _meta metadata
    server_tool_use incomplete_details generation_info provider_details model_extra
    """)
_DEPTH = 4
"""Levels below an answer that are examined; deeper ones belong to the task of the agent."""
_OTHERS = re.compile(
    r"(user|human|tool|function|system|developer|request)(message)?(chunk)?$|.+(_call|_output|_result|_reference)$", re.IGNORECASE
)
_USERS = ("user", "human", "humanmessage", "humanmessagechunk", "request")
_ASIDE = ("system", "developer", "result", "stream_event", "SystemMessage")
_MESSAGE_FIELDS = split_words("messages choices output contents candidates input content tools metadata message context events steps")
"""Fields of a document that hold messages, or are the user's own."""
_READ = ("context_editing", "context_management")
"""Fields that the reader of their format interprets."""
_MAY_REPORT = re.compile(
    r"tool|function|call|search|fetch|code|execution|interpreter|sources|drop|lost|omit|trunc|redact|suppress|elid|discard|record|hidden"
    r"|partial|complete|citation|annotation|cut|interrupt|abort|timed|more|done|finish|final|status|state|reason|trim|prun|clear|evict|condens|compact|summar"
)


_SOURCES = ("annotations", "citations", "search_results")
_SOURCE = re.compile(r"citation|search")
_LISTED = r"(?:messages?|history|conversation|context|turns?|transcript|events?|items?|entries|tool_uses?)"
_LOST = r"(?:truncated|trimmed|omitted|pruned|cleared|evicted|condensed|compacted|dropped|summari[sz]ed)"
_LOSS = re.compile(
    rf"(?:is_|was_|been_|has_been_)?(?:{_LOST}|partial|incomplete)$|(?:\w+_)?{_LISTED}_(?:is_|was_|were_)?(?:{_LOST}|summary)(?:_count)?$"
    rf"|{_LOST}_(?:\w+_)?{_LISTED}(?:_count)?$|has_more$|__summary__$"
)
_NOTHING = frozenset(("", "false", "no", "none", "null", "0"))


@functools.lru_cache(maxsize=4096)
def _may_report(key: str) -> bool:
    return _MAY_REPORT.search(to_snake_case(key)) is not None


def _reports_loss(key: str, value: Json) -> bool:
    is_set = bool(value) and not (isinstance(value, str) and value.lower() in _NOTHING)
    return is_set and _LOSS.match(to_snake_case(key)) is not None


def check_markers(document: Json, entries: Entries, calls: Sequence[ToolCall], unknowns: Unknowns) -> str | None:
    """Mark parts that the messages and their envelope report as missing or unfinished; return the failure of the last message."""
    error: str | None = None
    follower: str | None = None
    for at, entry in reversed(entries):
        inner = next((entry[key] for key in ("data", "kwargs", "message") if isinstance(entry.get(key), dict)), entry)
        speaker = _find_speaker(entry)
        answers = not (_is_others(speaker) or _is_others(_find_speaker(inner)))
        _check_fields(inner, at, calls, unknowns, is_end=follower is None or follower.lower() in _USERS, answers=answers)
        if inner is not entry:
            outer = {key: value for key, value in entry.items() if value is not inner}
            _check_fields(outer, at, calls, unknowns, is_end=True, answers=False)
        if answers and follower is None and speaker not in _ASIDE and error is None:
            error = find_failure(inner, status=False)
        if speaker not in _ASIDE:
            follower = speaker or "message"
    if isinstance(document, dict) and not any(document is entry for _, entry in entries):
        _check_fields(
            {key: value for key, value in document.items() if key not in _MESSAGE_FIELDS}, "$", calls, unknowns, is_end=True, answers=True
        )
    return error


def _check_fields(
    entry: dict[str, Any], at: str, calls: Sequence[ToolCall], unknowns: Unknowns, *, is_end: bool, answers: bool, depth: int = _DEPTH
) -> None:
    for key, value in entry.items():
        if answers and isinstance(value, dict) and to_snake_case(key).endswith("tool_usage"):
            for tool, count in value.items():
                # A provider may count the requests or the tokens of a tool. The tools of an MCP server have names of their own.
                count = bool(count.get("num_requests") or count.get("total_tokens")) if isinstance(count, dict) else count
                if marker := find_marker(f"{to_snake_case(tool).replace('mcp', '')}_tool_calls", count, calls):
                    unknowns.mark_parts(marker.parts, f"{at}.{key}.{shorten(tool, 40)}: {marker.why}")
        # At the top only objects that are known to report on an answer are opened; below one of them all are.
        elif isinstance(value, dict) and depth and (key in _REPORTING or depth < _DEPTH) and key not in _READ:
            _check_fields(value, f"{at}.{shorten(key, 40)}", calls, unknowns, is_end=is_end, answers=answers, depth=depth - 1)
        elif value is None or not _may_report(key):
            continue
        elif (depth == _DEPTH or value is True) and _reports_loss(key, value) and not (key == "partial" and "author" in entry):
            unknowns.mark_parts(CONTENT_PARTS, f"{at}.{shorten(key, 40)}: messages are missing from the list")
        elif not answers:
            continue
        elif key in _SOURCES and isinstance(value, list):
            if not calls and any(
                isinstance(source, str) or _SOURCE.search(str(dict_or_empty(source).get("type", key))) for source in value
            ):
                unknowns.mark_parts(CALL_PARTS, f"{at}.{key}: sources of a search that is not recorded as a call")
        elif (
            to_snake_case(key) in STOP_FIELDS or (key == "status" and value == "incomplete") or (key == "reason" and at.endswith("details"))
        ):
            # Whether a model that stopped to call tools called any is decided by its reader: an answer may be given through a tool.
            words = [word for word in (list_of(value) or [value]) if find_stop(word) != "tools"]
            marker = find_stop_marker(words) if is_end else None
            if marker is not None:
                unknowns.mark_parts(marker.parts, f"{at}.{key}: {marker.why}")
        elif (marker := find_marker(key, value, calls)) is not None and (is_end or marker.parts == CALL_PARTS):
            unknowns.mark_parts(marker.parts, f"{at}.{shorten(key, 40)}: {marker.why}")


def _find_speaker(entry: dict[str, Any]) -> str | None:
    """Return the speaker or the kind of an entry, as its format spells it."""
    content = entry.get("content")
    for value in (entry.get("role"), entry.get("type"), entry.get("kind"), dict_or_empty(content).get("role"), entry.get("author")):
        if isinstance(value, str) and value not in ("message", "constructor"):
            return value
    path = list_of(entry.get("id"))
    return path[-1] if path and isinstance(path[-1], str) else None


def _is_others(speaker: str | None) -> bool:
    return speaker is not None and _OTHERS.match(speaker) is not None


_ALL = (*openai.FORMATS, *anthropic.FORMATS, *providers.FORMATS, *frameworks.FORMATS, *ai_sdk.FORMATS)
MESSAGE_FORMATS: dict[str, MessageFormat] = {family.name: family for family in _ALL}

# Fields of plain evidence that may be next to messages; the others would contradict them.
PLAIN_FIELDS = frozenset(
    ("case", "context", "timezone", "now", "available_tools", "renders", "state", "http_status", "duration_ms", "error", "metadata")
)
_TAKEN = frozenset((*HOLDERS, "tools", "id", "model", "spans", "input", "meta", "responseMetadata", "response_metadata", "output_text"))
_ANSWERS = ("output", "answer", "response", "reply", "text", "final_output", "final_answer", "finalOutput", "output_text")
_MAX_ENTRIES = 100


def recognise_formats(document: Json) -> list[str]:
    """Return the formats whose marks a document has: several if it mixes them, none if it contains no messages."""
    if mcplab.sniff(document):
        return []  # its lines contain messages, too
    # The envelope decides before the messages in it, which may look like another format: several frameworks store OpenAI's form.
    opening = [family.name for family in _ALL if family.open_envelope(document) is not None]
    if opening:
        return _drop_extended(opening)
    found = _find_entries(document)
    if found is None:
        return []
    marked = _drop_extended([family.name for family in _ALL if any(family.marks(entry) for entry in found)])
    if marked:
        return marked
    if not all(_is_common(entry) for entry in found):
        return []
    return ["ag2"] if frameworks.is_ag2_history(found) else ["openai"]


def find_broken_entry(document: Json) -> EvidenceError | None:
    """Return the error for a list that begins with messages but has an entry that is not one, else None."""
    found = _find_entries(document)
    if not found or not _is_common(found[0]):
        return None
    at = next((index for index, entry in enumerate(found) if not _is_common(entry)), None)
    list_path = "$.messages" if isinstance(document, dict) else "$"
    return None if at is None else EvidenceError(f"{list_path}[{at}]: not a message: it has no role with content, parts or tool calls")


def _drop_extended(names: list[str]) -> list[str]:
    covered = {extended for name in names for extended in MESSAGE_FORMATS[name].extends}
    return [name for name in names if name not in covered]


def _find_entries(document: Json) -> list[dict[str, Any]] | None:
    entries = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    # A bare empty list has no content; `{"messages": []}` is a conversation that never began.
    return None if not entries and not isinstance(document, dict) else entries


def _is_common(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("role"), str) and any(key in entry for key in ("content", "text", "tool_calls", "function_call"))


def read_messages(document: Json, family: MessageFormat) -> Evidence:
    """Return the evidence in a document of this format."""
    opened = family.open_envelope(document)
    if opened is None and isinstance(document, list):
        opened = Opened(entries=list_with_paths(document, "$"))
    elif opened is None:
        if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
            raise EvidenceError("$: expected a list of messages, or an object with a list under messages")
        opened = Opened(entries=list_with_paths(document["messages"], "$.messages"), rest=without(document, "messages"))
    unknowns = opened.unknowns
    entries: Entries = []
    for at, entry in opened.entries:
        if not isinstance(entry, dict):
            raise EvidenceError(f"{at}: expected a message, found {show(entry, 40)}")
        if family.name != "assistants" and openai.is_thread_entry(entry):
            # They do not record tools; read as another format, they would show that no tool was called.
            raise EvidenceError(f"{at}: a message of OpenAI's Assistants API; name the format assistants with --evidence-format")
        entries.append((at, entry))
    messages = read_all(entries, unknowns, family.dialect, family.unwrap) if family.read is None else family.read(entries, unknowns)
    if family.name == "langchain":
        messages = frameworks.finish_langchain(messages, opened.rest, unknowns)
    given = opened.rest.get("input")
    if isinstance(given, str) and not any(message.role == "user" for message in messages):
        messages = [Message(role="user", text=given), *messages]
    # MCPJam judges calls by its spans; results may be left out.
    promised = not (family.name == "ai-sdk" and "spans" in opened.rest)
    usage = opened.usage or find_usage(opened.rest)
    if usage is not None and usage.total_tokens is None and (usage.input_tokens is None or usage.output_tokens is None):
        unknowns.mark("usage", "$.usage: tokens of one kind are not reported")
    evidence = build_evidence(messages, unknowns, usage=usage, results_promised=promised)
    if family.name == "ai-sdk":
        calls = ai_sdk.mark_failed_calls(evidence.tool_calls or (), opened.rest.get("spans"))
        evidence = msgspec.structs.replace(evidence, tool_calls=calls)
    rest = without(opened.rest, *frameworks.LANGCHAIN_FINISHED) if family.name == "langchain" else opened.rest
    error = check_markers(document, entries, evidence.tool_calls or (), unknowns)
    evidence = _with_envelope(evidence, opened, rest, opened.error or find_failure(rest) or error, unknowns)
    # A response to a request that offered no tools cannot follow calls.
    if evidence.input is None and not opened.is_whole and not ("tools" in opened.rest and not opened.rest["tools"]):
        unknowns.mark_unrecognised(CALL_PARTS, NO_BEGINNING)
    return msgspec.structs.replace(evidence, account=unknowns.close_account(f"{family.name} messages"))


def _with_envelope(evidence: Evidence, opened: Opened, rest: dict[str, Json], error: str | None, unknowns: Unknowns) -> Evidence:
    given = {key: value for key, value in rest.items() if key in PLAIN_FIELDS and value is not None}
    names: list[str] = []
    for tool in map(dict_or_empty, list_of(rest.get("tools"))):
        declared = [tool, dict_or_empty(tool.get("function")), dict_or_empty(tool.get("toolSpec"))]
        declared.extend(map(dict_or_empty, list_of(find_first(tool, "functionDeclarations", "function_declarations"))))
        names.extend(entry["name"] for entry in declared if isinstance(entry.get("name"), str))
    if names:
        given.setdefault("available_tools", names)
    model = opened.model or text_or_none(rest.get("model")) or evidence.model
    ids = {key: value for key, value in (("id", rest.get("id")), ("model", opened.model or rest.get("model"))) if isinstance(value, str)}
    others = {key: value for key, value in rest.items() if key not in PLAIN_FIELDS and key not in _TAKEN and value is not None}
    short = {key: value for key, value in others.items() if not isinstance(value, (list, dict)) and value not in ("", False)}
    listed = [call.name for call in evidence.tool_calls or ()]
    check_object(others, _ANSWERS, "$", unknowns, listed=listed, has_answer=True)
    for key, value in others.items():
        for entry in islice(_list_entries(value), _MAX_ENTRIES):
            check_field(key, entry, "$", unknowns, listed=listed, has_answer=True)
    text = (evidence.text or "").strip()
    for key in _ANSWERS:
        answer = value.strip() if isinstance(value := rest.get(key), str) else ""
        # The `output_text` of a response repeats all of its messages.
        if answer and answer != text and not (key == "output_text" and (answer.endswith(text) or text.endswith(answer))):
            unknowns.mark("answer", f"$.{key} and the last message record different answers")
    # Read as plain evidence, so that these fields follow the same rules and give the same errors as there.
    plain = read_plain(given)
    fields = {key: getattr(plain, key) for key in given if key in KEYS and key != "metadata"}
    if error is not None:
        fields.setdefault("error", error)
    return msgspec.structs.replace(evidence, **fields, model=model, metadata={**short, **ids, **plain.metadata})


def _list_entries(value: Json) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lists of a field: messages of another format hold calls deeper than fields do."""
    if isinstance(value, dict):
        yield value
        value = [inner for inner in value.values() if isinstance(inner, list)]
    for entry in list_of(value):
        yield from _list_entries(entry)
