"""Rule c for message lists: how a list reports that messages are missing from it.

A list of messages is what the model was given next, and that is often less than what happened: a summary replaces the beginning, tool
uses were cleared, the provider keeps the rest under an id, a stream is still running, an answer came in several versions. `mark_earlier`
is for what came before, `mark_later` for what was still to come.

A list that does not begin with what was said to the agent is the end of a run (its last answer, in most cases), and what the agent called
before it is unknown. A list that was shortened in the middle and does not report it looks like any other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from proctor.evidence.shared.conversation import Message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import to_snake_case
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.show import show

_EARLIER: tuple[Part, ...] = (*CALL_PARTS, "input", "turns", "usage")
_LATER: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage")

NO_BEGINNING = "the messages do not begin with what was said to the agent, so calls before them may be missing"

_THINGS = r"(?:messages?|history|conversation|context|turns?|transcript|events?|items?|entries|tool_uses?)"
_LOST = r"(?:truncated|trimmed|omitted|pruned|cleared|evicted|condensed|compacted|dropped|summari[sz]ed)"
_LOSS = re.compile(
    rf"(?:is_|was_|been_|has_been_)?(?:{_LOST}|partial|incomplete)$|(?:\w+_)?{_THINGS}_(?:is_|was_|were_)?(?:{_LOST}|summary)(?:_count)?$"
    rf"|{_LOST}_(?:\w+_)?{_THINGS}(?:_count)?$|has_more$|__summary__$"
)
"""Names of fields that report missing messages, as `to_snake_case` writes them."""
_NOTHING = frozenset(("", "false", "no", "none", "null", "0"))


@functools.lru_cache(maxsize=4096)
def _names_loss(key: str) -> bool:
    return _LOSS.match(to_snake_case(key)) is not None


def reports_loss(key: str, value: Json) -> bool:
    """Return whether a field reports that messages are missing, by its name and by a value that says so."""
    return _names_loss(key) and bool(value) and not (isinstance(value, str) and value.lower() in _NOTHING)


def mark_earlier(unknowns: Unknowns, why: str) -> None:
    """Mark what came before the first message."""
    unknowns.mark_parts(_EARLIER, why)


def mark_beginning(unknowns: Unknowns) -> None:
    """Mark the calls of a run of which only the end is recorded: nothing is said to the agent."""
    unknowns.mark_unrecognised(CALL_PARTS, NO_BEGINNING)


def mark_later(unknowns: Unknowns, why: str) -> None:
    """Mark what follows: the run was not over."""
    unknowns.mark_parts(_LATER, why)


def mark_end(unknowns: Unknowns, at: str, word: Json) -> None:
    """Mark what follows: this word reports that the run was not over."""
    mark_later(unknowns, f"{at}: {show(word, 40)}, so the run was not over")


def check_edits(management: Json, at: str, calls: int, unknowns: Unknowns) -> None:
    """Mark what Anthropic removed from the messages it was given, of which `calls` calls are in the list.

    Its edits leave the caller's own list as it was. So tool uses that were cleared are missing only where fewer of them are in the list.
    """
    for edit in map(dict_or_empty, list_of(dict_or_empty(management).get("applied_edits"))):
        kind, cleared = edit.get("type"), edit.get("cleared_tool_uses")
        if isinstance(kind, str) and kind.startswith("clear_thinking"):
            continue
        if not (isinstance(kind, str) and kind.startswith("clear_tool_uses") and isinstance(cleared, int) and cleared <= calls):
            mark_earlier(unknowns, f"{at}.context_management: {kind!r} removed what is not in these messages")


def compare_choices(choices: Sequence[Message], at: str, unknowns: Unknowns) -> None:
    """Mark an answer that came in several versions: it is unknown which of them was used."""
    calls = [[(call.name, call.arguments) for call in choice.calls] for choice in choices]
    if any(made != calls[0] for made in calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}: {len(choices)} answers that call different tools; which one was used is unknown")
    if any(choice.text != choices[0].text for choice in choices):
        unknowns.mark("answer", f"{at}: {len(choices)} different answers; which one was used is unknown")
