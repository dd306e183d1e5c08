"""Decides when an HTTP exchange brought no answer of the agent.

A refusal is not an answer, and neither is nothing: a claim such as "the answer does not say X" would hold of both without anything having
been looked at. So the exchange is an error, with the status and the first bytes, in these cases:

* the status is not one of success (200 to 299); a redirect that cannot be followed is none either;
* there is nothing in the body, or in what is taken from it as the answer: no bytes, characters that nobody sees, JSON around nothing;
* the body cannot be read: its bytes are not text in the encoding it names, it says that it is JSON (or begins as JSON does) and is not,
  it is of a kind that is no text, it is a stream of pieces (by its kind or by its lines), it is an HTML page;
* it tells of an error and has no answer (`error`, JSON-RPC, GraphQL), whatever its status;
* it is an envelope with a status of its own that is one of failure (`{"statusCode": 500, "body": ...}`);
* `response_path` leads nowhere.

A case that claims the very status that came (`http_status`) wants to see such an exchange: it is decided on what was answered. What the
answer does not have stays missing there, and what is no answer does not become one by the claim.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

import msgspec

from proctor.codecs.retry_after import read_retry_after_s
from proctor.evidence.values.json_bytes import decode_embedded
from proctor.evidence.values.text import HTTP_KEYS
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json
from proctor.model.missing import MISSING
from proctor.model.show import shorten, show
from proctor.paths.dotted import find_dotted
from proctor.targets.faults import TargetCode, TargetFault
from proctor.targets.wire import HttpAnswer

READER = "http target"
"""What the account of such an exchange calls its reader."""
KEPT_CHARACTERS = 4_000
"""How much of what came instead of an answer is kept beside the error."""
_TOO_MANY = 429
_JSON_TYPE = re.compile(r"(application|text)/([\w.-]+\+)?json$")
_STREAM_TYPES = frozenset(("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-seq"))
_TEXT_TYPE = re.compile(r"text/|application/(xhtml\+xml|xml|yaml|x-yaml|javascript|markdown)$|[\w.-]+/[\w.-]+\+(xml|yaml)$")
# A text of people does not begin so; JSON that was cut off, or several JSON values in a row, do.
_JSON_BEGINS = re.compile(r"\s*(\{\s*[\"}]|\[\s*[\[{\"])")
_HTML_BEGINS = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_EVENT_LINE = re.compile(r"(data|event|id|retry)(:|$)|:")
_AI_SDK_LINE = re.compile(r"[0-9a-z]:(?=[\"\[{])")
_UNSEEN_KINDS = ("Cc", "Cf", "Zl", "Zp", "Zs")
_UNSEEN = frozenset("\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0")
"""Fillers and selectors, which are letters or marks by their kind and show nothing."""


class NoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: TargetCode
    reason: str
    keeps_body: bool = False
    """Whether the JSON of the body can be looked at all the same, for who wants to see such an exchange."""


def refuse_status(answer: HttpAnswer) -> NoAnswer | None:
    """Return why the status says that the agent did not answer, or None."""
    if 200 <= answer.status < 300:
        return None
    if answer.status == _TOO_MANY:
        return NoAnswer(code="rate_limited", reason=f"the agent answered status {answer.status}, which is no answer")
    return NoAnswer(code="http_status", reason=f"the agent answered status {answer.status}, which is no answer")


def refuse_body(answer: HttpAnswer) -> NoAnswer | None:
    """Return why there is no answer in the body, or None."""
    body, text = answer.body, answer.text
    if answer.unread is not None:
        return _refuse_unreadable(answer, answer.unread)
    if body is not None:
        return refuse_empty(answer, "a JSON value with nothing in it") if holds_nothing(body) else None
    if text is None or holds_nothing(text):
        what = "a text with nothing in it" if answer.json_text else "a body of white space" if text else "no body"
        return refuse_empty(answer, what)
    if answer.json_text:
        return None
    return refuse_empty(answer, "null") if text.strip() == "null" else _refuse_text(answer, text)


def holds_nothing(value: Json) -> bool:
    """Return whether a value is null, a text without visible characters, or a list or object of nothing else."""
    if isinstance(value, str):
        return all(one in _UNSEEN or unicodedata.category(one) in _UNSEEN_KINDS for one in value)
    if isinstance(value, (list, dict)):
        return all(holds_nothing(member) for member in (value.values() if isinstance(value, dict) else value))
    return value is None


def refuse_empty(answer: HttpAnswer, what: str) -> NoAnswer:
    """Return the refusal of an answer with nothing in it."""
    return NoAnswer(code="empty_answer", reason=f"the agent answered nothing (status {answer.status}, {what})", keeps_body=True)


def find_error(body: Json) -> tuple[str, str] | None:
    """Return the error that a body reports: the key it stands under, and its words."""
    if not isinstance(body, dict):
        return None
    key = next((key for key in ("error", "errors") if body.get(key) and not holds_nothing(body[key])), None)
    if key is None:
        return None
    told = body[key][0] if isinstance(body[key], list) else body[key]
    words = told.get("message") if isinstance(told, dict) else told if isinstance(told, str) else body.get("message")
    return key, words if isinstance(words, str) else show(told)


def refuse_envelope(answer: HttpAnswer, response_path: str | None) -> NoAnswer | None:
    """Return why the body reports an error and is no answer, or None; a `message` beside an error belongs to the error."""
    if refuse_status(answer) is not None:
        return None  # of a refusal that is claimed, what it says of the error is what there is to see
    inner = _inner_status(answer.body)
    if inner is not None:
        reason = f"the agent answered status {answer.status}, and in its answer status {inner}, which is no answer"
        return NoAnswer(code="http_status", reason=reason, keeps_body=True)
    told = find_error(answer.body)
    if told is None:
        return None
    members = [find_dotted(answer.body, response_path)] if response_path is not None else _answers_in(answer.body)
    if any(member is not MISSING and not holds_nothing(member) for member in members):
        return None
    return NoAnswer(
        code="agent_failed", reason=f"the agent answered an error (status {answer.status}): {shorten(told[1])}", keeps_body=True
    )


def _inner_status(body: Json) -> int | None:
    """Return the status of failure that an envelope holds."""
    if not isinstance(body, dict):
        return None
    given = [body.get(key) for key in ("statusCode", "status_code", "httpStatus", "http_status", "status")]
    # `type` rather than `isinstance`: a flag `"status": true` is no status.
    return next((status for status in given if type(status) is int and 400 <= status < 600), None)


def _answers_in(body: dict[str, Json]) -> list[Json]:
    return [body.get(key) for key in (*HTTP_KEYS, "data", "result") if key != "message"]


def refuse_path(answer: HttpAnswer, response_path: str | None) -> NoAnswer | None:
    """Return why the answer is not where `response_path` says, or None."""
    if response_path is None:
        return None
    found = find_dotted(answer.body, response_path)
    if found is not MISSING and found is not None:
        return refuse_empty(answer, f"nothing at response_path {response_path!r}") if holds_nothing(found) else None
    what = "is not JSON" if answer.body is None else "has nothing there"
    reason = f"response_path {response_path!r} leads nowhere: the answer (status {answer.status}) {what}"
    return NoAnswer(code="response_path", reason=reason, keeps_body=True)


def fault_of(refusal: NoAnswer, answer: HttpAnswer, evidence: Evidence | None = None) -> TargetFault:
    """Return the error of the exchange, with the status and the first bytes."""
    came = answer.body if answer.body is not None else answer.text
    shown = f": {show(came)}" if came not in (None, "") else ""
    message = f"{refusal.reason}{shown}"
    return TargetFault(
        refusal.code,
        message,
        # Who asks to be left alone has done nothing yet.
        safe=refusal.code == "rate_limited",
        retry_after_s=read_retry_after_s(answer.headers) if refusal.code == "rate_limited" else None,
        evidence=_mark_refused(evidence or make_unanswered(answer, refusal.reason), refusal, message, came),
    )


def make_unanswered(answer: HttpAnswer, why: str, *, body: Json = None, metadata: Mapping[str, Json] | None = None) -> Evidence:
    """Return what is known of an exchange without an answer: its status and its time, and nothing that was said or done."""
    account = Account(READER, {"answer": why, "tool_calls": why, "nodes": why})
    return Evidence(body=body, http_status=answer.status, duration_ms=answer.duration_ms, account=account, metadata=dict(metadata or {}))


def _mark_refused(evidence: Evidence, refusal: NoAnswer, message: str, came: Json) -> Evidence:
    kept = {"code": refusal.code, "answered": show(came, KEPT_CHARACTERS) if not isinstance(came, str) else shorten(came, KEPT_CHARACTERS)}
    return msgspec.structs.replace(evidence, error=message, metadata={**evidence.metadata, **kept})


def _refuse_text(answer: HttpAnswer, text: str) -> NoAnswer | None:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _STREAM_TYPES:
        return _refuse_unreadable(
            answer, f"it is a stream of pieces ({kind}), which is not put together here: let the agent answer at once"
        )
    if _JSON_TYPE.match(kind):
        return _refuse_unreadable(answer, f"it is called {kind} and is no JSON")
    if kind and not _TEXT_TYPE.match(kind):
        return _refuse_unreadable(answer, f"it is called {kind}, which is no text")
    if _JSON_BEGINS.match(text):
        return _refuse_unreadable(answer, "it begins as JSON does and is no JSON: it was cut off, or holds several values")
    if _HTML_BEGINS.match(text):
        return _refuse_unreadable(answer, "it is an HTML page")
    if stream := _stream_in(text):
        return _refuse_unreadable(answer, f"it is {stream}, which is not put together here: let the agent answer at once")
    return None


def _stream_in(text: str) -> str | None:
    """Return what kind of stream the lines of a text are, or None; the last line may be cut off anywhere."""
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    if any(line.startswith("data:") for line in lines) and all(_EVENT_LINE.match(line) for line in lines[: max(1, len(lines) - 1)]):
        return "a stream of events"
    if _AI_SDK_LINE.match(lines[0]) and (len(lines) == 1 or decode_embedded(lines[0][2:]) is not MISSING):
        return "the data stream of the AI SDK"
    return None


def _refuse_unreadable(answer: HttpAnswer, why: str) -> NoAnswer:
    return NoAnswer(code="bad_answer", reason=f"the answer (status {answer.status}) cannot be read: {why}")
