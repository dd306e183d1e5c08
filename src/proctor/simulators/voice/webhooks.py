"""Calls that the agent controls by webhooks, as at Twilio: instructions arrive as TwiML, input goes to the next webhook.

A call has a numbered list of jobs: webhooks that decide how it continues, and status callbacks. The server of the system runs the first
one (`Response.then`), makes its outgoing request, and so on until none is left. A job that is no longer the first, since the call ended or
was redirected, is late and changes nothing.

Speech of the other end goes to the next `<Gather>`: keys alone are `Digits`, everything else is `SpeechResult`. Speech before a `<Gather>`
also goes to it, and last words are sent although the call is over then.

TwiML, the documents by which an agent controls a call at Twilio.

Supported: `<Say>`, `<Gather>` with nested speech, `<Play digits>`, `<Pause>`, `<Redirect>`, `<Hangup>` and `<Reject>`. A sound of `<Play>`
is not played, which is reported. Every other verb is rejected: the call would differ without it.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import urljoin
from xml.etree import ElementTree

import msgspec

from proctor.codecs.http import encode_query
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.simulators.exchange import Errand, Fetched, Request, Response, answer_json
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
from proctor.simulators.voice.calls import CALLS, MOST_TEXT, MOST_TURNS, OVER, is_keys, keep_call, take_part

# --- Twilio's signature: HMAC-SHA1 over the address and the sorted fields, with the account's token as key


def sign_request(url: str, fields: Iterable[tuple[str, str]], token: str) -> dict[str, str]:
    """Return the signature header of a request; none if the token is unknown."""
    if not token:
        return {}
    signed = url + "".join(f"{name}{value}" for name, value in sorted(fields))
    return {"x-twilio-signature": base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()}


# ---


MOST_WEBHOOKS = 200
"""Maximum webhooks of one call; more would be a loop."""
_MOST_STORED = 5_000
"""Bytes of a webhook's answer stored in an event."""
MOST_LED = 20
"""Maximum concurrent calls with pending work."""
EVENTS = ("initiated", "ringing", "answered", "completed")
ADDRESS = re.compile(r"https?://[^\s]{1,2000}")
_TALKS = "_talks"
_FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "user-agent": "TwilioProxy/1.1 (simulated)"}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the agent."""

    number: int
    url: str
    method: str = "POST"
    fields: dict[str, str] = {}
    leads: bool = True
    """Whether the answer decides how the call continues; else it is a status callback."""


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a call that the agent controls."""

    account: str
    url: str = ""
    """The current document; addresses in it are relative to this one."""
    method: str = "POST"
    heard: tuple[str, ...] = ()
    """Speech of the other end that no `<Gather>` has received yet."""
    jobs: tuple[Job, ...] = ()
    made: int = 0
    """The number of jobs so far."""
    status_url: str = ""
    status_method: str = "POST"
    status_events: tuple[str, ...] = ("completed",)
    told: int = 0
    """The number of status callbacks so far."""
    problems: tuple[str, ...] = ()
    """Errors, for the author."""


def find_talk(id: str, rows: Draft) -> Talk | None:
    """Return the webhook state of a call; None if it has no webhooks."""
    return rows.load(_TALKS, id, Talk)


def count_led(rows: Draft) -> int:
    """Return the number of calls with pending work."""
    return sum(1 for row in rows.list(_TALKS).values() if row["jobs"])


def keep_talk(call: dict[str, Json], talk: Talk, desk: Desk) -> str:
    """Store the webhook state of a call, and return the path of its next step."""
    desk.rows.put(_TALKS, call["id"], msgspec.to_builtins(talk))
    return f"/{CALLS}/{call['id']}/{talk.jobs[0].number}" if talk.jobs else ""


def add_webhook(call: dict[str, Json], talk: Talk, url: str, method: str, fields: dict[str, str] | None = None) -> Talk:
    """Return a talk with this webhook as the only pending one."""
    fields_sent = {**_describe(call, talk), **(fields or {})}
    job = Job(number=talk.made + 1, url=url, method=method, fields=fields_sent)
    return msgspec.structs.replace(talk, url=url, method=method, made=talk.made + 1, jobs=(*drop_webhooks(talk).jobs, job))


def drop_webhooks(talk: Talk) -> Talk:
    """Return a talk without pending webhooks."""
    return msgspec.structs.replace(talk, jobs=tuple(job for job in talk.jobs if not job.leads))


def report_status(call: dict[str, Json], talk: Talk, event: str, status: str = "") -> Talk:
    """Return a talk that reports an event to the agent, if it subscribed."""
    if not talk.status_url or event not in talk.status_events:
        return talk
    more = {"CallbackSource": "call-progress-events", "SequenceNumber": str(talk.told), "CallStatus": status or call["status"]}
    if event == "completed":
        more["CallDuration"] = str(call.get("duration", 0))
    fields = {**_describe(call, talk), **more}
    job = Job(number=talk.made + 1, url=talk.status_url, method=talk.status_method, fields=fields, leads=False)
    return msgspec.structs.replace(talk, made=talk.made + 1, told=talk.told + 1, jobs=(*talk.jobs, job))


def end_call(call: dict[str, Json], talk: Talk, status: str, desk: Desk) -> tuple[dict[str, Json], Talk]:
    """End a call and report that to the agent."""
    began, ended = (datetime.datetime.fromisoformat(at) for at in (call["at"], desk.around.now()))
    over = keep_call({**call, "status": status, "ended_at": desk.around.now(), "duration": int((ended - began).total_seconds())}, desk)
    return over, report_status(over, talk, "completed")


# --- one step ---------------------------------------------------------------------------------------------------------


def go_on(id: str, number: str, request: Request, desk: Desk) -> Response:
    """Run the next job of a call, unless another job is next by now."""
    call, talk = desk.rows.get(CALLS, id), find_talk(id, desk.rows)
    # Checked again after the webhook's answer: the call may have ended in between.
    if call is None or talk is None or not talk.jobs or str(talk.jobs[0].number) != number:
        return answer_json(200, {"note": "the call continued without this webhook"})
    job = talk.jobs[0]
    if not request.fetched:
        # The same request is repeated with the answer; until then nothing is stored.
        raise _make_errand(job, request.token)
    fetched = request.fetched[-1]
    talk = msgspec.structs.replace(talk, jobs=talk.jobs[1:])
    if not job.leads:
        if not 200 <= fetched.status < 300:
            talk = add_problem(talk, f"status callback: {_describe_failure(fetched)}")
    elif call["status"] not in OVER:
        call, talk = _follow(call, talk, fetched, desk)
    report: dict[str, Json] = {"url": job.url, "method": job.method, "sent": job.fields, "answered": fetched.status or None}
    # A truncated body would look complete, and a longer one would not fit into the event.
    is_stored = len(fetched.body) <= _MOST_STORED
    report["body"] = fetched.problem or (fetched.body.decode("utf-8", "replace") if is_stored else None)
    report.update({} if is_stored else {"body_bytes": len(fetched.body)})
    answer = answer_json(200, {"webhook": report, "status": call["status"], "problems": list(talk.problems)})
    return msgspec.structs.replace(answer, then=keep_talk(call, talk, desk))


def _make_errand(job: Job, token: str) -> Errand:
    pairs = sorted(job.fields.items())
    if job.method == "GET":
        url = f"{job.url}{'&' if '?' in job.url else '?'}{encode_query(pairs)}"
        return Errand("GET", url, b"", {**_FORM, **sign_request(url, (), token)})
    return Errand("POST", job.url, encode_query(pairs).encode(), {**_FORM, **sign_request(job.url, pairs, token)})


def _follow(call: dict[str, Json], talk: Talk, fetched: Fetched, desk: Desk) -> tuple[dict[str, Json], Talk]:
    """Apply the answer of a webhook."""
    if not 200 <= fetched.status < 300:
        return end_call(call, add_problem(talk, _describe_failure(fetched)), "failed", desk)
    if fetched.status == 204 or not fetched.body.strip():
        return end_call(call, talk, "completed", desk)
    return perform(fetched.body, call, talk, desk)


def perform(twiml: bytes, call: dict[str, Json], talk: Talk, desk: Desk) -> tuple[dict[str, Json], Talk]:
    """Perform a document up to the next webhook."""
    try:
        verbs = read_twiml(twiml)
        return _perform_verbs(verbs, call, talk, desk)
    except BadTwiml as error:
        # Speech before the error counts: the row has these turns, while `call` is older.
        return end_call(desk.rows.get(CALLS, call["id"]) or call, add_problem(talk, str(error)), "failed", desk)


def _perform_verbs(verbs: list[Verb], call: dict[str, Json], talk: Talk, desk: Desk) -> tuple[dict[str, Json], Talk]:
    words: list[str] = []
    # A call ends at the end of a document.
    for verb in (*verbs, Verb(kind="hang_up")):
        if verb.kind == "say":
            words.append(verb.text)
            continue
        if words and call["status"] not in OVER:
            # Speech without a pause is one turn, with one answer.
            call, talk = _say(call, talk, " ".join(words), desk)
        words.clear()
        match verb.kind:
            case "press" if call["status"] not in OVER:
                for keys in verb.text.split():
                    if call["status"] not in OVER:
                        call, talk = _say(call, talk, keys, desk, is_pressed=True)
            case "sound":
                talk = add_problem(talk, f"the sound {verb.text} is not played: sounds are not simulated, <Say> is")
            case "gather":
                talk, goes_on = _listen(verb, call, talk)
                if goes_on:
                    break
            case "redirect" if call["status"] not in OVER:
                talk = _ask(call, talk, verb.url, verb.method)
                break
            case "hang_up":
                break
            case _:
                pass
    if any(job.leads for job in talk.jobs) and call["status"] not in OVER:
        return call, talk
    return end_call(call, talk, call["status"] if call["status"] in OVER else "completed", desk)


def _say(call: dict[str, Json], talk: Talk, text: str, desk: Desk, *, is_pressed: bool = False) -> tuple[dict[str, Json], Talk]:
    if len(call["turns"]) >= MOST_TURNS:
        raise BadTwiml(f"a call has at most {MOST_TURNS} turns")
    if len(text) > MOST_TEXT:
        # A truncated value would look complete.
        raise BadTwiml(f"one turn has at most {MOST_TEXT} characters")
    after = take_part(call, text, desk, is_pressed=is_pressed)
    heard = [turn["text"] for turn in after["turns"][len(call["turns"]) + 1 :]]
    return after, msgspec.structs.replace(talk, heard=(*talk.heard, *heard))


def _listen(verb: Verb, call: dict[str, Json], talk: Talk) -> tuple[Talk, bool]:
    """Return the talk with the webhook for the input, and whether there is one."""
    text = " ".join(talk.heard)
    deaf = msgspec.structs.replace(talk, heard=())
    keys = "".join(text.split())
    fields: dict[str, str] | None = None
    if verb.hears_keys and is_keys(keys):
        keys = keys.partition(verb.last_key)[0] if verb.last_key else keys
        fields = {"Digits": keys[: verb.most_keys or None]}
    elif verb.hears_words and text:
        fields = {"SpeechResult": text, "Confidence": "0.9"}
    elif verb.reports_silence and call["status"] not in OVER:
        fields = {"Digits": ""} if not verb.hears_words else {"SpeechResult": ""}
    return (deaf, False) if fields is None else (_ask(call, deaf, verb.url, verb.method, fields), True)


def _ask(call: dict[str, Json], talk: Talk, address: str, method: str, fields: dict[str, str] | None = None) -> Talk:
    try:
        url = urljoin(talk.url, address)
    except ValueError:
        url = ""
    if not ADDRESS.fullmatch(url):
        raise BadTwiml(f"not a valid address: {(url or address)[:200] or '(none)'}")
    if talk.made >= MOST_WEBHOOKS:
        raise BadTwiml(f"a call asks at most {MOST_WEBHOOKS} webhooks")
    return add_webhook(call, talk, url, method, fields)


def _describe(call: dict[str, Json], talk: Talk) -> dict[str, str]:
    """Return the common fields of every webhook."""
    direction = "inbound" if call["direction"] == "inbound" else "outbound-api"
    ends = {"From": call["from"], "To": call["to"], "Caller": call["from"], "Called": call["to"], "Direction": direction}
    return {"CallSid": call["id"], "AccountSid": talk.account, "ApiVersion": "2010-04-01", "CallStatus": call["status"], **ends}


def add_problem(talk: Talk, problem: str) -> Talk:
    """Return a talk with an error added."""
    return msgspec.structs.replace(talk, problems=(*talk.problems, problem)[-20:])


def _describe_failure(fetched: Fetched) -> str:
    return f"{fetched.url}: {fetched.problem or f'answers {fetched.status}'}"


MOST_BYTES = 64_000
"""Maximum bytes of one document, as at Twilio."""
_VERBS = ("Gather", "Hangup", "Pause", "Play", "Redirect", "Reject", "Say")
_METHODS = ("GET", "POST")
_PRESSED = re.compile(r"[0-9*#wW]{1,64}")


class BadTwiml(Exception):
    """A document that cannot be performed; its text is the reason."""


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction for a call."""

    kind: Literal["say", "press", "sound", "gather", "redirect", "hang_up"]
    text: str = ""
    """The speech; the keys, with a blank for each pause; the address of a sound."""
    url: str = ""
    method: str = "POST"
    hears_keys: bool = False
    hears_words: bool = False
    most_keys: int = 0
    """The maximum number of keys; 0: any number."""
    last_key: str = "#"
    reports_silence: bool = False
    """Whether the webhook is also called if nothing was heard."""


def read_twiml(body: bytes) -> list[Verb]:
    """Return the verbs of a document in order; speech inside a `<Gather>` comes before it. Raises `BadTwiml`."""
    if len(body) > MOST_BYTES:
        raise BadTwiml(f"the TwiML has {len(body)} bytes; there may be {MOST_BYTES}")
    try:
        text = body.decode("utf-8-sig")
        # TwiML needs no custom entities, which are the usual way to make a small document large.
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise BadTwiml("the TwiML declares a document type, which is not read")
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise BadTwiml(f"the answer of the webhook is not TwiML: {error}") from None
    if root.tag != "Response":
        raise BadTwiml(f"TwiML begins with <Response>, not with <{root.tag[:40]}>")
    return [verb for element in root for verb in _read_element(element)]


def _read_element(element: ElementTree.Element) -> list[Verb]:
    match element.tag:
        case "Say":
            # Tags for emphasis and breaks are dropped, the words stay.
            text = " ".join("".join(element.itertext()).split())
            return [Verb(kind="say", text=text)] if text else []
        case "Play":
            keys = element.get("digits", "").strip()
            if not keys:
                return [Verb(kind="sound", text=(element.text or "").strip()[:200])]
            if not _PRESSED.fullmatch(keys):
                raise BadTwiml(f"<Play digits>: expected keys of a phone and w for pauses, found {show(keys)}")
            return [Verb(kind="press", text=" ".join(part for part in re.split("[wW]+", keys) if part))]
        case "Pause":
            return []
        case "Hangup" | "Reject":
            return [Verb(kind="hang_up")]
        case "Redirect":
            url = (element.text or "").strip()
            if not url:
                raise BadTwiml("<Redirect> names no address")
            return [Verb(kind="redirect", url=url, method=_read_method(element))]
        case "Gather":
            return _read_gather(element)
        case tag:
            near = nearest(tag, _VERBS)
            suggestion = f"; did you mean <{near[0]}>?" if near else ""
            raise BadTwiml(f"<{tag[:40]}> is not simulated; there are {', '.join(f'<{verb}>' for verb in _VERBS)}{suggestion}")


def _read_gather(element: ElementTree.Element) -> list[Verb]:
    verbs: list[Verb] = []
    for child in element:
        if child.tag not in ("Say", "Play", "Pause"):
            raise BadTwiml(f"<{child.tag[:40]}> is not allowed inside <Gather>; expected <Say>, <Play> or <Pause>")
        verbs += _read_element(child)
    inputs = element.get("input", "dtmf").split()
    if not inputs or any(word not in ("dtmf", "speech") for word in inputs):
        raise BadTwiml(f"<Gather input>: expected dtmf, speech or both, found {show(element.get('input'))}")
    most = element.get("numDigits", "")
    if most and not (most.isascii() and most.isdigit() and 0 < len(most) < 5):
        raise BadTwiml(f"<Gather numDigits>: expected a whole number, found {show(most)}")
    gather = Verb(
        kind="gather",
        url=element.get("action", "").strip(),
        method=_read_method(element),
        hears_keys="dtmf" in inputs,
        hears_words="speech" in inputs,
        most_keys=int(most or 0),
        last_key=element.get("finishOnKey", "#"),
        reports_silence=element.get("actionOnEmptyResult", "").lower() == "true",
    )
    return [*verbs, gather]


def _read_method(element: ElementTree.Element) -> str:
    method = element.get("method", "POST").upper()
    if method not in _METHODS:
        raise BadTwiml(f"<{element.tag} method>: expected GET or POST, found {show(method)}")
    return method
