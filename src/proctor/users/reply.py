"""Reads what the model of a simulated user replies: exactly one JSON object, or no reply at all.

    {"say": "It is order 17.", "done": false, "gives_up": false, "reason": "the agent asked for the number"}

Nothing is guessed. A reply with other members, with other types, that ends the conversation in two ways, or that goes on and says nothing
is broken. One code fence around the object is taken off, as models write it out of habit.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.users.player import Move

LONGEST_SAY = 8_000
"""Characters of one message of the user."""
LONGEST_REASON = 500
_FENCED = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "say": {"type": "string", "description": "what you say to the assistant next"},
        "done": {"type": "boolean", "description": "true when you have what you came for"},
        "gives_up": {"type": "boolean", "description": "true when you leave without it"},
        "reason": {"type": "string", "description": "one short sentence"},
    },
    "required": ["say", "done", "gives_up", "reason"],
    "additionalProperties": False,
}
"""The shape of a reply, for models that can be held to one."""


class BrokenReply(Exception):
    """What is wrong with a reply."""


def read_reply(text: str) -> Move:
    """Return what the user does. Raises `BrokenReply`."""
    found = _FENCED.match(text.strip())
    try:
        reply: Any = msgspec.json.decode(found[1] if found is not None else text.strip())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        raise BrokenReply("it is no JSON object") from None
    if not isinstance(reply, dict):
        raise BrokenReply("it is no JSON object")
    _check_members(reply)
    # A lone surrogate can be sent to nobody.
    say = reply["say"].encode("utf-8", "ignore").decode().strip()
    reason = reply.get("reason", "").encode("utf-8", "ignore").decode()[:LONGEST_REASON]
    if reply["done"] and reply.get("gives_up"):
        raise BrokenReply("`done` and `gives_up` are both true")
    if reply["done"] or reply.get("gives_up"):
        return Move(ends="done" if reply["done"] else "gave_up", reason=reason)
    if not say:
        raise BrokenReply("`say` is empty, and the conversation goes on")
    if len(say) > LONGEST_SAY:
        raise BrokenReply(f"`say` has {len(say):,} characters; at most {LONGEST_SAY:,} are said in one turn")
    return Move(say=say, reason=reason)


def _check_members(reply: dict[str, Any]) -> None:
    for name in reply:
        if name not in SCHEMA["properties"]:
            raise BrokenReply(f"unknown member {show(name, 60)}")
    for name, kind, wanted in (("say", str, "text"), ("done", bool, "true or false")):
        if name not in reply:
            raise BrokenReply(f"`{name}` is missing")
        if not isinstance(reply[name], kind):
            raise BrokenReply(f"`{name}`: expected {wanted}, found {show(reply[name], 60)}")
    for name, kind, wanted in (("gives_up", bool, "true or false"), ("reason", str, "text")):
        if name in reply and not isinstance(reply[name], kind):
            raise BrokenReply(f"`{name}`: expected {wanted}, found {show(reply[name], 60)}")
