"""Decides when an HTTP exchange has no answer of the agent.

A claim such as "the answer does not contain X" would pass on no answer. So the exchange is an error, with the status and the first bytes:

* the status is not one of success (200 to 299); a redirect that cannot be followed is none either;
* the body, or what is taken from it as the answer, is empty: no bytes, invisible characters, JSON without content;
* the body cannot be read: bytes that are not text in its encoding, broken JSON, a type that is not text, a stream, an HTML page;
* the body reports that the run failed (`error`, `success: false`, JSON-RPC, GraphQL), whatever the status;
* the body is an envelope with its own failing status (`{"statusCode": 500, "body": ...}`);
* `response_path` has no match.

A claim on the status (`http_status`) is decided on the one that came. A case that claims the very status that came is decided on what was
answered; what is missing stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proctor.codecs.http import read_retry_after_s
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import shorten, show
from proctor.paths.dotted import find_dotted
from proctor.targets.answers.account import AGENT_FAILED, is_empty
from proctor.targets.answers.json_answers import find_answer_field, find_reported_failure
from proctor.targets.shared.faults import TargetCode, TargetFault
from proctor.targets.shared.wire import HttpAnswer

READER = "http target"
"""The reader named in the account of such an exchange."""
_STORED_CHARACTERS = 4_000
"""Characters of the response that are stored with the error."""
_JSON_TYPE = re.compile(r"(application|text)/([\w.-]+\+)?json$")
_STREAM_TYPES = frozenset(("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-seq"))
_TEXT_TYPE = re.compile(r"text/|application/(xhtml\+xml|xml|yaml|x-yaml|javascript|markdown)$|[\w.-]+/[\w.-]+\+(xml|yaml)$")
# Prose does not begin like this; truncated JSON, or several JSON values in a row, do.
_JSON_BEGINS = re.compile(r"\s*(\{\s*[\"}]|\[\s*[\[{\"])")
_HTML_BEGINS = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_EVENT_LINE = re.compile(r"(data|event|id|retry)(:|$)|:")
_AI_SDK_LINE = re.compile(r"[0-9a-z]:(?=[\"\[{])")


class NoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: TargetCode
    reason: str
    keeps_body: bool = False
    """Whether the JSON of the body can still be examined, in a case that claims the status."""


def refuse_status(answer: HttpAnswer) -> NoAnswer | None:
    """Return why the status means that the agent did not answer, or None."""
    if 200 <= answer.status < 300:
        return None
    code: TargetCode = "rate_limited" if answer.status == 429 else "http_status"
    reason = f"the agent answered status {answer.status}, which is not an answer"
    # FastAPI names the fields that a body lacks: suggest a template with them.
    entries = list_of(dict_or_empty(answer.body).get("detail")) if answer.status == 422 else []
    places = [dict_or_empty(entry).get("loc") for entry in entries]
    missing = [str(place[1]) for place in places if isinstance(place, list) and len(place) == 2 and place[0] == "body"]
    if missing:
        template = {missing[0]: "{user_message}", **dict.fromkeys(missing[1:], "...")}
        reason += f"; it expects {', '.join(missing)}: write `template: {msgspec.json.encode(template).decode()}` in the target"
    return NoAnswer(code=code, reason=reason)


def refuse_body(answer: HttpAnswer) -> NoAnswer | None:
    """Return why there is no answer in the body, or None."""
    body, text = answer.body, answer.text
    if answer.unread is not None:
        return _refuse_unreadable(answer, answer.unread)
    if body is not None:
        return refuse_empty(answer, "a JSON value with nothing in it") if is_empty(body) else None
    if text is None or is_empty(text):
        what = "a text with nothing in it" if answer.json_text else "a body of white space" if text else "no body"
        return refuse_empty(answer, what)
    if answer.json_text:
        return None
    return refuse_empty(answer, "null") if text.strip() == "null" else _refuse_text(answer, text)


def refuse_empty(answer: HttpAnswer, what: str) -> NoAnswer:
    """Return the reason for an empty answer."""
    return NoAnswer(code="empty_answer", reason=f"the agent answered nothing (status {answer.status}, {what})", keeps_body=True)


_INNER_STATUSES = ("statusCode", "status_code", "httpStatus", "http_status", "status")


def refuse_failure(answer: HttpAnswer, response_path: str | None) -> NoAnswer | None:
    """Return the failure that the body reports, or None; the status may already report it."""
    if refuse_status(answer) is not None:
        return None
    body = dict_or_empty(answer.body)
    statuses = [body[key] for key in _INNER_STATUSES if key in body]
    # `type` instead of `isinstance`: a flag `"status": true` is not a status.
    inner = next((status for status in statuses if type(status) is int and 400 <= status < 600), None)
    if inner is not None:
        reason = f"the agent answered status {answer.status}, and in its answer status {inner}, which is not an answer"
        return NoAnswer(code="http_status", reason=reason, keeps_body=True)
    has_answer = response_path is not None or find_answer_field(body) is not None
    # The objects between the body and its answer report as well.
    steps = response_path.split(".") if response_path is not None else []
    around = (answer.body, *(find_dotted(body, ".".join(steps[:end])) for end in range(1, len(steps))))
    failure = next(filter(None, (find_reported_failure(holder, has_answer=has_answer) for holder in around)), None)
    if failure is None:
        return None
    return NoAnswer(code=AGENT_FAILED, reason=f"the agent answered an error (status {answer.status}): {shorten(failure)}", keeps_body=True)


def refuse_path(answer: HttpAnswer, response_path: str | None) -> NoAnswer | None:
    """Return why the answer is not at `response_path`, or None."""
    if response_path is None:
        return None
    found = find_dotted(answer.body, response_path)
    if found is not MISSING and found is not None:
        return refuse_empty(answer, f"nothing at response_path {response_path!r}") if is_empty(found) else None
    what = "is not JSON" if answer.body is None else "has nothing there"
    reason = f"response_path {response_path!r} leads nowhere: the answer (status {answer.status}) {what}"
    return NoAnswer(code="response_path", reason=reason, keeps_body=True)


def make_fault(refusal: NoAnswer, answer: HttpAnswer, evidence: Evidence | None = None) -> TargetFault:
    """Return the error of the exchange, with the status and the first bytes; `evidence` is the evidence recorded anyway."""
    response = answer.body if answer.body is not None else answer.text
    message = refusal.reason if response in (None, "") else f"{refusal.reason}: {show(response)}"
    stored = shorten(response, _STORED_CHARACTERS) if isinstance(response, str) else show(response, _STORED_CHARACTERS)
    evidence = evidence or make_unanswered(answer, refusal.reason)
    is_limited = refusal.code == "rate_limited"
    return TargetFault(
        refusal.code,
        message,
        # An agent that requests a wait has not processed the request.
        safe=is_limited,
        retry_after_s=read_retry_after_s(answer.headers) if is_limited else None,
        evidence=msgspec.structs.replace(evidence, error=message, metadata={**evidence.metadata, "code": refusal.code, "answered": stored}),
    )


def make_unanswered(answer: HttpAnswer, why: str, *, body: Json = None, metadata: Mapping[str, Json] | None = None) -> Evidence:
    """Return the evidence of an exchange without an answer: its status and its duration."""
    account = Account(READER, {"answer": why, "tool_calls": why, "nodes": why})
    return Evidence(body=body, http_status=answer.status, duration_ms=answer.duration_ms, account=account, metadata=dict(metadata or {}))


def _refuse_text(answer: HttpAnswer, text: str) -> NoAnswer | None:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _STREAM_TYPES:
        why = f"it is a stream of pieces ({kind}), which is not put together here: let the agent answer at once"
    elif _JSON_TYPE.match(kind):
        why = f"it is called {kind} but is not JSON"
    elif kind and not _TEXT_TYPE.match(kind):
        why = f"it is called {kind}, which is not text"
    elif _JSON_BEGINS.match(text):
        why = "it begins like JSON but is not JSON: it was cut off, or has several values"
    elif _HTML_BEGINS.match(text):
        why = "it is an HTML page"
    else:
        # The last line of a stream may be incomplete.
        lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
        if any(line.startswith("data:") for line in lines) and all(_EVENT_LINE.match(line) for line in lines[: max(1, len(lines) - 1)]):
            stream = "a stream of events"
        elif _AI_SDK_LINE.match(lines[0]) and (len(lines) == 1 or decode_embedded(lines[0][2:]) is not MISSING):
            stream = "the data stream of the AI SDK"
        else:
            return None
        why = f"it is {stream}, which is not put together here: let the agent answer at once"
    return _refuse_unreadable(answer, why)


def _refuse_unreadable(answer: HttpAnswer, why: str) -> NoAnswer:
    return NoAnswer(code="bad_answer", reason=f"the answer (status {answer.status}) cannot be read: {why}")
