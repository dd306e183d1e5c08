"""Claims about short messages, e-mails and chats after the run: sent by the agent by default, found by channel and recipient."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, prepare_entries
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show

_CHANNELS = ("sms", "email", "chat")
"""Common names of channels; systems may use others, but hardly a word that is nearly one of these."""


class MessageSent(EntrySpec, frozen=True, kw_only=True, omit_defaults=True):
    """A message was sent with the given values and words; the score is the share of claims that hold."""

    channel: str | None = None
    """`sms`, `email`, `chat`."""
    to: Json = None
    """Whom it went to, or a matcher; of several recipients one is enough."""
    sender: Json = msgspec.field(default=None, name="from")
    """Whom it came from, or a matcher."""
    direction: Literal["outbound", "inbound", "any"] = "outbound"
    """`outbound`: sent by the agent; `inbound`: received."""
    subject: Json = None
    """The subject of an e-mail, or a matcher."""


def _prepare(spec: MessageSent) -> EntryClaim:
    if spec.channel is not None and spec.channel.lower() not in _CHANNELS and (near := nearest(spec.channel, _CHANNELS)):
        raise SpecError(f"channel: expected one of {', '.join(_CHANNELS)}, found {show(spec.channel)}", field="channel", nearest=near)
    direction = None if spec.direction == "any" else spec.direction
    return prepare_entries(
        spec,
        "message",
        lambda state: state.messages and state.messages.messages,
        base="$.state.messages.messages",
        all_of_them="messages",
        members={"channel": spec.channel, "direction": direction, "to": spec.to, "from": spec.sender, "subject": spec.subject},
        defaults={"direction": "outbound"},
        needed=("channel", "to", "from"),
        folded=("channel", "to", "from"),
    )


@check(
    "message_sent",
    example="message_sent: {channel: sms, to: '+15550100', contains: [your appointment], not_contains: [diagnosis]}",
    reads=declare_state_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).locate(evidence),
)
def message_sent(spec: MessageSent) -> Decide:
    """A message was sent with the given values and words; the score is the share of claims that hold."""
    return _prepare(spec).decide_on
