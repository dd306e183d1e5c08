"""Tables of spans: one row for each span, as observability systems export them. The rows of a trace may be far apart."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span, SpanEvent, fold_id, read_nanoseconds, read_span
from proctor.evidence.traces.attribute_shapes import COUNTS
from proctor.evidence.unknowns.statuses import read_status
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, read_time_ns, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits, to_whole_number, write_as_text

# --- rows of Arize Phoenix, LangSmith, Langfuse and MLflow, as their exports and APIs write them

Row = dict[str, Any]
_MAX_LEVELS = 32
"""Levels that become names with dots; deeper ones stay objects."""
_DECODED_BY_PHOENIX = ("metadata", "llm.prompt_template.variables", "tool.parameters")
_OPERATIONS = {"llm": "chat", "tool": "execute_tool", "embedding": "embeddings"}
_COUNTS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens", "total_tokens"))
_TRACES = ("traceId", "trace_id")
_PARENTS = ("parentObservationId", "parent_observation_id")
_OBSERVATION = "langfuse.observation."
_OBSERVED = {
    column: f"{_OBSERVATION}{name}"
    for name, columns in {
        "input": "input",
        "output": "output",
        "model.name": "model provided_model_name providedModelName",
        "model.parameters": "modelParameters model_parameters",
        "usage_details": "usageDetails usage_details usage",
        "status_message": "statusMessage status_message",
    }.items()
    for column in columns.split()
}
"""The attribute of Langfuse's SDK by its column; if two columns match one attribute, the first counts."""
_OBSERVATION_TYPES = split_words("SPAN GENERATION EVENT AGENT TOOL CHAIN RETRIEVER EVALUATOR EMBEDDING GUARDRAIL")
_MLFLOW = frozenset(("info", "trace", "trace_id", "request_id", "trace_metadata", "execution_duration"))
"""The fields of an MLflow trace next to its spans; each generation has some of them."""
_ID_BYTES = {24: 16, 12: 8}
_NESTING = re.compile(r"(?:child(?:ren|\w*s)|(?:(?:nested|sub)_?)?(?:spans|runs|observations)|descendants)", re.IGNORECASE)
"""Columns for spans inside their parent."""
_NOT_NESTING = split_words("links events attributes metadata inputs outputs input output tags")
"""Columns with lists that are content, or that point to other spans by their ids."""


@functools.lru_cache(maxsize=256)
def _list_columns(columns: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Return the columns that may have spans inside a span, and whether each is named so."""
    return [(key, _NESTING.fullmatch(key) is not None) for key in columns if key not in _NOT_NESTING]


def _list_nesting(row: Row) -> list[tuple[str, bool]]:
    return [(key, is_named) for key, is_named in _list_columns(tuple(row)) if is_named or type(row[key]) is list]


def _read_tree(row: Row, read: Callable[[Row], Span], is_span: Callable[[Row], bool], trace_key: str) -> list[Span]:
    """Return the span of a row and those inside it, at any depth, as if each had its own row; unreadable ones are named as lost data."""
    if not _list_nesting(row):
        return [read(row)]
    found: list[Span] = []
    waiting: list[tuple[Row, str | None]] = [(row, None)]
    while waiting:
        row, parent = waiting.pop()
        span = read(row)
        below: list[tuple[Row, str | None]] = []
        lost: dict[str, Json] = {}
        for key, nests in _list_nesting(row):
            inner = decode_container(row[key])
            for entry in inner if isinstance(inner, list) else [inner]:
                entry = dict_or_empty(decode_container(entry) if nests else entry)
                if entry and is_span(entry):
                    below.append(({**entry, trace_key: entry.get(trace_key) or span.trace_id}, span.id))
                elif entry and nests:
                    lost[NOT_UNDERSTOOD] = key
        found.append(msgspec.structs.replace(span, parent_id=span.parent_id or parent, attributes={**span.attributes, **lost}))
        # The one added last is taken first.
        waiting.extend(reversed(below))
    return found


def _has_span_id(row: Row) -> bool:
    return any("span_id" in holder or "spanId" in holder for holder in (row, dict_or_empty(row.get("context")))) or "context.span_id" in row


def _make_span(row: Row, trace: Json, id: Json, path: str = "$", **fields: Any) -> Span:
    """Return a span with the usual columns of a row; `fields` are the others. Raises `EvidenceError` if the row names no trace."""
    if not isinstance(trace, str) or not trace or not isinstance(id, str) or not id:
        raise EvidenceError(f"{path}: expected a trace id and an id of the span, both texts; a span without them belongs to no trace")
    if "start_ns" not in fields:
        fields["start_ns"] = read_time_ns(find_first(row, "start_time", "startTime"))
        fields["end_ns"] = read_time_ns(find_first(row, "end_time", "endTime"))
    return Span(trace_id=fold_id(trace), id=id, name=text_or_none(row.get("name")) or "", **fields)


def _open_object(value: Json, name: str) -> Row:
    """Return an object, which may be JSON text; for any other value, such as cut JSON, an attribute that names it as lost data."""
    found = decode_container(value)
    return found if isinstance(found, dict) else {} if found in (None, "", []) else {NOT_UNDERSTOOD: name}


def _open_member(row: Row, key: str) -> Row:
    return dict_or_empty(decode_container(row.get(key)))


def _flatten_columns(row: Row) -> dict[str, Json]:
    """Return the attributes that have columns of their own."""
    found: dict[str, Json] = {}
    for name, value in row.items():
        if name.startswith("attributes.") and value is not None:
            _flatten(name.removeprefix("attributes."), value, found)
    return found


def _flatten(name: str, value: Json, found: dict[str, Json], depth: int = 0) -> None:
    """Write a nested value as attributes with dotted names, as in OTLP; values that Phoenix decodes on arrival become JSON text."""
    is_list_of_objects = isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)
    if not (isinstance(value, dict) or is_list_of_objects):
        # A column with gaps has only floats.
        found[name] = to_whole_number(value)
    elif depth >= _MAX_LEVELS or any(name == end or name.endswith(f".{end}") for end in _DECODED_BY_PHOENIX):
        found[name] = write_as_text(value)
    else:
        for key, member in value.items() if isinstance(value, dict) else enumerate(list_of(value)):
            if member is not None:
                _flatten(f"{name}.{key}" if name else str(key), member, found, depth + 1)


def _read_events(value: Json) -> tuple[SpanEvent, ...]:
    events: list[SpanEvent] = []
    for event in map(dict_or_empty, list_of(decode_container(value))):
        attributes: dict[str, Json] = {}
        _flatten("", _open_member(event, "attributes"), attributes)
        events.append(SpanEvent(text_or_none(event.get("name")) or "", attributes))
    return tuple(events)


def _is_phoenix_row(row: Row) -> bool:
    """Return whether this is one span of Phoenix: a row of its data frame, or of its API with `context` as an object."""
    if "context.trace_id" in row:
        return "context.span_id" in row
    return {"trace_id", "span_id"} <= dict_or_empty(row.get("context")).keys() and ("span_kind" in row or "attributes" in row)


def _read_phoenix_row(row: Row) -> Span:
    """Return the span of a row; numbered attributes, which Phoenix gathers into lists, become single ones again."""
    context = {**dict_or_empty(row.get("context")), **{key[8:]: row[key] for key in ("context.trace_id", "context.span_id") if key in row}}
    attributes = _flatten_columns(row)
    _flatten("", _open_object(row.get("attributes"), "attributes"), attributes)
    kind = text_or_none(row.get("span_kind"))
    if kind and kind != "UNKNOWN":
        attributes.setdefault("openinference.span.kind", kind)
    return _make_span(
        row,
        context.get("trace_id"),
        context.get("span_id"),
        parent_id=text_or_none(row.get("parent_id")) or None,
        attributes=attributes,
        failed=read_status(row.get("status_code")) == "failed",
        message=text_or_none(row.get("status_message")) or None,
        events=_read_events(row.get("events")),
    )


def _is_run(row: Row) -> bool:
    return "run_type" in row and "id" in row


def _read_langsmith_row(row: Row) -> Span:
    """Return the span of a run: the inputs are `gen_ai.prompt`, the outputs `gen_ai.completion`."""
    error, id = text_or_none(row.get("error")) or None, str(row.get("id"))
    # Exports that do not name the parent list all ancestors, or encode them in the order of the trace.
    above = [one for one in list_of(decode_container(row.get("parent_run_ids"))) if isinstance(one, str) and one]
    ordered = [part[-len(id) :] for part in (text_or_none(row.get("dotted_order")) or "").split(".")]
    above = above or (ordered[:-1] if ordered[-1] == id else [])
    return _make_span(
        row,
        row.get("trace_id"),
        row.get("id"),
        parent_id=text_or_none(row.get("parent_run_id")) or (above[-1] if above else None),
        attributes=_read_run(row),
        failed=error is not None or read_status(row.get("status")) == "failed",
        events=() if error is None else (SpanEvent("exception", {"exception.message": error}),),
        scope="langsmith",
    )


def _read_run(row: Row) -> dict[str, Json]:
    kind = (text_or_none(row.get("run_type")) or "chain").lower()
    extra, outputs = _open_object(row.get("extra"), "extra"), _open_member(row, "outputs")
    metadata, settings = dict_or_empty(extra.get("metadata")), dict_or_empty(extra.get("invocation_params"))
    found: dict[str, Json] = {NOT_UNDERSTOOD: extra[NOT_UNDERSTOOD]} if NOT_UNDERSTOOD in extra else {}
    found |= {"langsmith.span.kind": kind, "gen_ai.operation.name": _OPERATIONS.get(kind, "chain")}
    found["gen_ai.system"] = text_or_none(metadata.get("ls_provider")) or "langchain"
    for key, value in metadata.items():
        found[f"langsmith.metadata.{key}"] = value if isinstance(value, (str, bool, int, float)) else write_as_text(value)
    if settings.get("tools"):
        found["gen_ai.tool.definitions"] = write_as_text(settings["tools"])
    for name, column in (("gen_ai.prompt", "inputs"), ("gen_ai.completion", "outputs")):
        value = decode_container(row.get(column))
        if value is not None and value != {}:
            found[name] = write_as_text(value)
    if kind == "tool":
        answer = dict_or_empty(outputs.get("output")) or outputs
        call_id = answer.get("tool_call_id") or dict_or_empty(answer.get("kwargs")).get("tool_call_id")
        found["gen_ai.tool.name"] = text_or_none(row.get("name")) or ""
        found |= {"gen_ai.tool.call.id": call_id} if isinstance(call_id, str) else {}
    if kind == "llm":
        requested = find_first(settings, "model", "model_name") or metadata.get("ls_model_name")
        models = {"gen_ai.request.model": requested, "gen_ai.response.model": outputs.get("model")}
        found |= {name: model for name, model in models.items() if isinstance(model, str)}
        # Any other run repeats the tokens of its descendants.
        counts = {f"gen_ai.usage.{name}": to_whole_number(row.get(column)) for name, column in _COUNTS}
        found |= {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
    return found


def _is_langfuse_trace(row: Row) -> bool:
    is_trace = "observations" in row and "id" in row and not any(name in row for name in _TRACES)
    return is_trace and any("id" in entry and "type" in entry for entry in _list_observations(row)[:1])


def _is_langfuse_row(row: Row) -> bool:
    """Return whether this is an observation of Langfuse in either spelling (`traceId`, `trace_id`), or a trace with its observations."""
    return (_is_observation(row) and any(name in row for name in _TRACES)) or _is_langfuse_trace(row)


def _is_observation(row: Row) -> bool:
    # Null columns are omitted, so only the type identifies a root.
    return "id" in row and (any(name in row for name in _PARENTS) or text_or_none(row.get("type")) in _OBSERVATION_TYPES)


def _read_langfuse_row(row: Row) -> list[Span]:
    rows = [{"traceId": row.get("id"), **entry} for entry in _list_observations(row)] if _is_langfuse_trace(row) else [row]
    return [span for entry in rows for span in _read_tree(entry, _read_observation, _is_observation, "traceId")]


def _list_observations(row: Row) -> list[Row]:
    return [dict_or_empty(decode_container(entry)) for entry in list_of(decode_container(row.get("observations")))]


def _read_observation(row: Row) -> Span:
    # Langfuse stores OTLP attributes below `metadata`. The export to blob storage has a map of JSON texts here.
    metadata, kind = _open_member(row, "metadata"), text_or_none(row.get("type")) or "span"
    attributes = {**_open_object(metadata.get("attributes"), "metadata.attributes"), f"{_OBSERVATION}type": kind.lower()}
    observed = {name: value for column, name in reversed(_OBSERVED.items()) if (value := row.get(column)) is not None}
    attributes |= {name: write_as_text(value) for name, value in observed.items() if value != "" and value != {}}
    level = text_or_none(row.get("level")) or "DEFAULT"
    if level != "DEFAULT":
        attributes[f"{_OBSERVATION}level"] = level
    session = find_first(row, "sessionId", "session_id")
    if isinstance(session, str) and session:
        attributes["langfuse.session.id"] = session
    return _make_span(
        row,
        find_first(row, *_TRACES),
        row.get("id"),
        parent_id=text_or_none(find_first(row, *_PARENTS)) or None,
        attributes=attributes,
        failed=level == "ERROR",
        message=text_or_none(find_first(row, "statusMessage", "status_message")) if level == "ERROR" else None,
        scope=text_or_none(_open_member(metadata, "scope").get("name")) or "langfuse-sdk",
    )


def _is_mlflow_row(row: Row) -> bool:
    """Return whether this is one trace of MLflow, of `mlflow.search_traces()` or `Trace.to_json()`."""
    # Only `spans` would be a body of Mibo.
    if _MLFLOW.isdisjoint(row):
        return False
    attributes = [_open_member(dict_or_empty(span), "attributes") for span in _list_mlflow_spans(row)[:1]]
    return any(name.startswith("mlflow.") for names in attributes for name in names)


def _list_mlflow_spans(row: Row) -> list[Json]:
    # The column `trace` is the whole trace as JSON.
    for holder in (row, _open_member(row, "trace"), dict_or_empty(row.get("data"))):
        found = list_of(decode_container(holder.get("spans"))) or list_of(dict_or_empty(holder.get("data")).get("spans"))
        if found:
            return [decode_container(span) for span in found]
    return []


def _read_mlflow_row(row: Row) -> list[Span]:
    """Return the spans of a trace. Three generations write them differently: with `context`, ids in base 64, and `otel_trace_id`."""
    spans = _list_mlflow_spans(row)
    if not spans:
        raise EvidenceError("$: no spans; expected a trace of MLflow, with `spans` or `trace`")
    found: list[Span] = []
    for index, span in enumerate(spans):
        read = functools.partial(_read_mlflow_span, path=f"$.spans[{index}]")
        found.extend(_read_tree(dict_or_empty(span), read, _has_span_id, "otel_trace_id"))
    return found


def _read_mlflow_span(row: Row, path: str) -> Span:
    context, status = dict_or_empty(row.get("context")), dict_or_empty(row.get("status"))
    attributes = {key: write_as_text(value) for key, value in _open_object(row.get("attributes"), "attributes").items()}
    return _make_span(
        row,
        _read_id(find_first(row, "otel_trace_id", "trace_id") or context.get("trace_id")),
        _read_id(row.get("span_id") or context.get("span_id")),
        path,
        parent_id=_read_id(find_first(row, "parent_span_id", "parent_id")) or None,
        # All generations write nanoseconds, some of them as text.
        start_ns=read_nanoseconds(find_first(row, "start_time_unix_nano", "start_time")),
        end_ns=read_nanoseconds(find_first(row, "end_time_unix_nano", "end_time")),
        attributes=attributes,
        failed=read_status(status.get("code") or row.get("status_code")) == "failed",
        message=text_or_none(status.get("message") or row.get("status_message")) or None,
        events=_read_events(row.get("events")),
        scope="mlflow.tracing",
    )


def _read_id(value: Json) -> str:
    """Return an id as OTLP writes it, in hexadecimal."""
    if not isinstance(value, str):
        return ""
    if len(value) in _ID_BYTES and value.endswith("="):
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            return value
        return data.hex() if len(data) == _ID_BYTES[len(value)] else value
    # The id of a trace has the prefix `tr-`, ids of the first generation `0x`.
    return value.removeprefix("tr-").removeprefix("0x")


_TIMES = (("start_time", "start_time_unix_nano", "startTimeUnixNano"), ("end_time", "end_time_unix_nano", "endTimeUnixNano"))
# A table may have other columns, which are not read.
_COLUMNS = split_words("""
    trace_id traceId span_id spanId parent_span_id parentSpanId name kind attributes events status
    start_time_unix_nano startTimeUnixNano end_time_unix_nano endTimeUnixNano
    dropped_attributes_count droppedAttributesCount dropped_events_count droppedEventsCount
    """)


class SpanTable(msgspec.Struct, frozen=True):
    """One shape of rows."""

    name: str
    summary: str
    is_row: Callable[[Row], bool]
    read_row: Callable[[Row], list[Span]]
    is_whole: Callable[[Row], bool] = lambda row: False
    """Whether a row is a complete trace."""


def _read_plain_row(row: Row) -> Span:
    """Return an OTLP-like span, with attributes as an object, a list or JSON text."""
    entry = {name: value for name, value in row.items() if name in _COLUMNS}
    for name in ("attributes", "events", "status"):
        if name in entry:
            entry[name] = decode_container(entry[name])
    entry["attributes"] = _read_attributes(row, entry.get("attributes"))
    if find_first(entry, "parent_span_id", "parentSpanId") is None:
        entry["parent_span_id"] = row.get("parent_id")
    for column, *exact in _TIMES:
        for name in exact:
            if isinstance(entry.get(name), str) and not entry[name].isdigit():
                # A column of times under any name; other values stay, and are lost data.
                entry[name] = read_time_ns(entry[name]) or entry[name]
        if row.get(column) is not None and find_first(row, *exact) is None:
            entry[exact[0]] = read_time_ns(row[column])
    status = entry.get("status") or row.get("status_code")
    if isinstance(status, (str, int)):
        entry["status"] = {"code": status, "message": text_or_none(row.get("status_message"))}
    scope = row.get("scope")
    name = text_or_none(dict_or_empty(scope).get("name")) or text_or_none(scope) or ""
    span = read_span(entry, "$", dict_or_empty(decode_container(row.get("resource"))), text_or_none(row.get("case")), name)
    if not span.trace_id:
        raise EvidenceError("$.trace_id: expected text; a span without it belongs to no trace")
    return span


def _read_attributes(row: Row, value: Json) -> Json:
    """Return the attributes of a plain row: as an object, as a map of texts, or each in its own column."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and isinstance(one.get("value", ""), str) for one in value):
        value = {str(one.get("key")): one.get("value") for one in value}
    if isinstance(value, dict) and all(isinstance(one, (str, type(None))) for one in value.values()):
        value = {key: text if key not in COUNTS or (count := read_digits(text, 15)) is None else count for key, text in value.items()}
    columns = _flatten_columns(row)
    return {**dict_or_empty(value), **columns} if columns else value


_ALL = (
    SpanTable(
        "phoenix",
        "spans of Arize Phoenix, one in every row",
        _is_phoenix_row,
        lambda row: _read_tree(row, _read_phoenix_row, _has_span_id, "context.trace_id"),
    ),
    SpanTable(
        "langsmith",
        "runs of LangSmith, one in every row",
        lambda row: _is_run(row) and "trace_id" in row,
        lambda row: _read_tree(row, _read_langsmith_row, _is_run, "trace_id"),
    ),
    SpanTable(
        "langfuse",
        "observations of Langfuse, one in every row, or a trace with all of them",
        _is_langfuse_row,
        _read_langfuse_row,
        _is_langfuse_trace,
    ),
    SpanTable("mlflow", "traces of MLflow, each with its spans", _is_mlflow_row, _read_mlflow_row, lambda row: True),
    SpanTable(
        "spans",
        "spans in the words of OpenTelemetry, one in every row",
        lambda row: ("trace_id" in row or "traceId" in row) and ("span_id" in row or "spanId" in row),
        lambda row: _read_tree(row, _read_plain_row, _has_span_id, "trace_id"),
    ),
)
SPAN_TABLES: dict[str, SpanTable] = {table.name: table for table in _ALL}


def find_table(row: Json) -> SpanTable | None:
    """Return the shape of a row, or None if it is not a row of spans."""
    return next((table for table in _ALL if table.is_row(row)), None) if isinstance(row, dict) else None


def read_rows(value: Json, table: SpanTable | None = None) -> list[Span] | None:
    """Return the spans of a row or of a list of rows, or None if it has none or is a complete trace. Raises `EvidenceError`."""
    found: list[Span] = []
    for row in value if isinstance(value, list) else [value]:
        shape = table or find_table(row)
        if shape is None or (isinstance(row, dict) and shape.is_whole(row)):
            return None
        if not isinstance(row, dict):
            raise EvidenceError(f"a row of {shape.name} is an object")
        found.extend(shape.read_row(row))
    return found or None


def find_columns(names: frozenset[str]) -> SpanTable | None:
    """Return the shape of a table with these columns, or None if its rows are not spans."""
    if "spans" in names and names & {"trace", "trace_metadata", "execution_duration"}:
        return SPAN_TABLES["mlflow"]
    return find_table(dict.fromkeys(names))


_WITHOUT_SPANS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset(("trace_id", "observation_id", "data_type", "value")), "scores of Langfuse"),
    (frozenset(("id", "timestamp", "bookmarked", "user_id", "session_id")), "the heads of traces of Langfuse"),
)


def find_companion_table(names: frozenset[str]) -> str | None:
    """Return the table without spans that a platform exports with these columns, or None."""
    return next((table for columns, table in _WITHOUT_SPANS if columns <= names and "parent_observation_id" not in names), None)
