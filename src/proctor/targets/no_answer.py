"""When an HTTP exchange brought no answer of the agent.

A refusal is not an answer, and neither is nothing: a claim such as "the answer does not say X" would hold of both without anything having
been looked at. So the exchange is an error, with the status and the first bytes, in these cases:

* the status is not one of success (200 to 299); a redirect that cannot be followed is none either;
* the body is empty: nothing, white space, or a JSON value with nothing in it;
* the body cannot be read: its bytes are not text in the encoding it names, it says that it is JSON (or begins as JSON does) and is not,
  it is of a kind that is no text, it is a stream of events, it is a whole HTML page;
* `response_path` leads nowhere.

A case that claims the status (`http_status`) wants to see such an exchange: it is decided on what was answered. What the answer does not
have stays missing there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

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
_HTML_BEGINS = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)


class NoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: TargetCode
    reason: str
    legible: bool = False
    """Whether there is a text all the same, for who wants to see such an exchange."""


def bad_status(answer: HttpAnswer) -> NoAnswer | None:
    """Why the status tells that the agent did not answer."""
    if 200 <= answer.status < 300:
        return None
    if answer.status == _TOO_MANY:
        return NoAnswer(code="rate_limited", reason=f"the agent answered status {answer.status}, which is no answer")
    return NoAnswer(code="http_status", reason=f"the agent answered status {answer.status}, which is no answer")


def bad_body(answer: HttpAnswer) -> NoAnswer | None:
    """Why there is no answer in the body."""
    body, text = answer.body, answer.text
    if answer.unread is not None:
        return _unreadable(answer, answer.unread)
    if body is not None:
        return _empty(answer, "a JSON value with nothing in it") if body in ({}, [], [{}]) else None
    if text is None or not text.strip():
        return _empty(answer, "no body" if not text else "a body of white space")
    if answer.json_text:
        return None
    return _empty(answer, "null") if text.strip() == "null" else _bad_text(answer, text)


def bad_path(answer: HttpAnswer, response_path: str | None) -> NoAnswer | None:
    """Why the answer is not where `response_path` says."""
    if response_path is None:
        return None
    found = find_dotted(answer.body, response_path)
    if found is not MISSING and found is not None:
        return None
    what = "is not JSON" if answer.body is None else "has nothing there"
    return NoAnswer(
        code="response_path", reason=f"response_path {response_path!r} leads nowhere: the answer (status {answer.status}) {what}"
    )


def fault_of(refusal: NoAnswer, answer: HttpAnswer, evidence: Evidence | None = None) -> TargetFault:
    """The error of the exchange, with the status and the first bytes."""
    came = answer.body if answer.body is not None else answer.text
    shown = f": {show(came)}" if came not in (None, "") else ""
    message = f"{refusal.reason}{shown}"
    return TargetFault(
        refusal.code,
        message,
        # Who asks to be left alone has done nothing yet.
        safe=refusal.code == "rate_limited",
        retry_after_s=retry_after_s(answer) if refusal.code == "rate_limited" else None,
        evidence=_marked(evidence or unanswered(answer, refusal.reason), refusal, message, came),
    )


def unanswered(answer: HttpAnswer, why: str, *, body: Json = None, metadata: Mapping[str, Json] | None = None) -> Evidence:
    """What is known of an exchange without an answer: its status and its time, and nothing that was said or done."""
    account = Account(READER, {"answer": why, "tool_calls": why, "nodes": why})
    return Evidence(body=body, http_status=answer.status, duration_ms=answer.duration_ms, account=account, metadata=dict(metadata or {}))


def retry_after_s(answer: HttpAnswer) -> float | None:
    """How long the agent asks to be left alone: seconds, or the time until a date, by its own clock."""
    asked = answer.headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        return max(0.0, (parsedate_to_datetime(asked) - parsedate_to_datetime(answer.headers["date"])).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def _marked(evidence: Evidence, refusal: NoAnswer, message: str, came: Json) -> Evidence:
    kept = {"code": refusal.code, "answered": show(came, KEPT_CHARACTERS) if not isinstance(came, str) else shorten(came, KEPT_CHARACTERS)}
    return msgspec.structs.replace(evidence, error=message, metadata={**evidence.metadata, **kept})


def _bad_text(answer: HttpAnswer, text: str) -> NoAnswer | None:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _STREAM_TYPES:
        return _unreadable(answer, f"it is a stream of pieces ({kind}), which is not put together here: let the agent answer at once")
    if _JSON_TYPE.match(kind):
        return _unreadable(answer, f"it is called {kind} and is no JSON")
    if kind and not _TEXT_TYPE.match(kind):
        return _unreadable(answer, f"it is called {kind}, which is no text")
    if _JSON_BEGINS.match(text):
        return _unreadable(answer, "it begins as JSON does and is no JSON: it was cut off, or holds several values")
    if _HTML_BEGINS.match(text):
        return _unreadable(answer, "it is an HTML page; if the agent does answer so, claim `http_status` in the case", legible=True)
    return None


def _unreadable(answer: HttpAnswer, why: str, *, legible: bool = False) -> NoAnswer:
    return NoAnswer(code="bad_answer", reason=f"the answer (status {answer.status}) cannot be read: {why}", legible=legible)


def _empty(answer: HttpAnswer, what: str) -> NoAnswer:
    return NoAnswer(code="empty_answer", reason=f"the agent answered nothing (status {answer.status}, {what})")
