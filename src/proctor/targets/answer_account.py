"""Says what is known of an answer, part by part, and what stays unknown although something came.

* A text in which nothing can be seen is no answer: where the agent did something beside it, what it said is unknown.
* Two of the usual keys that hold different texts: the first in order is taken, and which of them is the answer is unknown, unless
  `response_path` says it.
* A member that may tell of tool calls and is not understood is named.
* Status 202 says that a request was taken, 206 that a part of the answer came: unless the case claims it, answer and calls are not
  known. What the answer says of itself (`in_progress`, `truncated`, `success: false`) is read with it: `proctor.evidence.plain.markers`.
* An error that is told beside an answer, and every redirect that was followed, are noted.
"""

from __future__ import annotations

import msgspec

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import may_hold_call
from proctor.evidence.values.text import HTTP_KEYS
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten, show
from proctor.targets.no_answer import READER, find_error, holds_nothing, refuse_status
from proctor.targets.wire import HttpAnswer

SAID_NOTHING = "the agent said nothing"
_NOT_YET = {
    202: "the agent answered status 202, so it took the request and may not have answered it yet",
    206: "the agent answered status 206, so only a part of its answer came",
}


def said_nothing(evidence: Evidence) -> bool:
    """Return whether an agent answered a text with nothing in it, and nothing else was seen of it: no act, no error."""
    if evidence.text is None or not holds_nothing(evidence.text) or evidence.error is not None:
        return False
    return not (evidence.tool_calls or evidence.nodes or evidence.turns or evidence.state)


def mark_silence(evidence: Evidence) -> Evidence:
    """Return evidence in which an empty answer counts as unknown: no claim may hold of what was not said."""
    if evidence.text is None or not holds_nothing(evidence.text):
        return evidence
    account = evidence.account or Account()
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={"answer": SAID_NOTHING, **account.unknown}))


def name_reader(evidence: Evidence, reader: str) -> Evidence:
    """Return evidence with the name of who read it, unless a format of its own was read."""
    account = evidence.account or Account()
    if account.reader not in ("", "plain"):
        return evidence
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, reader=reader))


def with_account(
    evidence: Evidence, answer: HttpAnswer, *, response_path: str | None = None, format: str | None = None, status_claimed: bool = False
) -> Evidence:
    """Return the evidence of an answer with the account of what is known of it."""
    unknowns = Unknowns()
    given = evidence.account or Account()
    is_plain = given.reader in ("", "plain")
    own = format is None and is_plain and evidence.nodes is None and isinstance(answer.body, dict)
    refusal = refuse_status(answer)
    if refusal is not None and evidence.tool_calls is None and evidence.account is None:
        # What an agent did before it refused, a refusal does not tell.
        unknowns.mark("tool_calls", refusal.reason)
        unknowns.mark("nodes", refusal.reason)
    if evidence.nodes is None and answer.status in _NOT_YET and not status_claimed:
        unknowns.mark("answer", _NOT_YET[answer.status])
        unknowns.mark("tool_calls", _NOT_YET[answer.status])
    if own and response_path is None:
        _mark_choice(answer.body, unknowns)
    if own and evidence.tool_calls is None:
        _mark_calls(answer.body, unknowns)
    told = find_error(answer.body)
    if told is not None and refusal is None:
        unknowns.note(f'the answer says "{told[0]}" beside what was taken as the answer: {shorten(told[1])}')
    for led in answer.redirects:
        unknowns.note(led)
    # The unknowns of whoever read the answer win: they know its format, and what is added here goes by its outside.
    account = Account(
        READER if is_plain else given.reader,
        {**unknowns.unknown, **given.unknown},
        tuple(dict.fromkeys((*given.notes, *unknowns.notes))),
    )
    return mark_silence(msgspec.structs.replace(evidence, account=account))


def describe_choice(body: Json) -> str | None:
    """Return between which of the usual keys an answer cannot be told, as they hold different texts; None where there is no doubt."""
    entry = body if isinstance(body, dict) else {}
    texts = {key: entry[key] for key in HTTP_KEYS if isinstance(entry.get(key), str) and not holds_nothing(entry[key])}
    if len(set(texts.values())) < 2:
        return None
    names = " or ".join(f'"{key}"' for key in texts)
    return f"the answer may stand under {names}, which differ"


def _mark_choice(body: dict[str, Json], unknowns: Unknowns) -> None:
    """Doubt the answer where it may stand under either of two keys."""
    choice = describe_choice(body)
    if choice is not None:
        unknowns.mark("answer", f"{choice}: say where with response_path")
    if isinstance(body.get("choices"), list) and all(body.get(key) is None for key in HTTP_KEYS):
        unknowns.mark(
            "answer", "the answer is a chat completion without a message: say where it stands with response_path or answer_format"
        )


def _mark_calls(body: dict[str, Json], unknowns: Unknowns) -> None:
    """Name a member that may tell of tool calls, where the answer lists none as `tool_calls`."""
    named = next((key for key, value in body.items() if may_hold_call(key, value) and key not in HTTP_KEYS), None)
    if named is not None:
        why = f'{show(shorten(named, 60))} in the answer may tell of tool calls and is not understood; "tool_calls" is the key that is read'
        unknowns.mark("tool_calls", why)
