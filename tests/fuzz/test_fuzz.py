"""Random suites, recordings, protobuf and gzip, mutated from valid ones: refused with a message or decided, within time and memory limits.

`PROCTOR_FUZZ_EXAMPLES` sets their number and `PROCTOR_FUZZ_SEED` the seed; a failure names its example and seed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import proctor
from proctor.errors import EvidenceError, InputError
from proctor.evidence.otlp.groups import receive_json, receive_logs_json, receive_logs_protobuf, receive_protobuf
from proctor.evidence.otlp.wire_format import TooMuch, WireLimits
from proctor.evidence.reading import read_bytes, read_document
from proctor.evidence.recognise import FORMATS
from proctor.model.evidence import Evidence
from proctor.model.result import RunResult
from proctor.report.data.json_text import render_json
from proctor.service.settings import ServiceSettings
from tests.fuzz import seeds
from tests.fuzz.bounds import EXAMPLES, SEED, examine_all
from tests.fuzz.mutating import Mutator
from tests.rest.services import Service
from tests.service.trace_world import logs, logs_protobuf, new_trace, protobuf, record, request, root, span

pytestmark = pytest.mark.timeout(120 + EXAMPLES // 10)
JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}
DEFAULTS = ServiceSettings(home=Path("unused"))
LIMITS = WireLimits(messages=DEFAULTS.protobuf_messages, fields=DEFAULTS.protobuf_fields)
TRACES = [
    request(root(new_trace())),
    request(root(new_trace()), span(new_trace(), "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", gen_ai__tool__name="search", n=5), service=None),
]
LOGS = [logs(record(new_trace(), "aaaaaaaaaaaaaaaa", "gen_ai.choice", {"message": {"content": ["hi", 1]}}, a=1))]
CHECKED: tuple[dict[str, Any], ...] = (
    {"response_contains": "a"},
    {"tool_called": "search"},
    {"tools_in_order": ["search", "pay"]},
    {"no_tools_called": {}},
    {"json_path": {"path": "$..a"}},
    {"response_matches": "(a|b)+c"},
)


def share(part: float) -> range:
    """The numbers of the examples of one test."""
    return range(max(10, int(EXAMPLES * part)))


def verify_result(result: RunResult) -> None:
    """Complain about verdicts that say that we made a mistake."""
    for case in result.cases:
        wrong = [verdict for verdict in case.verdicts if verdict.code == "internal_error"]
        assert not wrong and case.code != "internal_error", [verdict.reason for verdict in wrong] or case.reason
    json.loads(render_json(result))


def written(document: Any, *, in_yaml: bool) -> str:
    """A suite as text; halves of characters and very deep ones cannot be written in YAML."""
    if in_yaml:
        with contextlib.suppress(UnicodeEncodeError, RecursionError):
            return yaml.dump(document, Dumper=yaml.CSafeDumper)
    return json.dumps(document)


@pytest.fixture(scope="module")
def records() -> list[Evidence]:
    found: list[Evidence] = []
    for document in seeds.recordings():
        found += read_document(document)
    return found


@pytest.mark.parametrize("dialect", seeds.DIALECTS)
def test_a_changed_suite_is_refused_in_words_or_decided(dialect: str, records: list[Evidence]) -> None:
    good = seeds.suites(dialect)
    mutator = Mutator(SEED, good)
    whole = [json.dumps(document, indent=1).encode() for document in good] + [yaml.safe_dump(document).encode() for document in good]

    recorded = Mutator(SEED, seeds.recordings())

    def use(example: tuple[str, Any]) -> None:
        text, document = example
        try:
            suite = proctor.parse_suite(text)
            found = [mutator.choice(records)] if document is None else read_document(document)
        except (InputError, EvidenceError) as error:
            assert str(error)
            return
        verify_result(proctor.check(suite, found[:3]))

    def made() -> Iterator[tuple[str, Any]]:
        for number in share(0.09):
            match number % 4:
                case 0:
                    yield mutator.data(whole).decode(errors="replace"), None
                case 1:
                    # Few mutated suites stay valid, so every claim is also decided on other evidence.
                    yield json.dumps(mutator.choice(good)), recorded.document()
                case way:
                    yield written(mutator.document(), in_yaml=way == 2), None

    examine_all(made(), use)


@pytest.mark.parametrize("way", ["document", "bytes", "checked"])
def test_a_changed_recording_is_refused_in_words_or_read(way: str) -> None:
    good = seeds.recordings()
    mutator = Mutator(SEED, good)
    formats = [None, None, None, *FORMATS]
    whole = [msgspec.json.encode(document) for document in good] + [protobuf(one) for one in TRACES]
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "a", "expect": list(CHECKED)}]}))

    def use(given: Any) -> None:
        example, format = given
        try:
            if way == "document":
                found = read_document(example, format=format)
            elif way == "bytes":
                found = read_bytes(example, format=format)
            elif example != "-":  # the standard input
                verify_result(proctor.check(suite, proctor.read_evidence(example)))
                return
            else:
                return
        except (EvidenceError, InputError) as error:
            assert str(error)
            return
        json.dumps(msgspec.to_builtins(found))

    examine_all(((mutator.data(whole) if way == "bytes" else mutator.document(), mutator.choice(formats)) for _ in share(0.1)), use)


@pytest.mark.parametrize("what", ["traces", "logs"])
def test_changed_protobuf_and_json_of_otlp_are_refused_in_words_or_received(what: str) -> None:
    good = TRACES if what == "traces" else LOGS
    write = protobuf if what == "traces" else logs_protobuf
    read_binary, read_json = (receive_protobuf, receive_json) if what == "traces" else (receive_logs_protobuf, receive_logs_json)
    mutator = Mutator(SEED, good)
    whole = [write(document) for document in good]

    def use(example: Any) -> None:
        try:
            if isinstance(example, bytes):
                read_binary(example, LIMITS)
            else:
                read_json(example)
        except (EvidenceError, TooMuch) as error:
            assert error.message

    examine_all((mutator.data(whole) if number % 4 else mutator.document() for number in share(0.08)), use)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(f"sqlite:///{tmp_path / 'proctor.db'}", tmp_path, requests_per_minute=0) as running:
        yield running


def test_mutated_otlp_causes_no_server_error(service: Service) -> None:
    key = service.keys()["agent"]
    mutators = {"/v1/traces": Mutator(SEED, TRACES), "/v1/logs": Mutator(SEED, LOGS)}
    binary = {"/v1/traces": [protobuf(one) for one in TRACES], "/v1/logs": [logs_protobuf(one) for one in LOGS]}
    seen: set[int] = set()

    def use(example: Any) -> None:
        path, body, headers = example
        answer = service.post(path, key=key, content=body, headers=headers)
        assert answer.status_code < 500, (answer.status_code, answer.text)
        seen.add(answer.status_code)

    def made() -> Iterator[tuple[str, bytes, dict[str, str]]]:
        for number in share(0.09):
            path = ("/v1/traces", "/v1/logs")[number % 2]
            mutator = mutators[path]
            headers = dict(PROTOBUF if number % 3 else JSON)
            body = mutator.data(binary[path]) if number % 3 else json.dumps(mutator.document()).encode()
            if mutator.choice((True, False)):
                body, headers["content-encoding"] = mutator.packed(body), "gzip"
            yield path, body, headers

    examine_all(made(), use)
    assert {200, 400} <= seen
