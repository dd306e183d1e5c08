"""Finds the format of a document, and reads its evidence.

A document is recognised by its shape. Exactly one format may claim it; otherwise the error names those that did, or what the document
looked like, and `--evidence-format` decides. An object that no format claims is plain evidence if it has an answer or calls under a usual
name; one line of a conversation is not. A list is a message list, or a list of documents that are recognised one by one (OTLP requests
among them are merged).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence import mibo
from proctor.evidence.messages import formats as messages
from proctor.evidence.plain import record as plain
from proctor.evidence.platforms import flowise, mcplab, n8n
from proctor.evidence.tables.read import SPAN_TABLES, SpanTable, find_table, read_rows
from proctor.evidence.traces import read_otlp as otlp
from proctor.evidence.unknown_shape import conversation_line_error, is_conversation_line, unknown_shape_error
from proctor.evidence.values.json_bytes import decode, exceeds_depth, find_binary_kind, split_documents, too_deep_error
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json
from proctor.model.show import nearest


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format of evidence."""

    name: str
    summary: str
    sniff: Callable[[Json], bool]
    """Whether a decoded document is of this format."""
    read: Callable[[Json], list[Evidence]]
    keys: tuple[str, ...] = ()
    """Keys of this format, for the message about a document of no known shape."""
    owns: frozenset[str] = frozenset()
    """Keys of plain evidence that this format uses for itself."""

    def read_all(self, document: Json) -> list[Evidence]:
        """Return the evidence in a document, each with its reader named in its account."""
        found = self.read(document)
        if self.name == "plain":
            return found
        reader = Account(self.name)
        return [evidence if evidence.account is not None else msgspec.structs.replace(evidence, account=reader) for evidence in found]


def _make_messages_format(family: messages.MessageFormat) -> Format:
    def sniff(document: Json) -> bool:
        return family.name in messages.recognise_formats(document)

    # Keys that a message list and plain evidence have in common; without this both would claim each such document.
    owns = messages.BESIDE | {"usage", "input", "model"}
    # A response repeats the setting `text` of its request, which is no answer.
    if family.name == "responses":
        owns |= {"text"}
    # The result of the AI SDK has a text and the calls of its last step next to its steps.
    if family.name == "ai-sdk":
        owns |= {"text", "toolCalls"}
    return Format(
        name=family.name, summary=family.summary, sniff=sniff, read=messages.make_reader(family.name), keys=family.keys, owns=owns
    )


def _make_table_format(table: SpanTable) -> Format:
    def read(document: Json) -> list[Evidence]:
        if not isinstance(document, dict):
            raise unknown_shape_error(document, _ALL)
        return otlp.read_batches([table.read_row(document)])

    return Format(name=table.name, summary=table.summary, sniff=lambda document: find_table(document) is table, read=read)


_ALL = (
    Format(
        name="plain",
        summary="plain evidence: one object with text, body, tool_calls, nodes, turns, state, ...",
        sniff=plain.sniff,
        read=plain.read,
        keys=("text", "body", "tool_calls", "nodes", "turns", "state", "http_status"),
    ),
    Format(
        name="mibo",
        summary='Mibo trace bodies: {"data": ...} or {"spans": [...]}',
        sniff=mibo.sniff,
        read=mibo.read,
        keys=("data", "spans"),
    ),
    Format(name="otlp", summary="OTLP traces, JSON or protobuf", sniff=otlp.sniff, read=otlp.read, keys=("resourceSpans",)),
    Format(
        name="n8n", summary="n8n executions as its API returns them", sniff=n8n.sniff, read=n8n.read, keys=("resultData", "workflowData")
    ),
    Format(
        name="flowise",
        summary="Flowise predictions",
        sniff=flowise.sniff,
        read=flowise.read,
        keys=("agentFlowExecutedData", "usedTools", "chatMessageId"),
        owns=frozenset(("text",)),
    ),
    Format(
        name="mcplab",
        summary="lines of an MCPLab trace.jsonl",
        sniff=mcplab.sniff,
        read=mcplab.read,
        keys=("scenario_id",),
        owns=frozenset(("error",)),
    ),
    *map(_make_table_format, SPAN_TABLES.values()),
    *(_make_messages_format(family) for family in messages.MESSAGE_FORMATS.values()),
)

FORMATS: dict[str, Format] = {entry.name: entry for entry in _ALL}
"""Every format by its name for `--evidence-format`."""


_OTHERS = frozenset(("plain", *SPAN_TABLES, *messages.MESSAGE_FORMATS))


def read_value(value: Json, format: str | None) -> list[Evidence]:
    """Return all evidence in one decoded document."""
    named = _find_format(format)
    if exceeds_depth(value):
        raise too_deep_error()
    return _read(value, named)


def read_data(data: bytes, format: str | None) -> list[Evidence]:
    """Return all evidence in one document as bytes: JSON text, or OTLP protobuf."""
    named = _find_format(format)
    meaning = find_binary_kind(data)
    if meaning is not None:
        raise EvidenceError(meaning)
    try:
        value = decode(data)
    except EvidenceError as error:
        # Protobuf begins with field 1, a newline to JSON, which is why JSON is tried first.
        if not _may_be_protobuf(data, named):
            documents = split_documents(data)
            if documents is None:
                raise
            return read_value(documents, format)
        try:
            return otlp.read_protobuf(data)
        except EvidenceError:
            # The first error counts: broken JSON must not be reported as bad protobuf.
            raise error from None
    return read_value(value, format)


def _find_format(name: str | None) -> Format | None:
    if name is None:
        return None
    if name not in FORMATS:
        close = nearest(name, FORMATS)
        hint = f"; nearest: {', '.join(close)}" if close else ""
        raise EvidenceError(f"unknown evidence format {name!r}{hint}; known: {', '.join(FORMATS)}", code="unknown_format")
    return FORMATS[name]


def _may_be_protobuf(data: bytes, named: Format | None) -> bool:
    if named is not None:
        return named.name == "otlp"
    # A document may also begin with an empty line: after it JSON has a bracket, and never a zero byte.
    return (data[:1] == b"\n" and data.lstrip()[:1] not in (b"{", b"[")) or (data[:1] == b"\n" and b"\0" in data)


def _read(value: Json, named: Format | None) -> list[Evidence]:
    if named is not None:
        return _read_as(value, named)
    if isinstance(value, list):
        return _read_list(value)
    return _recognise(value).read_all(value)


def _read_as(value: Json, named: Format) -> list[Evidence]:
    rows = read_rows(value, SPAN_TABLES[named.name]) if isinstance(value, list) and named.name in SPAN_TABLES else None
    if rows is not None:
        return otlp.read_batches([rows])
    if isinstance(value, list) and named.name not in messages.MESSAGE_FORMATS:
        return [evidence for index, entry in enumerate(value) for evidence in _read_entry(entry, index, named)]
    return named.read_all(value)


def _read_list(value: list[Any]) -> list[Evidence]:
    claims = messages.recognise_formats(value)
    if claims:
        return _choose_only([FORMATS[name] for name in claims], value).read_all(value)
    broken = messages.find_broken_entry(value)
    if broken is not None:
        raise broken
    if not all(isinstance(entry, dict) for entry in value):
        raise unknown_shape_error(value, _ALL)
    # Read together, as the spans of one trace may be spread over several of these requests.
    if value and all(otlp.sniff(entry) for entry in value):
        return otlp.read_batches(otlp.read_request(entry, f"$[{index}]") for index, entry in enumerate(value))
    rows = read_rows(value)
    if rows is not None:
        return otlp.read_batches([rows])
    return [evidence for index, entry in enumerate(value) for evidence in _read_entry(entry, index, None)]


def _read_entry(entry: Json, index: int, named: Format | None) -> list[Evidence]:
    try:
        return (named or _recognise(entry)).read_all(entry)
    except EvidenceError as error:
        message = error.message
        # Readers name their document `$`; here it is one entry of a list.
        place = message.replace("$", f"$[{index}]", 1) if message.startswith("$") else f"$[{index}]: {message}"
        raise EvidenceError(place, code=error.code) from None


def _recognise(value: Json) -> Format:
    if not isinstance(value, dict):
        raise unknown_shape_error(value, _ALL)
    table = find_table(value)
    if table is not None:
        # Its columns may have the names of any other format's fields.
        return FORMATS[table.name]
    specific = [entry for entry in _ALL if entry.name not in _OTHERS and entry.sniff(value)]
    specific.extend(FORMATS[name] for name in messages.recognise_formats(value))
    claims = list(specific)
    # A document of a platform may have keys of plain evidence (`case`, `now`) next to its own; it is plain only if such a key carries a
    # part of the run that the platform's format does not use itself.
    if plain.sniff(value) and not any(plain.CARRYING.isdisjoint(value.keys() - entry.owns) for entry in specific):
        claims.insert(0, FORMATS["plain"])
    if not claims and mibo.may_be_body(value):
        claims.append(FORMATS["mibo"])
    broken = messages.find_broken_entry(value) if not claims else None
    if not claims and broken is None and plain.has_usual_names(value):
        claims.append(FORMATS["plain"])
    if claims == [FORMATS["plain"]] and is_conversation_line(value):
        raise conversation_line_error(value)
    if not claims:
        raise broken or unknown_shape_error(value, _ALL)
    # A record with an answer and a list of calls is complete without its messages, which only have to agree with it.
    has_both = isinstance(value.get("messages"), list) and plain.lists_calls_and_answer(value)
    if has_both and claims[0].name == "plain" and all(entry.name in messages.MESSAGE_FORMATS for entry in claims[1:]):
        return claims[0]
    return _choose_only(claims, value)


def _choose_only(claims: list[Format], value: Json) -> Format:
    if len(claims) > 1:
        names = " and ".join(f"{entry.name} ({entry.summary})" for entry in claims)
        raise EvidenceError(f"this could be {names}; name one with --evidence-format", code="ambiguous_evidence")
    return claims[0]
