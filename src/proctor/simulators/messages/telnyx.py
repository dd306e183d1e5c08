"""The shape that Telnyx gives to messages, so that its SDKs can be used with another base address.

    POST /v2/messages        `{"from": "+1555...", "to": "+1555...", "text": "..."}`
    GET  /v2/messages/ID     one of them

The SDKs send the key as a bearer token; the key is the token of the sandbox.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.simulators.bodies import refusal_message
from proctor.simulators.exchange import Refused, Response, answer_json

VERSION = "v2"
_CODES = {400: ("10015", "Bad Request"), 404: ("10005", "Resource not found"), 405: ("10007", "Method not allowed")}
_UNFIT = ("10015", "Bad Request")


def refuse_telnyx(refused: Refused) -> Response:
    """Return a refusal in Telnyx's format."""
    code, title = _CODES.get(refused.response.status, _UNFIT)
    return answer_json(refused.response.status, {"errors": [{"code": code, "title": title, "detail": refusal_message(refused)}]})


def show_telnyx(row: dict[str, Json], *, status: str = "delivered") -> dict[str, Json]:
    """Return a message as Telnyx shows it."""
    inbound = row["direction"] == "inbound"
    return {
        "data": {
            "record_type": "message",
            "id": row["id"],
            "direction": row["direction"],
            "type": "SMS",
            "from": {"phone_number": row["from"], "carrier": "", "line_type": ""},
            "to": [{"phone_number": row["to"], "status": "delivered" if inbound else status, "carrier": "", "line_type": ""}],
            "text": row["text"],
            "media": [],
            "tags": [],
            "encoding": "GSM-7",
            "parts": max(1, -(-len(row["text"]) // 153)),
            "received_at": row["sent_at"],
            "sent_at": row["sent_at"],
            "errors": [],
        }
    }


def read_telnyx(given: dict[str, Json]) -> dict[str, Json]:
    """Return what is sent in the words of the simulator."""
    to = given.get("to")
    first = to[0] if isinstance(to, list) and len(to) == 1 else to
    return {"channel": "sms", "to": first, "from": given.get("from", ""), "body": given.get("text", "")}
