"""The message and call APIs of Twilio, so that its SDKs can be used with another base address.

    POST /2010-04-01/Accounts/SID/Messages.json        a form with To, From and Body
    GET  /2010-04-01/Accounts/SID/Messages.json        all short messages, filtered by To and From
    GET  /2010-04-01/Accounts/SID/Messages/ID.json     one of them
    POST /2010-04-01/Accounts/SID/Calls.json           a form with To, From, Url (or Twiml), and optionally StatusCallback
    GET  /2010-04-01/Accounts/SID/Calls.json           all calls, filtered by To, From and Status
    GET  /2010-04-01/Accounts/SID/Calls/ID.json        one of them
    POST /2010-04-01/Accounts/SID/Calls/ID.json        Status=completed hangs up; Url or Twiml redirects or answers the call

The SDKs send the account and a password; the password is the token of the sandbox, the account may have any name. `webhooks.py` has what
happens on the call.
"""

from __future__ import annotations

import datetime

import msgspec

from proctor.codecs.addresses import fold_address
from proctor.codecs.http import decode_query
from proctor.model.evidence import Json
from proctor.simulators.exchange import Refused, Request, Response, answer_json, read_form
from proctor.simulators.persona import is_address
from proctor.simulators.ports import Desk
from proctor.simulators.voice import webhooks
from proctor.simulators.voice.calls import CALLS, OVER, begin_talk, has_line, keep_call, make_call
from proctor.simulators.voice.webhooks import ADDRESS, EVENTS, Talk

VERSION = "2010-04-01"
_HELP = "https://www.twilio.com/docs/errors"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def refuse_twilio(status: int, code: int, message: str) -> Refused:
    """Return a refusal in Twilio's format."""
    return Refused(answer_json(status, {"code": code, "message": message, "more_info": f"{_HELP}/{code}", "status": status}))


def show_twilio(row: dict[str, Json], account: str, *, status: str | None = None) -> dict[str, Json]:
    """Return a message as Twilio shows it."""
    at = write_moment(row["sent_at"])
    uri = f"/{VERSION}/Accounts/{account}/Messages/{row['id']}"
    return {
        "account_sid": account,
        "api_version": VERSION,
        "body": row["text"],
        "date_created": at,
        "date_sent": at,
        "date_updated": at,
        "direction": "inbound" if row["direction"] == "inbound" else "outbound-api",
        "error_code": None,
        "error_message": None,
        "from": row["from"],
        "messaging_service_sid": None,
        "num_media": "0",
        "num_segments": str(max(1, -(-len(row["text"]) // 153))),
        "price": None,
        "price_unit": "USD",
        "sid": row["id"],
        "status": status or ("received" if row["direction"] == "inbound" else row["status"]),
        "subresource_uris": {"media": f"{uri}/Media.json"},
        "to": row["to"],
        "uri": f"{uri}.json",
    }


def make_page(name: str, shown: list[Json], account: str) -> dict[str, Json]:
    """Return all messages or calls on one page, newest first as at Twilio."""
    size = max(50, len(shown))
    uri = f"/{VERSION}/Accounts/{account}/{name}.json?PageSize={size}&Page=0"
    page: dict[str, Json] = {"start": 0, "end": max(0, len(shown) - 1), "page": 0, "page_size": size, "uri": uri, "first_page_uri": uri}
    return {**page, "next_page_uri": None, "previous_page_uri": None, name.lower(): shown[::-1]}


def write_moment(at: str) -> str:
    """Return a time in the format of mail headers, in any locale."""
    moment = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02} {month} {moment.year} {moment:%H:%M:%S} +0000"


_METHODS = ("GET", "POST")


def handle_twilio(parts: list[str], request: Request, desk: Desk) -> Response:
    """Answer a request below the version of the API. Raises `Refused` in Twilio's format."""
    if len(parts) not in (3, 4) or parts[0] != "Accounts" or not parts[-1].endswith(".json"):
        raise _refuse_unknown(request)
    account, last = parts[1], parts[-1].removesuffix(".json")
    if (last if len(parts) == 3 else parts[2]) != "Calls":
        raise _refuse_unknown(request)
    if request.method not in ("GET", "HEAD", "POST"):
        raise refuse_twilio(405, 20004, "Method not allowed")
    call = desk.rows.get(CALLS, last) if len(parts) == 4 else None
    if len(parts) == 4 and call is None:
        raise _refuse_unknown(request)
    if request.method == "POST":
        return _create(account, request, desk) if call is None else _update(call, account, request, desk)
    if call is not None:
        return answer_json(200, show_call(call, account))
    filters = {name.lower(): fold_address(value) for name, value in request.query if name in ("To", "From", "Status")}
    chosen = [row for row in desk.rows.list(CALLS).values() if all(fold_address(row[name]) == value for name, value in filters.items())]
    return answer_json(200, make_page("Calls", [show_call(row, account) for row in chosen], account))


def _create(account: str, request: Request, desk: Desk) -> Response:
    form = read_form(request)
    if not form.get("To"):
        raise refuse_twilio(400, 21201, "No 'To' number is specified")
    if not is_address("sms", form["To"]):
        raise refuse_twilio(400, 21211, f"Invalid 'To' Phone Number: {form['To'][:40]}")
    if not is_address("sms", form.get("From", "")):
        raise refuse_twilio(400, 21212, f"Invalid 'From' Phone Number: {form.get('From', '')[:40]}")
    if not form.get("Url") and not form.get("Twiml"):
        raise refuse_twilio(400, 21205, "Url parameter is required: the webhook that leads the call; or Twiml")
    _require_capacity(desk)
    talk = _read_talk(Talk(account=account), form, request)
    call = make_call("outbound", form["To"], form["From"], "queued", desk)
    talk = webhooks.report_status(call, talk, "initiated", "initiated")
    shown = show_call(call, account)
    if not has_line(call, desk.rows):
        # As on a real line: the call is placed, but not answered.
        call, talk = webhooks.end_call(call, webhooks.report_status(call, talk, "ringing", "ringing"), "no-answer", desk)
    else:
        call, talk = _connect(call, webhooks.report_status(call, talk, "ringing", "ringing"), form, desk)
    answer = answer_json(201, shown)
    return msgspec.structs.replace(answer, then=webhooks.keep_talk(call, talk, desk))


def _update(call: dict[str, Json], account: str, request: Request, desk: Desk) -> Response:
    form = read_form(request)
    if call["status"] in OVER:
        raise refuse_twilio(400, 21220, "Call is not in-progress. Cannot redirect.")
    known = webhooks.find_talk(call["id"], desk.rows)
    talk = webhooks.drop_webhooks(_read_talk(known or Talk(account=account), form, request))
    new_status = form.get("Status", "")
    if new_status not in ("", "completed", "canceled"):
        raise refuse_twilio(400, 21218, f"Status: expected completed or canceled, found {new_status[:40]}")
    if new_status:
        call, talk = webhooks.end_call(call, talk, "canceled" if call["status"] == "ringing" else "completed", desk)
    elif form.get("Url") or form.get("Twiml"):
        if known is None:
            _require_capacity(desk)
        call, talk = _connect(call, talk, form, desk)
    answer = answer_json(200, show_call(call, account))
    return msgspec.structs.replace(answer, then=webhooks.keep_talk(call, talk, desk))


def _connect(call: dict[str, Json], talk: Talk, form: dict[str, str], desk: Desk) -> tuple[dict[str, Json], Talk]:
    """Connect the call if needed, and control it by the document or the webhook of a form."""
    if call["status"] != "in-progress":
        call = begin_talk(call, desk)
        talk = msgspec.structs.replace(talk, heard=tuple(turn["text"] for turn in call["turns"]))
        talk = webhooks.report_status(call, talk, "answered", "in-progress")
    keep_call(call, desk)
    if form.get("Twiml"):
        return webhooks.perform(form["Twiml"].encode(), call, talk, desk)
    return call, webhooks.add_webhook(call, talk, form["Url"].strip(), form.get("Method", "POST").upper())


def _read_talk(talk: Talk, form: dict[str, str], request: Request) -> Talk:
    """Return a talk with the webhooks of a form. Raises `Refused`."""
    for name in ("Url", "StatusCallback"):
        if form.get(name) and not ADDRESS.fullmatch(form[name].strip()):
            raise refuse_twilio(400, 21205, f"{name} is not a valid URL: {form[name][:200]}")
    for name in ("Method", "StatusCallbackMethod"):
        if form.get(name, "POST").upper() not in _METHODS:
            raise refuse_twilio(400, 21206, f"{name}: expected GET or POST, found {form[name][:40]}")
    if not form.get("StatusCallback"):
        return talk
    # One field per event, so all values of a repeated name count.
    subscribed = [value for name, value in decode_query(request.body.decode("utf-8", "replace")) if name == "StatusCallbackEvent"]
    events = tuple(event for word in subscribed for event in word.split()) or ("completed",)
    for event in events:
        if event not in EVENTS:
            raise refuse_twilio(400, 21626, f"StatusCallbackEvent: expected {', '.join(EVENTS)}, found {event[:40]}")
    method = form.get("StatusCallbackMethod", "POST").upper()
    return msgspec.structs.replace(talk, status_url=form["StatusCallback"].strip(), status_method=method, status_events=events)


def _require_capacity(desk: Desk) -> None:
    if webhooks.count_led(desk.rows) >= webhooks.MOST_LED:
        raise refuse_twilio(429, 20429, f"Too many calls: {webhooks.MOST_LED} are led by webhooks at once; wait until some are over")


def _refuse_unknown(request: Request) -> Exception:
    return refuse_twilio(404, 20404, f"The requested resource {request.path} was not found")


def show_call(call: dict[str, Json], account: str) -> dict[str, Json]:
    """Return a call as Twilio shows it."""
    at = write_moment(call["at"])
    uri = f"/{VERSION}/Accounts/{account}/Calls/{call['id']}"
    ended = write_moment(call["ended_at"]) if "ended_at" in call else None
    return {
        "account_sid": account,
        "answered_by": None,
        "api_version": VERSION,
        "caller_name": None,
        "date_created": at,
        "date_updated": ended or at,
        "direction": "inbound" if call["direction"] == "inbound" else "outbound-api",
        "duration": str(call["duration"]) if "duration" in call else None,
        "end_time": ended,
        "from": call["from"],
        "from_formatted": call["from"],
        "parent_call_sid": None,
        "phone_number_sid": None,
        "price": None,
        "price_unit": "USD",
        "queue_time": "0",
        "sid": call["id"],
        "start_time": at,
        "status": call["status"],
        "subresource_uris": {},
        "to": call["to"],
        "to_formatted": call["to"],
        "uri": f"{uri}.json",
    }
