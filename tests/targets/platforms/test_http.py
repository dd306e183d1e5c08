"""An HTTP agent: requests, evidence and errors."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import ssl
from typing import Any

import msgspec
import pytest

from proctor.cassettes.ports import LIVE
from proctor.checks.run.limits import HttpStatus
from proctor.errors import InputError
from proctor.evidence.mapping.read import compile_mapping
from proctor.model.case import Assertion, Suite
from proctor.model.evidence import Evidence, Usage
from proctor.model.mapping import EvidenceMap
from proctor.targets.answers.http_answers import evidence_of
from proctor.targets.answers.no_answer import refuse_status
from proctor.targets.build import build_target, check_cases
from proctor.targets.platforms.http import HttpSettings, HttpTarget
from proctor.targets.shared import wire
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.wire import HttpAnswer, Wire
from tests.builders import call
from tests.tables import rows
from tests.targets.loopback import Answer, Player, ReceivedRequest, Recorder, Reply, Server, attempt, serve

SECRET = "sk-very-secret-token"
REFUSED_IN_TURN_2 = Assertion(check="http_status", spec=HttpStatus(status=500), turn=1)


def drive(answer: Answer, go: Any, tape: Any = LIVE, path: str = "/chat", **settings: Any) -> tuple[Evidence, Server]:
    """Run one attempt against a server that answers this way."""

    async def run() -> tuple[Evidence, Server]:
        async with serve(answer) as server:
            target = build_target("shop", {"type": "http", "url": server.url + path, **settings})
            await target.open()
            try:
                return await target.run(go, tape), server
            finally:
                await target.close()

    return asyncio.run(run())


def fault_of(answer: Answer, go: Any, **more: Any) -> TargetFault:
    with pytest.raises(TargetFault) as caught:
        drive(answer, go, **more)
    return caught.value


def echo(request: ReceivedRequest) -> Reply:
    return Reply(body={"text": f"you wrote {request.json['input']}"})


# --- requests ---------------------------------------------------------------------------------------------------------------


def test_a_message_is_posted_with_the_template_and_request_id() -> None:
    evidence, server = drive(echo, attempt("hello"))
    (request,) = server.requests
    assert (request.method, request.path, request.json) == ("POST", "/chat", {"input": "hello"})
    assert request.headers["x-request-id"] == "request-a-0001"
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers and "cookie" not in request.headers
    assert (evidence.case, evidence.input, evidence.text, evidence.http_status) == ("case-1", "hello", "you wrote hello", 200)
    assert evidence.duration_ms is not None and evidence.duration_ms > 0
    assert evidence.metadata == {"request_id": "request-a-0001", "session_id": "session-a-0001"}
    assert evidence.tool_calls is None, "an answer without tool calls shows nothing about tools"


def test_a_bearer_token_and_custom_headers_are_sent() -> None:
    _, server = drive(echo, attempt("a"), auth={"type": "bearer", "token": SECRET}, headers={"X-Session": "<{session_id}>"})
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert server.requests[0].headers["x-session"] == "<session-a-0001>"
    _, server = drive(echo, attempt("a"), auth={"type": "headers", "headers": {"X-Api-Key": SECRET, "X-Tenant": "t"}})
    assert (server.requests[0].headers["x-api-key"], server.requests[0].headers["x-tenant"]) == (SECRET, "t")


def test_a_body_of_the_case_is_sent_exactly_and_the_template_is_ignored() -> None:
    body = {"raw": "{user_message}", "n": [1, 2.5, None, 12345678901234567890123]}
    evidence, server = drive(lambda request: Reply(body={"text": "ok"}), attempt(body=body), template={"x": "{UNKNOWN}"})
    assert server.requests[0].json == body
    assert evidence.input == body


def test_variables_of_the_case_fill_the_template_the_address_and_the_headers() -> None:
    _, server = drive(
        echo,
        attempt("hi", context={"TENANT": "a/b c", "N": 3}),
        path="/t/{TENANT}/chat?x=1",
        template={"input": "{input}", "n": "{N}"},
        headers={"x-n": "n{N}"},
    )
    assert server.requests[0].path == "/t/a%2Fb%20c/chat?x=1"
    assert server.requests[0].json == {"input": "hi", "n": 3}
    assert server.requests[0].headers["x-n"] == "n3"


def test_get_sends_the_template_as_query_parameters() -> None:
    evidence, server = drive(lambda request: Reply(body={"text": "ok"}), attempt("a b&c"), method="get", template={"q": "{input}", "n": 1})
    assert (server.requests[0].method, server.requests[0].path, server.requests[0].data) == ("GET", "/chat?q=a+b%26c&n=1", b"")
    assert evidence.text == "ok"


def test_a_stateless_agent_gets_the_whole_conversation() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(body={"text": f"re {request.json['messages'][-1]['content']}"})

    _, server = drive(answer, attempt("one", "two", "three"), template={"messages": "{messages}"})
    conversation = [{"role": role, "content": content} for role, content in (("user", "one"), ("assistant", "re one"), ("user", "two"))]
    assert [request.json["messages"] for request in server.requests[:2]] == [conversation[:1], conversation]
    assert server.requests[2].json["messages"][3:] == [{"role": "assistant", "content": "re two"}, {"role": "user", "content": "three"}]


def test_turns_share_a_session_in_order_with_their_own_ids() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        status = 500 if request.json["m"] == "two" else 200
        return Reply(
            status=status,
            body={
                "text": f"re {request.json['m']}",
                "tool_calls": [{"name": "look", "arguments": {"m": request.json["m"]}}],
                "usage": {"total_tokens": 5},
            },
        )

    evidence, server = drive(
        answer,
        attempt("one", "two", "three", assertions=(REFUSED_IN_TURN_2,)),
        template={"m": "{user_message}", "s": "{session_id}", "r": "{request_id}"},
    )
    assert [(request.json["m"], request.json["s"]) for request in server.requests] == [
        (m, "session-a-0001") for m in ("one", "two", "three")
    ]
    assert [request.headers["x-request-id"] for request in server.requests] == [f"request-a-0001-{n}" for n in (1, 2, 3)]
    assert [request.json["r"] for request in server.requests] == [f"request-a-0001-{n}" for n in (1, 2, 3)]
    assert evidence.turns is not None
    assert [(turn.input, turn.text, turn.http_status) for turn in evidence.turns] == [
        ("one", "re one", 200),
        ("two", "re two", 500),
        ("three", "re three", 200),
    ]
    assert (evidence.text, evidence.http_status, evidence.input) == ("re three", 200, "one")
    assert evidence.tool_calls == tuple(call("look", {"m": m}) for m in ("one", "two", "three"))
    assert evidence.usage == Usage(total_tokens=15)
    assert evidence.duration_ms == sum(turn.duration_ms or 0 for turn in evidence.turns)


# --- evidence ---------------------------------------------------------------------------------------------------------------


@rows("targets/cases/answers.yaml")
def test_an_answer_is_read(row: dict[str, Any]) -> None:
    status = row.get("status", 200)
    reply = Reply(status=status, body=row.get("body"), data=data_of(row), headers=row.get("headers", {}))
    claims = {"assertions": (Assertion(check="http_status", spec=HttpStatus(status=status)),)} if row.get("claimed") else {}
    evidence, _ = drive(lambda request: reply, attempt("hi", **claims), **row.get("settings", {}))
    assert evidence.account is not None
    account = evidence.account
    known = {"unknown": list(account.unknown), "notes": list(account.notes), "reader": account.reader, "ignored": list(account.ignored)}
    for field, wanted in row["expect"].items():
        if field == "why":
            assert all(words in account.unknown[part] for part, words in wanted.items()), account.unknown
            continue
        found: Any = known[field] if field in known else getattr(evidence, field)
        if field == "unknown":
            assert sorted(found) == sorted(wanted)
            continue
        if field == "tool_calls" and found is not None:
            found = [one.name for one in found]
        if field == "nodes" and found is not None:
            found = [one.name for one in found]
        if field == "usage" and found is not None:
            found = found.total()
        if field == "metadata":
            found = {key: found.get(key) for key in wanted}
        assert found == wanted, field


HARMLESS = {
    "cache_hint": 3,
    "billing": {"plan": "pro"},
    "flags": ["a", "b"],
    "region_note": "eu",
    "beta": True,
    "guests": [{"name": "Ada"}],
}


@rows("targets/cases/answers.yaml")
def test_a_harmless_field_changes_nothing(row: dict[str, Any]) -> None:
    body, status = row.get("body"), row.get("status", 200)
    if not isinstance(body, dict) or status >= 400 or "answer_format" in row.get("settings", {}):
        return
    path = row.get("settings", {}).get("response_path")

    def read(given: dict[str, Any]) -> Evidence:
        return evidence_of(HttpAnswer(status=status, body=given), response_path=path, status_claimed=row.get("claimed", False))

    before = read(body)
    assert before.account is not None
    if before.account.reader != "http target":
        return
    for key, value in HARMLESS.items():
        after = read({**body, key: value})
        assert after.account is not None and after.account.unknown == before.account.unknown, key
        assert (after.tool_calls, after.error) == (before.tool_calls, before.error), key


def data_of(row: dict[str, Any]) -> bytes | None:
    """The bytes of the response; `packed` has the lengths of the pieces that are packed separately."""
    if "data" not in row:
        return None
    data = row["data"].encode(row.get("encoding", "utf-8"))
    if "packed" not in row:
        return data
    ends = list(itertools.accumulate(row["packed"]))
    return b"".join(gzip.compress(data[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def test_a_compressed_response_is_decompressed() -> None:
    reply = Reply(data=gzip.compress(b'{"text": "small"}'), headers={"content-encoding": "gzip"})
    assert drive(lambda request: reply, attempt("hi"))[0].text == "small"


def test_a_secret_that_the_agent_echoes_does_not_reach_the_evidence() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(body={"text": f"you sent {request.headers['authorization']}", request.headers["authorization"]: 1})

    evidence, _ = drive(answer, attempt("hi"), auth={"type": "bearer", "token": SECRET})
    assert evidence.text == "you sent Bearer [redacted]"
    assert SECRET not in repr(evidence)


# --- errors -----------------------------------------------------------------------------------------------------------------


def test_an_unreachable_server_is_a_safe_fault_with_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/chat"

        async def run() -> None:
            target = build_target("shop", {"type": "http", "url": url})
            await target.open()
            try:
                await target.run(attempt("hi"), LIVE)
            finally:
                await target.close()

        with pytest.raises(TargetFault, match=f"POST {url}: ") as caught:
            asyncio.run(run())
        assert (caught.value.code, caught.value.safe) == ("unreachable", True)


async def never(request: ReceivedRequest) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


def test_an_agent_that_never_answers_is_a_timeout() -> None:
    fault = fault_of(never, attempt("hi"), timeout_s=0.05)
    assert (fault.code, fault.safe) == ("timeout", False)
    assert fault.message.endswith("/chat: no whole answer within 0.05 s")


def test_the_attempt_time_limit_keeps_earlier_turns() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return await never(request) if request.json["input"] == "two" else echo(request)

    fault = fault_of(answer, attempt("one", "two", timeout_s=0.2))
    assert (fault.code, fault.message) == ("timeout", "shop: not finished after 0.2 s (in turn 2 of 2)")
    assert fault.evidence is not None and fault.evidence.turns is not None
    assert [turn.text for turn in fault.evidence.turns] == ["you wrote one"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "transport"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc", "transport"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "transport"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", "bad_answer"),
    ],
)
def test_an_invalid_response_is_an_unsafe_fault(raw: bytes, code: str) -> None:
    fault = fault_of(lambda request: Reply(raw=raw), attempt("hi"))
    assert (fault.code, fault.safe) == (code, False)
    assert "POST http://127.0.0.1:" in fault.message


def test_a_response_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serve(lambda request: Reply(data=b"x" * 5000)) as server:
            target = HttpTarget("shop", HttpSettings(url=server.url))
            monkeypatch.setattr(target, "_wire", Wire(limit_bytes=4096))
            await target.open()
            try:
                await target.run(attempt("hi"), LIVE)
            finally:
                await target.close()

    with pytest.raises(TargetFault, match=r"0\.00390625 MB") as caught:
        asyncio.run(run())
    assert caught.value.code == "too_large"


def test_a_redirect_on_the_same_host_is_followed_with_method_body_and_token() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(status=302, headers={"location": "/new"}, data=b"") if request.path == "/chat" else echo(request)

    evidence, server = drive(answer, attempt("hi"), auth={"type": "bearer", "token": SECRET})
    assert evidence.text == "you wrote hi"
    assert [(request.method, request.path, request.headers["authorization"]) for request in server.requests] == [
        ("POST", "/chat", f"Bearer {SECRET}"),
        ("POST", "/new", f"Bearer {SECRET}"),
    ]
    assert evidence.account is not None
    assert evidence.account.notes == (f"status 302 led on to {server.url}/new",)


def test_a_redirect_without_the_message_is_noted_in_the_recording() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return (
            Reply(status=303, headers={"location": "/new?token=abc"}, data=b"")
            if request.path == "/chat"
            else Reply(body={"text": "ready"})
        )

    tape = Recorder()
    evidence, server = drive(answer, attempt("hi"), tape)
    assert [(request.method, request.data) for request in server.requests][1] == ("GET", b"")
    notes = (f"status 303 led on to {server.url}/new?token=[redacted], requested with GET and without the message",)
    assert evidence.account is not None and evidence.account.notes == notes
    assert tape.exchanges[0][2]["redirects"] == list(notes)


@pytest.mark.parametrize(
    "location", ["http://other.test/x?token=abc", "http://127.0.0.1:1/x", "//other.test/x", "https://127.0.0.1/x", "file:///etc/passwd"]
)
def test_a_redirect_to_another_host_is_not_followed(location: str) -> None:
    fault = fault_of(
        lambda request: Reply(status=302, headers={"location": location}, data=b""), attempt("hi"), auth={"type": "bearer", "token": SECRET}
    )
    assert fault.code == "redirected"
    assert "redirects to another host" in fault.message and SECRET not in fault.message and "token=abc" not in fault.message


def test_circular_redirects_end() -> None:
    fault = fault_of(lambda request: Reply(status=307, headers={"location": "/chat"}, data=b""), attempt("hi"))
    assert fault.message.endswith("more than 5 redirects")


def test_a_cookie_of_one_case_is_not_sent_with_the_next() -> None:
    async def run() -> list[ReceivedRequest]:
        async with serve(lambda request: Reply(body={"text": "x"}, headers={"set-cookie": "session=one"})) as server:
            target = build_target("shop", {"type": "http", "url": server.url})
            await target.open()
            for marker in "ab":
                await target.run(attempt("hi", marker=marker), LIVE)
            await target.close()
            return server.requests

    assert all("cookie" not in request.headers for request in asyncio.run(run()))


def test_a_message_that_breaks_a_header_is_refused() -> None:
    fault = fault_of(echo, attempt("a\r\nx-evil: 1"), headers={"x-message": "{user_message}"})
    assert (fault.code, fault.safe) == ("bad_request", True)


def test_a_case_without_a_message_is_a_fault() -> None:
    assert fault_of(echo, attempt()).message == "case 'case-1' has no input, no turns and no body: there is nothing to say to the agent"


def test_half_a_surrogate_pair_cannot_be_sent() -> None:
    assert fault_of(echo, attempt("a\ud800b")).code == "bad_request"


def test_a_missing_variable_is_found_before_and_while_sending() -> None:
    target = build_target("shop", {"type": "http", "url": "http://127.0.0.1:9/x", "template": {"u": "{USER}"}})
    with pytest.raises(InputError, match=r"target 'shop' sends \{USER\}, but case 'case-1' has no variable"):
        check_cases(target, Suite(name="s", cases=(attempt("hi").case,)))
    fault = fault_of(echo, attempt("hi"), template={"u": "{USER}"})
    assert fault.message == "the template sends {USER}, which case 'case-1' does not have"


# --- recording --------------------------------------------------------------------------------------------------------------


def test_a_recording_has_no_secrets_or_ids_and_replays_under_other_ids() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(body={"text": f"for {request.headers['x-request-id']}", "echo": request.headers.get("authorization")})

    tape = Recorder()
    settings = {"auth": {"type": "bearer", "token": SECRET}, "template": {"m": "{input}", "s": "{session_id}"}}
    recorded, _ = drive(answer, attempt("one", "two"), tape, path="/chat?api_key=abcdef&x=1", **settings)
    kind, request, _ = tape.exchanges[0]
    assert kind == "http" and "127.0.0.1" in request["url"] and request["url"].endswith("/chat?api_key=[redacted]&x=1")
    assert request["headers"] == {"authorization": "[redacted]", "x-request-id": "<<proctor:request_id>>-1"}
    assert request["body"] == {"m": "one", "s": "<<proctor:session_id>>"}
    assert SECRET not in repr(tape.exchanges) and "request-a-0001" not in repr(tape.exchanges)

    async def again() -> Evidence:
        url = request["url"].replace("[redacted]", "abcdef")
        target = build_target("shop", {"type": "http", "url": url, **settings})
        await target.open()
        try:
            return await target.run(attempt("one", "two", marker="b"), Player(tape.exchanges))
        finally:
            await target.close()

    replayed = asyncio.run(again())
    assert replayed.turns is not None and recorded.turns is not None
    assert [turn.text for turn in replayed.turns] == ["for request-b-0001-1", "for request-b-0001-2"]
    assert [turn.duration_ms for turn in replayed.turns] == [turn.duration_ms for turn in recorded.turns]


def test_a_fault_is_recorded_and_replayed() -> None:
    tape = Recorder()
    first = fault_of(lambda request: Reply(raw=b""), attempt("hi"), tape=tape)
    assert tape.exchanges[0][2] == {"fault": [first.message, "transport", False]}

    async def again() -> None:
        target = build_target("shop", {"type": "http", "url": tape.exchanges[0][1]["url"]})
        await target.open()
        try:
            await target.run(attempt("hi", marker="b"), Player(tape.exchanges))
        finally:
            await target.close()

    with pytest.raises(TargetFault) as caught:
        asyncio.run(again())
    assert (caught.value.code, caught.value.message) == (first.code, first.message)


def test_certificates_are_read_only_for_https_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    real = wire.new_client

    def counted(*, certificates: bool, transport: Any) -> Any:
        made.append(certificates)
        return real(certificates=certificates, transport=transport)

    monkeypatch.setattr(wire, "new_client", counted)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed_port = f"HTTPS://127.0.0.1:{free.getsockname()[1]}"

    async def both() -> None:
        async with serve(lambda request: Reply(body={"text": "hi"})) as agent:
            connected = wire.Wire()
            await connected.open()
            try:
                for _ in range(2):
                    await connected.send(wire.HttpRequest(method="GET", url=agent.url), timeout_s=5)
                with pytest.raises(TargetFault) as caught:
                    await connected.send(wire.HttpRequest(method="GET", url=closed_port), timeout_s=5)
                assert caught.value.code == "unreachable"
            finally:
                await connected.close()

    asyncio.run(both())
    assert made == [False, True]


def test_a_client_without_certificates_trusts_no_server() -> None:
    client = wire.new_client(certificates=False)
    context = client._transport._pool._ssl_context
    assert (context.verify_mode, context.check_hostname, context.get_ca_certs()) == (ssl.CERT_REQUIRED, True, [])
    asyncio.run(client.aclose())


def test_responses_in_a_custom_format_are_read_with_the_mapping() -> None:
    paths = {"text": "$.out.reply", "tool_calls": {"each": "$.out.acts[*]", "name": "$.fn", "arguments": "$.with"}}
    target = build_target("it", {"type": "http", "url": "http://127.0.0.1:9/chat", "evidence": {"map": paths}})
    assert isinstance(target, HttpTarget)
    mapping = compile_mapping(msgspec.convert(paths, EvidenceMap))
    body = {"out": {"reply": "Done", "acts": [{"fn": "look", "with": {"x": 1}}]}}
    evidence = evidence_of(HttpAnswer(status=200, body=body, text="", duration_ms=5.0), mapping=mapping)
    assert (evidence.text, evidence.body, evidence.http_status, evidence.duration_ms) == ("Done", body, 200, 5.0)
    assert [(call.name, call.arguments) for call in evidence.tool_calls or ()] == [("look", {"x": 1})]
    missing = evidence_of(HttpAnswer(status=200, body={"out": {"repl": "Done"}}, text="", duration_ms=5.0), mapping=mapping)
    assert missing.account is not None
    assert missing.account.unknown["answer"].endswith("`$.out` has `repl`")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"response_path": "a"}, "remove one of them"),
        ({"answer_format": "openai"}, "remove one of them"),
        ({"evidence": {"map": {"text": "$.a", "group": "$.b"}}}, "an answer is one run"),
        ({"evidence": {"map": {"text": "$.a["}}}, "invalid JSONPath"),
        ({"evidence": {"mapp": {}}}, "unknown key 'mapp'"),
    ],
)
def test_an_unusable_mapping_is_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build_target("it", {"type": "http", "url": "http://127.0.0.1:9/chat", "evidence": {"map": {"text": "$.a"}}, **more})


@pytest.mark.parametrize(
    ("status", "body", "template"),
    [
        (422, {"detail": [{"type": "missing", "loc": ["body", "message"], "msg": "Field required"}]}, '{"message":"{user_message}"}'),
        (
            422,
            {"detail": [{"loc": ["body", "query"], "msg": "field required"}, {"loc": ["body", "user"], "msg": "field required"}]},
            '{"query":"{user_message}","user":"..."}',
        ),
        (422, {"detail": [{"loc": ["query", "q"], "msg": "Field required"}]}, None),
        (422, {"detail": "no"}, None),
        (400, {"detail": [{"loc": ["body", "message"]}]}, None),
    ],
)
def test_a_body_refused_by_fastapi_suggests_a_template(status: int, body: Any, template: str | None) -> None:
    found = refuse_status(HttpAnswer(status=status, body=body))
    assert found is not None and found.code == "http_status"
    assert ("template" in found.reason) == (template is not None) and (template or "") in found.reason
