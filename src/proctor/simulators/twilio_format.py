"""The message API of Twilio, so that its SDKs can be used with another base address.

    POST /2010-04-01/Accounts/SID/Messages.json        a form with To, From and Body
    GET  /2010-04-01/Accounts/SID/Messages.json        all short messages; To and From choose
    GET  /2010-04-01/Accounts/SID/Messages/ID.json     one of them

The SDKs send the account and a password; the password is the token of the sandbox, the account may have any name.
"""

from __future__ import annotations

import datetime

from proctor.model.evidence import Json
from proctor.simulators.exchange import Refused, answer_json

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


def show_twilio_page(rows: list[dict[str, Json]], account: str) -> dict[str, Json]:
    """Return all messages on one page, newest first as at Twilio."""
    uri = f"/{VERSION}/Accounts/{account}/Messages.json?PageSize={max(50, len(rows))}&Page=0"
    messages: list[Json] = [show_twilio(row, account) for row in reversed(rows)]
    return {
        "end": max(0, len(rows) - 1),
        "first_page_uri": uri,
        "messages": messages,
        "next_page_uri": None,
        "page": 0,
        "page_size": max(50, len(rows)),
        "previous_page_uri": None,
        "start": 0,
        "uri": uri,
    }


def write_moment(at: str) -> str:
    """Return a time in the format of mail headers, in any locale."""
    moment = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02} {month} {moment.year} {moment:%H:%M:%S} +0000"
