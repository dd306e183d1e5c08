"""Calls that the agent leads by webhooks, as Twilio does it: what it is to do comes as TwiML, what was heard goes to the next webhook.

A call has a numbered list of jobs: webhooks that decide how it continues, and status callbacks. The server of the system runs the first
one (`Response.then`), makes its outgoing request, and so on until none is left. A job that is no longer the first, since the call ended or
was redirected, is late and changes nothing.

Speech of the other end goes to the next `<Gather>`: keys alone are `Digits`, everything else is `SpeechResult`. Speech before a `<Gather>`
also goes to it, and last words are sent although the call is over then.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
from collections.abc import Iterable

import msgspec

from proctor.codecs.query import encode_query
from proctor.model.evidence import Json
from proctor.model.typed import make_json_decoder
from proctor.simulators.exchange import Errand, Fetched, Request, Response, answer_json
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
from proctor.simulators.voice.calls import CALLS, MOST_TEXT, MOST_TURNS, OVER, keep_call, take_part
from proctor.simulators.voice.menus import is_keys
from proctor.simulators.voice.twiml import BadTwiml, Verb, read_twiml

# --- how Twilio signs what it sends: HMAC-SHA1 over the address and the fields, by name, with the token of the account as key


def sign_request(url: str, fields: Iterable[tuple[str, str]], token: str) -> dict[str, str]:
    """Return the header that signs a request; none where the token is unknown."""
    if not token:
        return {}
    signed = url + "".join(f"{name}{value}" for name, value in sorted(fields))
    return {"x-twilio-signature": base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()}


# ---


MOST_WEBHOOKS = 200
"""Webhooks that one call asks; one that goes on longer goes in a circle."""
_MOST_STORED = 5_000
"""Bytes of a webhook's answer that an event keeps."""
MOST_LED = 20
"""Calls at once that have something left to do."""
EVENTS = ("initiated", "ringing", "answered", "completed")
ADDRESS = re.compile(r"https?://[^\s]{1,2000}")
_PARTS = re.compile(r"(https?:)(//[^/?#]*)([^?#]*)")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
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
    """How far the agent has led a call."""

    account: str
    url: str = ""
    """The document that is performed: addresses in it are relative to this one."""
    method: str = "POST"
    heard: tuple[str, ...] = ()
    """Speech of the other end that no `<Gather>` has received yet."""
    jobs: tuple[Job, ...] = ()
    made: int = 0
    """How many jobs there have been."""
    status_url: str = ""
    status_method: str = "POST"
    status_events: tuple[str, ...] = ("completed",)
    told: int = 0
    """How many status callbacks there have been."""
    problems: tuple[str, ...] = ()
    """What went wrong, for the author."""


_READ_TALK = make_json_decoder(Talk)


def find_talk(id: str, rows: Draft) -> Talk | None:
    """Return how a call is led; None: not by webhooks."""
    row = rows.get(_TALKS, id)
    return None if row is None else _READ_TALK.decode(msgspec.json.encode(row))


def count_led(rows: Draft) -> int:
    """Return how many calls have something left to do."""
    return sum(1 for row in rows.list(_TALKS).values() if row["jobs"])


def keep_talk(call: dict[str, Json], talk: Talk, desk: Desk) -> str:
    """Keep how a call is led, and return the path by which it goes on."""
    desk.rows.put(_TALKS, call["id"], msgspec.to_builtins(talk))
    return f"/{CALLS}/{call['id']}/{talk.jobs[0].number}" if talk.jobs else ""


def add_webhook(call: dict[str, Json], talk: Talk, url: str, method: str, fields: dict[str, str] | None = None) -> Talk:
    """Return a talk that asks a webhook how the call goes on, and no other one."""
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
    """Do the next thing of a call, where it still is the one with that number."""
    call, talk = desk.rows.get(CALLS, id), find_talk(id, desk.rows)
    # Checked again when the webhook has answered: the call may have ended in between.
    if call is None or talk is None or not talk.jobs or str(talk.jobs[0].number) != number:
        return answer_json(200, {"note": "the call has gone on without this"})
    job = talk.jobs[0]
    if not request.fetched:
        # The same request comes again with the answer; until then nothing is stored.
        raise _make_errand(job, request.token)
    fetched = request.fetched[-1]
    talk = msgspec.structs.replace(talk, jobs=talk.jobs[1:])
    if not job.leads:
        if not 200 <= fetched.status < 300:
            talk = add_problem(talk, f"status callback: {_describe_failure(fetched)}")
    elif call["status"] not in OVER:
        call, talk = _follow(call, talk, fetched, desk)
    report: dict[str, Json] = {"url": job.url, "method": job.method, "sent": job.fields, "answered": fetched.status or None}
    # A part would look like the whole, and a longer body would not fit into the event.
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
    """Do what a webhook answered."""
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
        # Speech before the fault counts: the row has these turns, `call` is from before them.
        return end_call(desk.rows.get(CALLS, call["id"]) or call, add_problem(talk, str(error)), "failed", desk)


def _perform_verbs(verbs: list[Verb], call: dict[str, Json], talk: Talk, desk: Desk) -> tuple[dict[str, Json], Talk]:
    words: list[str] = []
    # A call ends at the end of a document.
    for verb in (*verbs, Verb(kind="hang_up")):
        if verb.kind == "say":
            words.append(verb.text)
            continue
        if words and call["status"] not in OVER:
            # Speech without a pause is one turn, and answered once.
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
        # A part would look like the whole.
        raise BadTwiml(f"one turn has at most {MOST_TEXT} characters")
    after = take_part(call, text, desk, is_pressed=is_pressed)
    heard = [turn["text"] for turn in after["turns"][len(call["turns"]) + 1 :]]
    return after, msgspec.structs.replace(talk, heard=(*talk.heard, *heard))


def _listen(verb: Verb, call: dict[str, Json], talk: Talk) -> tuple[Talk, bool]:
    """Return the talk with the webhook that gets what was heard, and whether there is one."""
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
    url = join_address(talk.url, address)
    if not ADDRESS.fullmatch(url):
        raise BadTwiml(f"not a valid address: {url[:200] or '(none)'}")
    if talk.made >= MOST_WEBHOOKS:
        raise BadTwiml(f"a call asks at most {MOST_WEBHOOKS} webhooks")
    return add_webhook(call, talk, url, method, fields)


def join_address(base: str, address: str) -> str:
    """Return an address that a document names, which may be relative to that of the document."""
    match = _PARTS.match(base)
    if not address or match is None or _ABSOLUTE.match(address):
        return address or base
    scheme, host, path = match.groups()
    if address.startswith("//"):
        return scheme + address
    if address.startswith("?"):
        return f"{scheme}{host}{path}{address}"
    name, mark, query = address.partition("?")
    whole = name if name.startswith("/") else f"{path.rpartition('/')[0]}/{name}"
    return f"{scheme}{host}{_remove_dots(whole)}{mark}{query}"


def _remove_dots(path: str) -> str:
    """Return an absolute path without `.` and `..`; a slash at its end and empty parts stay (RFC 3986, 5.2.4)."""
    parts: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    if path.rpartition("/")[2] in (".", ".."):
        parts.append("")
    return "/" + "/".join(parts)


def _describe(call: dict[str, Json], talk: Talk) -> dict[str, str]:
    """Return the fields that every webhook gets."""
    direction = "inbound" if call["direction"] == "inbound" else "outbound-api"
    ends = {"From": call["from"], "To": call["to"], "Caller": call["from"], "Called": call["to"], "Direction": direction}
    return {"CallSid": call["id"], "AccountSid": talk.account, "ApiVersion": "2010-04-01", "CallStatus": call["status"], **ends}


def add_problem(talk: Talk, problem: str) -> Talk:
    """Return a talk with something that went wrong."""
    return msgspec.structs.replace(talk, problems=(*talk.problems, problem)[-20:])


def _describe_failure(fetched: Fetched) -> str:
    return f"{fetched.url}: {fetched.problem or f'answers {fetched.status}'}"
