"""Says what a reply of a model leaves open.

A reply that was cut off, filtered or holds what is not understood looks like an answer, and is not the whole of it. Live replies follow
the rule of recorded messages: what may have asked for a tool and was not understood makes the tool calls unknown, what may have said
more makes the answer unknown. A refusal in words is an answer.
"""

from __future__ import annotations

from typing import Final

from proctor.evidence.unknowns.account import Unknowns
from proctor.llm.ports import ChatReply, Finish

_ENDS: Final[dict[Finish, str]] = {
    "length": "the model's answer was cut off at its limit of tokens",
    "other": "the model stopped for a reason that is not understood",
}
_NO_CALL: Final = "the model stopped to call tools, and no call is in its reply"
_NOTHING_LEFT: Final = "a content filter left nothing of the model's answer"


def mark_reply(unknowns: Unknowns, reply: ChatReply) -> None:
    """Note what is unknown after this reply."""
    for what in reply.unread:
        about_answer = what.startswith("an answer")
        why = f"the model gave {what}" if about_answer else f"the model's reply holds {what}, which is not understood"
        unknowns.mark("answer", why)
        if not about_answer:
            unknowns.mark("tool_calls", why)
    if reply.tool_calls:
        return  # it goes on
    if reply.finish == "tool_calls":
        unknowns.mark("tool_calls", _NO_CALL)
        unknowns.mark("answer", _NO_CALL)
    elif reply.finish == "content_filter" and not reply.text:
        unknowns.mark("answer", _NOTHING_LEFT)
    elif reply.finish in _ENDS:
        unknowns.mark("answer", _ENDS[reply.finish])
