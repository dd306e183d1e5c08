"""Bytes as input: JSON, OTLP protobuf, and the error for everything else."""

from __future__ import annotations

import copy
import gzip
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError, InputError, MissingExtra
from proctor.evidence.otlp import protobuf as otlp_protobuf
from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, convert_any_value, find_lost_traces, merge_spans
from proctor.evidence.reading import find_spans, read_bytes, read_document
from proctor.evidence.recognise import FORMATS, read_data
from proctor.evidence.tables.read import SPAN_TABLES
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Evidence
from proctor.model.json_values import MAX_DEPTH
from tests.evidence.test_readers import document_of
from tests.tables import load


def refusal(data: bytes, **more: Any) -> EvidenceError:
    with pytest.raises(EvidenceError) as caught:
        read_bytes(data, **more)
    return caught.value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty: no JSON in it"),
        (b" \n ", "empty: no JSON in it"),
        (b'{"text": NaN}', "not JSON: NaN and Infinity are not JSON at line 1, column 10"),
        (b'{"text":\n  -Infinity}', "not JSON: NaN and Infinity are not JSON at line 2, column 4"),
        (b'{"text": "a"', "not JSON: it ends too early"),
        (b'{"text": "a"} {"text": "b"}', "not JSON: trailing characters at line 1, column 15"),
        (b'{"text": "a",}', "not JSON: trailing comma in object at line 1, column 14"),
        (b"hello", "not JSON: invalid character at line 1, column 1"),
        (b'{"body": 1e999}', "not JSON: number out of range"),
        (b'{"text": "\xff"}', "not UTF-8 text: byte 0xff at offset 10"),
        (b'\xef\xbb\xbf{"text": "\xc3"}', "not UTF-8 text: byte 0xc3 at offset 10"),
        (b"\xff\xfe{\x00}\x00", "UTF-16 text; save it as UTF-8"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture, not JSON"),
        (b"PK\x03\x04...", "a zip archive; unpack it first"),
    ],
)
def test_invalid_json_is_reported_with_its_place(data: bytes, message: str) -> None:
    assert refusal(data).message == message


def test_compressed_data_is_refused_with_a_hint_to_unpack_it() -> None:
    assert refusal(gzip.compress(b'{"text": "a"}')).message == "gzip-compressed data; unpack it first (gunzip)"


def test_a_byte_order_mark_is_accepted() -> None:
    assert read_bytes(b'\xef\xbb\xbf{"text": "a"}')[0].text == "a"


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    assert read_bytes(rb'{"text": "cut \ud83d", "body": "\ud83d\ude00 \\ud83d \udc00x"}')[0].text == "cut �"
    assert read_bytes(rb'{"text": "cut \ud83d", "body": "\ud83d\ude00 \\ud83d \udc00x"}')[0].body == "😀 \\ud83d �x"


def test_big_whole_numbers_stay_exact() -> None:
    assert read_bytes(b'{"body": 123456789012345678901234567890, "text": "x"}')[0].body == 123456789012345678901234567890


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 2_000, 100_000])
def test_documents_nested_too_deep_are_refused(depth: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        data = b'{"body":' + opening * depth + b"1" + closing * depth + b"}"
        assert refusal(data).code == "too_deep"


def test_documents_nested_as_deep_as_allowed_are_read() -> None:
    depth = MAX_DEPTH - 1
    data = b'{"body":' + b"[" * depth + b"]" * depth + b"}"
    (evidence,) = read_bytes(data)
    assert evidence.text == (b"[" * depth + b"]" * depth).decode()


def test_json_text_nested_too_deep_inside_a_text_stays_text() -> None:
    deep = "[" * 5_000 + "]" * 5_000
    evidence = read_document({"text": deep, "tool_calls": [{"name": "a", "arguments": deep}]})[0]
    assert evidence.body is None
    assert evidence.tool_calls is not None and evidence.tool_calls[0].arguments == deep


def test_values_of_otlp_nested_too_deep_are_refused() -> None:
    value: Any = {"stringValue": "x"}
    for _ in range(80):
        value = {"arrayValue": {"values": [value]}}
    span = {"traceId": "t", "spanId": "a", "attributes": [{"key": "k", "value": value}]}
    with pytest.raises(EvidenceError) as caught:
        read_document({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    assert caught.value.code == "too_deep"


def protobuf_request() -> Any:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = group.scope_spans.add()
    root = scope.spans.add(trace_id=bytes(range(16)), span_id=b"rootspan", name="POST /chat")
    root.start_time_unix_nano, root.end_time_unix_nano = 1_763_197_200_000_000_000, 1_763_197_201_500_000_000
    root.attributes.add(key="http.response.status_code").value.int_value = 200
    root.attributes.add(key="gen_ai.response.text").value.string_value = "On its way."
    tool = scope.spans.add(trace_id=bytes(range(16)), span_id=b"toolspan", parent_span_id=b"rootspan", name="execute_tool lookup")
    tool.start_time_unix_nano, tool.end_time_unix_nano = 1_763_197_200_100_000_000, 1_763_197_200_200_000_000
    tool.attributes.add(key="gen_ai.tool.name").value.string_value = "lookup"
    arguments = tool.attributes.add(key="gen_ai.tool.call.arguments").value.kvlist_value
    arguments.values.add(key="id").value.int_value = 17
    tags = arguments.values.add(key="tags").value.array_value
    tags.values.add().bool_value = True
    tags.values.add().double_value = float("nan")
    tags.values.add().bytes_value = b"\x01"
    tags.values.add()
    tool.status.code, tool.status.message = 2, "no such order"
    tool.events.add(name="exception").attributes.add(key="exception.message").value.string_value = "gone"
    return request


def test_otlp_protobuf_reads_like_its_json() -> None:
    (evidence,) = read_bytes(protobuf_request().SerializeToString())
    assert (evidence.text, evidence.http_status, evidence.duration_ms, evidence.now) == ("On its way.", 200, 1500, "2025-11-15T09:00:00Z")
    assert evidence.metadata == {"trace_id": bytes(range(16)).hex(), "service.name": "shop", "span": "POST /chat"}
    assert evidence.tool_calls is not None
    (call,) = evidence.tool_calls
    assert (call.name, call.arguments) == ("lookup", {"id": 17, "tags": [True, None, "01", None]})
    assert (call.error, call.error_kind, call.node, call.duration_ms) == ("no such order", "protocol-error", "POST /chat", 100)
    assert read_bytes(protobuf_request().SerializeToString(), format="otlp") == [evidence]


def test_protobuf_whose_length_byte_looks_like_json_is_still_protobuf() -> None:
    request = protobuf_request()
    del request.resource_spans[0].scope_spans[0].spans[1]
    root = request.resource_spans[0].scope_spans[0].spans[0]
    del root.attributes[:]
    request.resource_spans[0].resource.Clear()
    # Grow the name until the outer length is 123, which is `{`.
    root.name = ""
    while len(request.resource_spans[0].SerializeToString()) < 123:
        root.name += "n"
    data = request.SerializeToString()
    assert data[:2] == b"\n{"
    (evidence,) = read_bytes(data)
    assert evidence.nodes is not None and evidence.nodes[0].name == root.name


def test_binary_data_that_is_no_trace_is_refused_as_text_that_is_no_json() -> None:
    assert refusal(b"\n\x05hello").message == "not JSON: invalid character at line 2, column 1"
    assert refusal(b"\x00\x01\x02", format="otlp").message.startswith("not JSON")


def test_without_the_optional_part_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    data = protobuf_request().SerializeToString()
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(MissingExtra, match=r"pip install 'proctor-evals\[otlp\]'"):
        otlp_protobuf.read_protobuf_spans(data)


def test_a_trace_from_several_requests_is_merged() -> None:
    first = find_spans({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "a", "name": "x"}]}]}]})
    second = find_spans({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "b", "parentSpanId": "a"}]}]}]})
    assert first is not None and second is not None
    assert [span.id for span in merge_spans([first, second])["t"]] == ["a", "b"]
    assert find_spans({"text": "not a trace"}) is None


def test_every_format_identifies_itself() -> None:
    assert all(name == entry.name and entry.summary for name, entry in FORMATS.items())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)

# Words that lead deep into the readers, so that the values there are the surprising part.
LEADING = """
text body tool_calls nodes turns state usage data spans status metadata resourceSpans scopeSpans attributes resultData runData main
json agentFlowExecutedData usedTools chatId question messages role content parts type tool_use tool_result tool-call name input
output arguments function choices message candidates contents functionCall kwargs lc id span_id parent_span_id key value kvlistValue
fhir hl7 portal files voice x12 resources scenario_run scenario_id trace_meta user assistant tool human ai source inputOverride
ai_tool input_tokens prompt_tokens total_tokens error node result isError gen_ai.tool.name gen_ai.output.messages
openinference.span.kind n8n.node.output intermediateSteps action workflowData connections
"""
WORDS = st.sampled_from(LEADING.split())
SHAPED = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.just(10**400) | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=30,
)


CALLS = st.fixed_dictionaries(
    {"name": WORDS | st.integers(0, 1)},
    optional={
        "arguments": SHAPED,
        "result": SHAPED,
        "error": SHAPED,
        "node": WORDS | st.none(),
        "id": WORDS,
        "duration_ms": SHAPED,
        "args": SHAPED,
    },
)
USAGE = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "total_tokens", "prompt_tokens"]), st.integers(-1, 9) | st.none(), max_size=3
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "case": WORDS,
        "text": st.none() | st.text(max_size=8) | st.sampled_from(['{"a": 1}', " [1]", "12", "true", "-", '"x', "null"]),
        "body": SHAPED,
        "input": SHAPED,
        "tool_calls": st.lists(CALLS, max_size=3) | SHAPED,
        "usage": USAGE,
        "metadata": st.dictionaries(WORDS, SHAPED, max_size=2),
        "error": st.none() | st.sampled_from(["", "boom", False]),
        "http_status": st.sampled_from([200, 200.0, 200.5, "200", None, True]),
        "duration_ms": st.sampled_from([1, 1.5, "1", None, True]),
        "unknown": st.integers(),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_bytes(data)
    except (EvidenceError, InputError):
        pass


@settings(max_examples=250, deadline=None)
@given(JSON | SHAPED, st.sampled_from([None, *FORMATS]))
@pytest.mark.timeout(60)
def test_any_json_is_read_as_any_format_or_refused(document: Any, format: str | None) -> None:
    try:
        found = read_bytes(msgspec.json.encode(document), format=format)
    except EvidenceError as error:
        assert error.message
        return
    assert all(isinstance(evidence, Evidence) for evidence in found)
    # The evidence can be written again.
    msgspec.json.encode(found)


TABLES = ("plain", "state", "mibo", "spans", "otlp", "n8n", "flowise", "mcplab", "messages")
GOOD = [document_of(row) for table in TABLES for row in load(f"evidence/cases/{table}.yaml") if "expect" in row]


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """A good document in which one value, anywhere, is replaced by another."""
    document = copy.deepcopy(draw(st.sampled_from(GOOD)))
    holder: Any = None
    place: Any = None
    value = document
    while isinstance(value, (dict, list)) and value and (holder is None or draw(st.integers(0, 4))):
        holder = value
        place = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        value = value[place]
    if holder is not None:
        holder[place] = draw(SHAPED)
    return document


@settings(max_examples=250, deadline=None)
@given(spoiled(), st.sampled_from([None, None, None, *FORMATS]))
@pytest.mark.timeout(60)
def test_a_good_document_with_one_value_spoiled_is_read_or_refused(document: Any, format: str | None) -> None:
    try:
        found = read_document(document, format=format)
    except EvidenceError as error:
        assert error.message
        return
    # The evidence can be written again.
    msgspec.json.encode(found)


def _written(found: list[Evidence]) -> Any:
    """As JSON, without null results: the fast path keeps written fields, also `"result": null`."""
    written = msgspec.json.decode(msgspec.json.encode(found))
    for evidence in written:
        for call in evidence.get("tool_calls") or ():
            if call.get("result", 0) is None:
                del call["result"]
    return written


@settings(max_examples=200, deadline=None)
@given(LINES)
@example({"text": "x", "body": [{"usage": 5}]})
@example({"text": "x", "body": [{"usage": {"total_tokens": 5}}]})
@pytest.mark.timeout(60)
def test_the_hot_path_and_the_general_path_agree(document: dict[str, Any]) -> None:
    line = msgspec.json.encode(document)
    try:
        general = read_data(line, None)
    except EvidenceError as error:
        with pytest.raises(EvidenceError) as caught:
            read_bytes(line)
        assert caught.value.message == error.message
        return
    fast = read_bytes(line)
    # Written down: on the hot path the result of a call is decoded when it is first read.
    assert _written(fast) == _written(general)


def many_nested_tools(count: int) -> Any:
    return {
        "spans": [
            {"span_id": f"s{n}", "parent_span_id": f"s{n - 1}", "name": "t", "attributes": {"gen_ai.tool.name": f"t{n}"}}
            for n in range(count)
        ]
    }


def many_models_far_down(count: int) -> Any:
    asks = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "tool_call", "name": "t"}]}],
    }
    chain = [{"span_id": f"s{n}", "parent_span_id": f"s{n - 1}", "name": "step"} for n in range(count)]
    return {
        "spans": chain + [{"span_id": f"m{n}", "parent_span_id": f"s{count - 1}", "name": "m", "attributes": asks} for n in range(count)]
    }


def many_runs_of_a_loop(count: int) -> Any:
    def runs(before: str) -> list[Any]:
        return [
            {"source": [{"previousNode": before, "previousNodeRun": n}], "data": {"main": [[{"json": {"n": n}}]]}} for n in range(count)
        ]

    nodes = [{"name": "H", "type": "n8n-nodes-base.httpRequest", "parameters": {"url": "={{ $json.n }}"}}]
    return {"workflowData": {"nodes": nodes}, "data": {"resultData": {"runData": {"L": runs("H"), "H": runs("L")}}}}


def many_unrequested_results(count: int) -> Any:
    calls = [{"functionCall": {"name": "a"}} for _ in range(count)]
    results = [{"functionResponse": {"name": "b", "response": {}}} for _ in range(count)]
    return [{"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": calls}, {"role": "user", "parts": results}]


@pytest.mark.in_turn
@pytest.mark.parametrize("made", [many_nested_tools, many_models_far_down, many_runs_of_a_loop, many_unrequested_results])
@pytest.mark.timeout(60)
def test_the_work_grows_with_the_size_of_a_document_and_not_with_its_square(made: Callable[[int], Any]) -> None:
    document = made(10_000)
    before = time.process_time()
    read_document(document)
    assert time.process_time() - before < 5, "a second on a slow machine; half a minute and more if every part looked at every other"


@pytest.mark.parametrize(("text", "expected"), [("1.5", 1.5), ("-2e3", -2000.0), ("NaN", None), ("-Infinity", None), ("1e999", None)])
def test_a_number_in_text_that_json_cannot_carry_is_none(text: str, expected: float | None) -> None:
    assert convert_any_value({"doubleValue": text}) == expected


def _write_requests(ids: Callable[[str], str]) -> list[bytes]:
    """One trace in two requests; `ids` writes some of their ids."""
    trace, root, model, tool = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "b7ad6b716920333a", "b7ad6b716920333b"

    def write(span: str, parent: str | None, name: str, **fields: str) -> dict[str, Any]:
        attributes = [{"key": f"gen_ai.{key.replace('__', '.')}", "value": {"stringValue": value}} for key, value in fields.items()]
        times = {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000009000000000"}
        return {"spanId": span, **({"parentSpanId": parent} if parent else {}), "name": name, "attributes": attributes, **times}

    def send(trace: str, *spans: dict[str, Any]) -> bytes:
        scope = {"scope": {"name": "x"}, "spans": [{"traceId": trace, **span} for span in spans]}
        return msgspec.json.encode({"resourceSpans": [{"resource": {}, "scopeSpans": [scope]}]})

    fields = {"operation__name": "chat", "output__messages": '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]'}
    return [
        send(trace, write(root, None, "invoke_agent", operation__name="invoke_agent"), write(ids(model), root, "chat", **fields)),
        send(ids(trace), write(tool, ids(root), "execute_tool", operation__name="execute_tool", tool__name="delete")),
    ]


@pytest.mark.parametrize("ids", [str.upper, lambda text: text[:-2].upper() + text[-2:]], ids=["upper", "mixed"])
def test_the_ids_of_a_trace_are_hexadecimal_in_either_case(ids: Callable[[str], str]) -> None:
    plain, odd = ([find_spans(decode(request)) or [] for request in _write_requests(how)] for how in (str, ids))
    assert merge_spans(odd) == merge_spans(plain) and len(merge_spans(plain)) == 1
    broken = _write_requests(ids)[1].replace(b'"spanId":"', b'"spanId":')
    assert find_lost_traces(broken) == frozenset(merge_spans(plain))


@pytest.mark.parametrize(
    "row",
    [
        {"context.trace_id": "0AF7651916CD43DD", "context.span_id": "a", "span_kind": "LLM"},
        {"trace_id": "0AF7651916CD43DD", "id": "a", "run_type": "llm"},
        {"traceId": "0AF7651916CD43DD", "id": "a", "parentObservationId": None, "type": "GENERATION"},
        {"trace_id": "0AF7651916CD43DD", "span_id": "a", "name": "x"},
    ],
    ids=["phoenix", "langsmith", "langfuse", "plain"],
)
def test_a_row_has_the_same_trace_id_when_it_is_lost(row: dict[str, Any]) -> None:
    (span,) = find_spans(row) or []
    assert find_lost_traces(msgspec.json.encode(row), readable=True) == {span.trace_id}


@pytest.mark.parametrize("id", ["ABCDEF", "QUFBQUFBQUE=", "TR-0AF7651916CD43DD", "A" * 24, "0AF7651916CD43DG"])
def test_ids_that_are_not_hexadecimal_stay_as_they_are(id: str) -> None:
    (span,) = find_spans({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": id, "spanId": id, "name": "x"}]}]}]}) or []
    assert (span.trace_id, span.id) == (id, id)


_CUT = '{"gen_ai.operation.name": "chat", "gen_ai.output.mess'


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"context.trace_id": "t", "context.span_id": "a", "span_kind": "CHAIN", "attributes": _CUT}, "attributes"),
        ({"context": {"trace_id": "t", "span_id": "a"}, "span_kind": "CHAIN", "attributes": [1]}, "attributes"),
        ({"trace_id": "t", "span_id": "a", "attributes": _CUT}, "attributes"),
        ({"trace_id": "t", "id": "a", "run_type": "chain", "extra": _CUT}, "extra"),
        ({"traceId": "t", "id": "a", "type": "SPAN", "metadata": {"attributes": _CUT}}, "metadata.attributes"),
        ({"trace_id": "tr-1", "spans": [{"trace_id": "t", "span_id": "a", "name": "x", "attributes": _CUT}]}, "attributes"),
    ],
    ids=["phoenix", "phoenix, a list", "plain", "langsmith", "langfuse", "mlflow"],
)
def test_truncated_attributes_are_reported_as_not_understood(row: dict[str, Any], name: str) -> None:
    reader = SPAN_TABLES["mlflow"].read_row if "spans" in row else find_spans
    (span,) = reader(row) or []
    assert span.attributes[NOT_UNDERSTOOD] == name
