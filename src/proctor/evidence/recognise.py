"""Finds the format of a document, and reads its evidence.

Exactly one format may claim a document; otherwise the error names those that did, or describes the document. An object that no format
claims is plain evidence if it has an answer or calls under a usual name; one line of a conversation is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence import mibo
from proctor.evidence.messages import formats as messages
from proctor.evidence.messages.envelope import without
from proctor.evidence.plain import record as plain
from proctor.evidence.platforms import flowise, mcplab, n8n
from proctor.evidence.shared.message_reader import find_role
from proctor.evidence.tables.read import SPAN_TABLES, SpanTable, find_table, read_rows
from proctor.evidence.traces import read_otlp as otlp
from proctor.evidence.unknowns.statuses import find_failure
from proctor.evidence.values.access import dict_or_empty, list_of, read_object, split_words
from proctor.evidence.values.json_bytes import decode, decode_container, find_binary_kind, split_documents, too_deep_error
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import exceeds_depth
from proctor.model.show import describe_value, kind_of, nearest, shorten, show


class Format(msgspec.Struct, frozen=True):
    """One format of evidence."""

    name: str
    summary: str
    read: Callable[[Json], list[Evidence]]
    keys: tuple[str, ...] = ()
    """Keys of this format, used in the error for an unrecognised document."""
    owns: frozenset[str] = frozenset()
    """Keys of plain evidence that this format uses for itself."""
    sniff: Callable[[Json], bool] | None = None
    """Whether a document is of this platform; messages, tables and plain evidence are recognised together."""


# A response repeats the setting `text` of its request; a result of the AI SDK has the text and the calls of its last step.
_OWNED = {"responses": frozenset(("text",)), "ai-sdk": frozenset(("text", "toolCalls"))}


def _make_messages_format(family: messages.MessageFormat) -> Format:
    # Keys that a message list and plain evidence have in common; without this both would claim each such document.
    owns = messages.PLAIN_FIELDS | {"usage", "input", "model"} | _OWNED.get(family.name, frozenset())
    return Format(family.name, family.summary, lambda document: [messages.read_messages(document, family)], family.keys, owns)


def _make_table_format(table: SpanTable) -> Format:
    return Format(table.name, table.summary, lambda row: otlp.read_batches([table.read_row(read_object(row, "$"))]))


# fmt: off
_ALL = (
    Format("plain", "plain evidence: one object with text, body, tool_calls, nodes, turns, state, ...",
           lambda document: [plain.read_plain(document)], ("text", "body", "tool_calls", "nodes", "turns", "state", "http_status")),
    Format("mibo", 'Mibo trace bodies: {"data": ...} or {"spans": [...]}', mibo.read, ("data", "spans"), sniff=mibo.sniff),
    Format("otlp", "OTLP traces, JSON or protobuf", otlp.read, ("resourceSpans",), sniff=otlp.sniff),
    Format("n8n", "n8n executions as its API returns them", n8n.read, ("resultData", "workflowData"), sniff=n8n.sniff),
    Format("flowise", "Flowise predictions", flowise.read, ("agentFlowExecutedData", "usedTools", "chatMessageId"),
           frozenset(("text",)), flowise.sniff),
    Format("mcplab", "lines of an MCPLab trace.jsonl", mcplab.read, ("scenario_id",), frozenset(("error",)), mcplab.sniff),
    *map(_make_table_format, SPAN_TABLES.values()),
    *map(_make_messages_format, messages.MESSAGE_FORMATS.values()),
)
# fmt: on

FORMATS: dict[str, Format] = {entry.name: entry for entry in _ALL}
_ONLY_PLAIN = plain.KEYS - {"state"}
"""Keys that only plain evidence has at its root: an object with only these keys is plain evidence."""
_LABELLED = _ONLY_PLAIN | split_words(
    "id run_id request_id session_id conversation_id user_id timestamp created_at latency_ms tags agent version environment"
)
"""The same keys, plus labels of a record that identify no format."""
_REQUESTS = (("request", "response"), ("kwargs", "response"), ("request_body", "response_body"), ("input", "output"))
"""Fields in which programs log a request to a provider and its response."""
_SENT = split_words("messages input contents tools previous_response_id conversation")
_REPLIES = ("message", "answer", "completion", "response", "output", "reply")
"""Fields with the answer to the messages next to them; a `message` that is text may be a logger's."""


def read_value(value: Json, format: str | None) -> list[Evidence]:
    """Return all evidence in one decoded document."""
    named = _find_format(format)
    if exceeds_depth(value):
        raise too_deep_error()
    if named is None:
        return _read_list(value) if isinstance(value, list) else _read_one(value)
    rows = read_rows(value, SPAN_TABLES[named.name]) if isinstance(value, list) and named.name in SPAN_TABLES else None
    if rows is not None:
        return otlp.read_batches([rows])
    if isinstance(value, list) and named.name not in messages.MESSAGE_FORMATS:
        return [evidence for index, entry in enumerate(value) for evidence in _read_entry(entry, index, named)]
    return named.read(value if named.name == "plain" else _join_request(value))


def _read_one(value: Json, named: Format | None = None) -> list[Evidence]:
    # A service may send messages or a response of a provider under `data`.
    is_wrapped = isinstance(value, dict) and isinstance(value.get("data"), dict) and mibo.may_be_body(value) and not mibo.has_ids(value)
    if is_wrapped and messages.recognise_formats(value["data"]):
        value = {**without(value, "data"), **value["data"]}
    value = _join_request(value)
    return (named or _recognise(value)).read(value)


def _join_request(value: Json) -> Json:
    """Return messages or a request next to the answer that they led to as one document; any other value unchanged."""
    for sent_key, given_key in _REQUESTS if isinstance(value, dict) else ():
        if given_key not in value or (given_key == "output" and not _is_run(value)):
            continue
        wrapper, request = (_name_fields(value.get(key)) for key in (given_key, sent_key))
        given, request = (_name_fields(holder.get("body", holder)) for holder in (wrapper, request))
        around = {**without(value, sent_key, given_key), **(without(wrapper, "body") if "body" in wrapper else {})}
        sent = {key: holder[key] for holder in (around, request) for key in _SENT if key in holder}
        first = _find_role(given.get("messages"), 0)
        replies = _find_role(sent.get("messages"), -1) in ("user", "tool") and (first or _find_reply(given))
        form = sent if replies else without(given, "messages", "response")
        if not (sent and form and messages.recognise_formats(form)):
            continue
        if replies and first:
            # The state of a run repeats the messages that were sent.
            sent["messages"] = [*(() if first in ("user", "system") else sent["messages"]), *given["messages"]]
        failure = find_failure(around)
        value = {**around, **given, **sent, **({} if failure is None else {"error": around.get("error") or failure})}
        break
    return _join_answer(value) if isinstance(value, dict) else value


def _is_run(value: dict[str, Any]) -> bool:
    """Return whether `input` and `output` may be the messages of a run: a response, a span and plain evidence have these fields as well."""
    is_listed = isinstance(value.get("input"), (list, dict)) and not isinstance(value["output"], str) and value.get("object") != "response"
    is_plain = plain.list_carrying(value) - messages.PLAIN_FIELDS or not set(plain.CALLS).isdisjoint(value)
    return is_listed and not is_plain and find_table(value) is None and not messages.recognise_formats(value)


def _name_fields(value: Json) -> dict[str, Any]:
    value = decode_container(value)
    if isinstance(value, list) and value:
        return {"choices" if all("message" in dict_or_empty(entry) for entry in value) else "messages": value}
    return {"response": value} if isinstance(value, str) or _find_role([value], 0) == "assistant" else dict_or_empty(value)


def _join_answer(value: dict[str, Any]) -> dict[str, Any]:
    """Return messages that end before the agent's turn with the answer next to them as the last message; any other value unchanged."""
    key, listed = _find_reply(value) if "messages" in value else None, list_of(value.get("messages"))
    last = listed[-1].get("content") if _find_role(listed, -1) == "assistant" else None
    is_listed = key is None and isinstance(last, str) and bool(last.strip()) and plain.lists_calls_and_answer({**value, "text": last})
    if not is_listed and (key is None or _find_role(listed, -1) not in ("user", "tool") or plain.lists_calls_and_answer(value)):
        return value
    if any(family.open_envelope(value) is not None for family in messages.MESSAGE_FORMATS.values()):
        return value
    if key is None:
        # The calls are listed next to the messages.
        questions = [entry.get("content") for entry in listed if _find_role([entry], 0) == "user"]
        return {"text": last, **({"input": questions[0]} if len(questions) == 1 else {}), **value}
    answer = value[key] if isinstance(value[key], dict) else {"role": "assistant", "content": value[key]}
    before = [entry.get("content") for entry in listed if _find_role([entry], 0) == "assistant"]
    # A state may still hold the answer of the turn before.
    return value if answer.get("content") in list(filter(None, before))[-1:] else {**without(value, key), "messages": [*listed, answer]}


def _find_reply(value: dict[str, Any]) -> str | None:
    for key, reply in ((key, value.get(key)) for key in _REPLIES):
        is_text = isinstance(reply, str) and key != "message" and bool(reply.strip())
        if is_text or (isinstance(reply, dict) and _find_role([reply], 0) == "assistant"):
            return key
    return None


def _find_role(listed: Json, index: int) -> str | None:
    """Return the role of a message in a list; LangChain's messages have a type."""
    entry = dict_or_empty(listed[index]) if isinstance(listed, list) and listed else {}
    return find_role(str(entry.get("role", entry.get("type"))))


def read_data(data: bytes, format: str | None) -> list[Evidence]:
    """Return all evidence in one document as bytes: JSON text, or OTLP protobuf."""
    named = _find_format(format)
    if (meaning := find_binary_kind(data)) is not None:
        raise EvidenceError(meaning)
    try:
        value = decode(data)
    except EvidenceError as error:
        # The first byte of protobuf (field 1) is a newline in JSON. Such JSON has a bracket next, and never a zero byte.
        may_be_protobuf = data[:1] == b"\n" and (data.lstrip()[:1] not in (b"{", b"[") or b"\0" in data)
        if may_be_protobuf if named is None else named.name == "otlp":
            try:
                return otlp.read_protobuf(data)
            except EvidenceError:
                # The first error counts: broken JSON must not be reported as bad protobuf.
                raise error from None
        value = split_documents(data)
        if value is None:
            raise
    return read_value(value, format)


def _find_format(name: str | None) -> Format | None:
    if name is None:
        return None
    if name not in FORMATS:
        close = nearest(name, FORMATS)
        hint = f"; nearest: {', '.join(close)}" if close else ""
        raise EvidenceError(f"unknown evidence format {name!r}{hint}; known: {', '.join(FORMATS)}", code="unknown_format")
    return FORMATS[name]


def _read_list(value: list[Any]) -> list[Evidence]:
    claims = messages.recognise_formats(value)
    if claims:
        return _choose_only([FORMATS[name] for name in claims]).read(value)
    if (broken := messages.find_broken_entry(value)) is not None:
        raise broken
    if not all(isinstance(entry, dict) for entry in value):
        raise _unknown_shape_error(value)
    # Read together, because the spans of one trace may be spread over several of these requests.
    if value and all(otlp.sniff(entry) for entry in value):
        return otlp.read_batches(otlp.read_request(entry, f"$[{index}]") for index, entry in enumerate(value))
    if (rows := read_rows(value)) is not None:
        return otlp.read_batches([rows])
    if updated := _join_updates(value):
        return FORMATS["langchain"].read(updated)
    return [evidence for index, entry in enumerate(value) for evidence in _read_entry(entry, index, None)]


def _join_updates(entries: list[dict[str, Any]]) -> list[Json]:
    """Return the messages of one run that LangGraph streamed as updates, `{node: {"messages": [...]}}`, or none."""
    updates = [(node, update) for entry in entries for node, update in entry.items() if isinstance(update, (dict, list))]
    found = [update["messages"] for _, update in updates if isinstance(update, dict) and update.get("messages")]
    joined = [message for given in found for message in (list_of(given) or [given])]
    # Several runs have several messages of users, or only one key; a list is an interrupt.
    is_one = len(entries) == 1 or len({node for node, _ in updates}) > 1
    is_one = is_one and not any(isinstance(update, list) for _, update in updates)
    is_one = is_one and not any(_find_role(joined, index) == "user" for index in range(1, len(joined)))
    return joined if is_one and joined and messages.recognise_formats(joined) == ["langchain"] else []


def _read_entry(entry: Json, index: int, named: Format | None) -> list[Evidence]:
    try:
        return _read_one(entry, named)
    except EvidenceError as error:
        message = error.message
        # Readers name their document `$`; here it is one entry of a list.
        place = message.replace("$", f"$[{index}]", 1) if message.startswith("$") else f"$[{index}]: {message}"
        raise EvidenceError(place, code=error.code) from None


def _recognise(value: Json) -> Format:
    if not isinstance(value, dict):
        raise _unknown_shape_error(value)
    if _ONLY_PLAIN.issuperset(value) or (_LABELLED.issuperset(value) and not plain.CARRYING.isdisjoint(value)):
        return FORMATS["plain"]
    table = find_table(value)
    if table is not None:
        # The columns may be named like the fields of any other format.
        return FORMATS[table.name]
    specific = [entry for entry in _ALL if entry.sniff is not None and entry.sniff(value)]
    specific.extend(FORMATS[name] for name in messages.recognise_formats(value))
    claims = list(specific)
    # A document of a platform may have keys of plain evidence (`case`, `now`) next to its own; it is plain only if such a key carries a
    # part of the run that the platform's format does not use itself.
    if plain.sniff(value) and not any(plain.list_carrying(value) <= entry.owns for entry in specific):
        claims.insert(0, FORMATS["plain"])
    if not claims and mibo.may_be_body(value):
        claims.append(FORMATS["mibo"])
    broken = messages.find_broken_entry(value) if not claims else None
    if not claims and broken is None and plain.has_usual_names(value):
        claims.append(FORMATS["plain"])
    if claims == [FORMATS["plain"]] and (key := _find_line_mark(value)) is not None:
        message = f"one line of a conversation ({key}: {show(value[key], 40)}), not a run of an agent: {_LINES}"
        raise EvidenceError(message, code="conversation_line")
    if not claims:
        raise broken or _unknown_shape_error(value)
    # A record with an answer and a list of calls is complete without its messages, which only have to agree with it.
    has_both = isinstance(value.get("messages"), list) and plain.lists_calls_and_answer(value)
    if has_both and claims[0].name == "plain" and all(entry.name in messages.MESSAGE_FORMATS for entry in claims[1:]):
        return claims[0]
    return _choose_only(claims)


def _choose_only(claims: list[Format]) -> Format:
    if len(claims) > 1:
        names = " and ".join(f"{entry.name} ({entry.summary})" for entry in claims)
        raise EvidenceError(f"this could be {names}; name one with --evidence-format", code="ambiguous_evidence")
    return claims[0]


_SPEAKERS = ("speaker", "role", "who")
_SENDERS = (*_SPEAKERS, "from", "sender", "author", "source", "type")
_USERS = frozenset(("user", "human", "customer", "client", "caller", "visitor"))
_USER_EVENT = re.compile(
    r"(?:user|human|customer|client|visitor)[_. -]?(?:message|input|turn|query|utterance|request)s?$|(?:in|inbound|incoming)$", re.I
)
_USER_FLAGS = ("is_user", "isUser", "from_user", "fromUser", "is_human", "isHuman")
_AGENTS = frozenset(("assistant", "agent", "bot", "ai", "model", "system"))
_LINES = "put the lines of one run into a list under `turns` or `messages`, or map them with `group` (evidence: {map: {group: ...}})"


def _find_line_mark(entry: dict[str, Any]) -> str | None:
    """Return the field that shows that a record is one message or event of a conversation instead of an exchange, or None."""
    is_sent = "direction" in entry and isinstance(entry.get("body"), str)
    if any(key in entry for key in (*plain.INPUTS, "turns", "nodes", "state")) or ("body" in entry and not is_sent):
        return None
    senders = {key: entry[key].lower() for key in _SENDERS if isinstance(entry.get(key), str)}
    words = {key: entry[key] for key in (*plain.EVENT_KEYS, "direction") if isinstance(entry.get(key), str)}
    event = next((key for key, word in words.items() if plain.CALL_EVENT.match(word) or _USER_EVENT.match(word)), None)
    event = next((key for key in _USER_FLAGS if entry.get(key) is True), event)
    if event is not None or not senders:
        return event
    first = next(iter(senders))
    if not _USERS.isdisjoint(senders.values()):
        return first
    is_spoken = any(key in _SPEAKERS for key in senders) or not _AGENTS.isdisjoint(senders.values()) or senders.get("type") == "message"
    return first if is_spoken and {*plain.CALLS, "case", *(plain.CARRYING - {"text"})}.isdisjoint(entry) else None


def _unknown_shape_error(value: Json) -> EvidenceError:
    looks, hints = describe_value(value, 60), list[str]()
    if isinstance(value, list):
        kinds = ", ".join(dict.fromkeys(map(kind_of, value)))
        looks = f"a list of {len(value)} ({kinds})" if value else "an empty list"
    elif isinstance(value, dict):
        from difflib import get_close_matches  # compiles a regex; needed only for an error

        names = [show(shorten(key, 40)) for key in value]
        looks = f"an object with the keys {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        # Reversed, so that the first of two formats with the same key owns it.
        owner = {key.lower(): (key, entry.name) for entry in reversed(_ALL) for key in entry.keys}
        # With the default cutoff of 0.6, `response` would match `spans`.
        near = [(key, match) for key in list(value)[:50] for match in get_close_matches(key.lower()[:200], owner, n=1, cutoff=0.8)]
        close = [f"{show(shorten(key, 40))} is like {show(owner[match][0])} of {owner[match][1]}" for key, match in near[:3]]
        hints = [f"nearest: {'; '.join(close)}"] if close else []
        is_claude = value.get("type") in ("assistant", "user", "result", "system") and ("message" in value or "subtype" in value)
        if is_claude or _join_updates([value]):
            hints.append("this may be a line of a run of Claude Code or LangGraph: put them into one list (jq -s .), or map `group`")
        elif not set(_SPEAKERS).isdisjoint(value):
            hints.append(f"this may be one line of a conversation: {_LINES}")
        else:
            hints.append(
                "a shape of your own: name its answer and calls with evidence: {map: ...}; `proctor describe evidence FILE` proposes it"
            )
    lines = (f"no known form of evidence: {looks}", *hints, f"known forms: {', '.join(FORMATS)}; name one with --evidence-format")
    return EvidenceError("\n  ".join(lines), code="unknown_shape")
