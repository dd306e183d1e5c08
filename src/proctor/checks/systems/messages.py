"""Claims about short messages, e-mails and chats after the run: sent by the agent by default, found by channel and recipient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import choose_scope_builder, declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, describe_choice, prepare_choice, prepare_claimed, prepare_phrases
from proctor.errors import SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json
from proctor.model.show import nearest, show
from proctor.model.verdict import TextRange, Verdict, missing

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


def _prepare(spec: MessageSent) -> tuple[EntryClaim, Callable[[Evidence], Scope]]:
    if spec.channel is not None and spec.channel.lower() not in _CHANNELS and (near := nearest(spec.channel, _CHANNELS)):
        raise SpecError(f"channel: expected one of {', '.join(_CHANNELS)}, found {show(spec.channel)}", field="channel", nearest=near)
    chosen_by = prepare_choice(
        channel=spec.channel,
        direction=None if spec.direction == "any" else spec.direction,
        to=spec.to,
        sender=spec.sender,
        subject=spec.subject,
    )
    phrases = prepare_phrases(spec.contains, spec.not_contains)
    claim = EntryClaim(
        what=describe_choice("message", chosen_by),
        base="$.state.messages.messages",
        chosen_by=chosen_by,
        fields=prepare_claimed(spec.fields, phrases, spec.absent, spec.count),
        count=spec.count,
        phrases=phrases,
        defaults={"direction": "outbound"},
        needed=("channel", "to", "from"),
        folded=("channel", "to", "from"),
        is_absent=spec.absent,
    )
    return claim, choose_scope_builder(claim.list_comparisons())


def _locate(spec: MessageSent, evidence: Evidence) -> Iterator[TextRange]:
    claim, scope_of = _prepare(spec)
    sent = evidence.state.messages if evidence.state is not None else None
    return iter(()) if sent is None else claim.iterate_ranges(sent.messages, scope_of(evidence))


@check(
    "message_sent",
    example="message_sent: {channel: sms, to: '+15550100', contains: [your appointment], not_contains: [diagnosis]}",
    reads=declare_state_reads,
    product=True,
    locate=_locate,
)
def message_sent(spec: MessageSent) -> Decide:
    """A message was sent with the given values and words; the score is the share of claims that hold."""
    claim, scope_of = _prepare(spec)

    def decide(evidence: Evidence) -> Verdict:
        sent = evidence.state.messages if evidence.state is not None else None
        return missing("messages") if sent is None else claim.decide(sent.messages, scope_of(evidence))

    return decide
