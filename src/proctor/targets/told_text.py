"""Reads a text that stands beside the run it came of: `(text, messages)`, `(result, text)`, `{"text": ..., "messages": [...]}`.

The text is the answer, since whoever returned it says so; calls, tokens and everything else come from what stands beside it. Where that
ends with another answer nobody knows which of the two was given: a text beside a run may be the id of its thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from proctor.evidence.plain.record import CARRYING, read_plain
from proctor.evidence.shared.conversation import ENDS_EARLY
from proctor.evidence.values.text import HTTP_KEYS
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json

_DIFFERS = "the text that was returned and the answer at the end of what stands beside it differ"
_CALLS = frozenset(("tool_calls", "toolCalls"))


def split_pair(answer: object) -> tuple[str, object] | None:
    """Return the text of a pair and what stands beside it; None for everything else."""
    if not isinstance(answer, (tuple, list)) or len(cast("Sequence[object]", answer)) != 2:
        return None
    first, second = cast("Sequence[object]", answer)
    text, beside = (first, second) if isinstance(first, str) else (second, first)
    # A pair within a pair is nobody's way to tell of a run, and may contain itself.
    is_alone = beside is None or isinstance(beside, (str, bool, int, float)) or _holds_text(beside)
    # A list of a text and an object may be the parts of one message.
    is_message = isinstance(answer, list) and not isinstance(beside, list)
    return (text, beside) if isinstance(text, str) and not is_alone and not is_message else None


def _holds_text(value: object) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(item, str) for item in cast("Sequence[object]", value))


def split_messages(entry: dict[str, Json]) -> tuple[str, dict[str, Json]] | None:
    """Return the text of a mapping and the mapping without it, where messages stand beside it; None for everything else."""
    text = entry.get("text")
    if not isinstance(text, str) or not isinstance(entry.get("messages"), list) or not (CARRYING - {"text"}).isdisjoint(entry):
        return None
    return text, {key: value for key, value in entry.items() if key != "text"}


def lay_text(evidence: Evidence, own: Evidence) -> Evidence:
    """Return evidence whose answer is that of `own`, a text; of a conversation that was returned whole, in its last turn."""
    text = own.text or ""
    account = evidence.account or Account()
    unknown = dict(account.unknown)
    if evidence.text is None:
        # That the messages do not hold the answer no longer matters.
        unknown.pop("answer", None)
        if unknown.get("tool_calls") in ENDS_EARLY:
            del unknown["tool_calls"]
    elif not _agree(text, evidence.text):
        unknown.setdefault("answer", _DIFFERS)
    turns = evidence.turns
    if turns:
        turns = (*turns[:-1], msgspec.structs.replace(turns[-1], text=own.text, body=own.body))
    account = msgspec.structs.replace(account, unknown=unknown)
    return msgspec.structs.replace(evidence, text=own.text, body=own.body, turns=turns, account=account)


def read_answer_body(entry: dict[str, Json]) -> Evidence | None:
    """Return the evidence of a mapping that has its answer under one of the usual keys of answers; None for every other mapping."""
    if not (CARRYING - _CALLS).isdisjoint(entry):
        return None
    given = [key for key in HTTP_KEYS if entry.get(key) is not None]
    if len(given) != 1 or not isinstance(entry[given[0]], str):
        return None
    evidence, model = read_plain({"body": entry}), entry.get("model")
    return msgspec.structs.replace(evidence, model=model) if isinstance(model, str) and evidence.model is None else evidence


def _agree(text: str, shown: str) -> bool:
    """Return whether one of two texts is a part of the other: an answer may be cut out, or wrapped in more words."""
    one, other = " ".join(text.split()), " ".join(shown.split())
    return one in other or other in one
