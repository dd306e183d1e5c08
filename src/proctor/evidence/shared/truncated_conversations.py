"""What a record says itself about not being whole.

A list of messages is what the model was given next, and that is often less than what happened: a summary stands for the beginning, tool
uses were cleared, the provider keeps the rest under an id, a stream is still running, an answer came in several versions. Where the record
tells it, what could be missing is unknown. `mark_earlier` is for what came before, `mark_later` for what was still to come.

A list that does not begin with what was said to the agent is the end of a run (its last answer, in most cases), and what the agent called
before it is unknown. One that was shortened in the middle and does not say so looks like any other; no reader can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proctor.evidence.shared.conversation import Message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.show import show

_EARLIER: tuple[Part, ...] = (*CALL_PARTS, "input", "turns", "usage")
_LATER: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage")

NO_BEGINNING = "the messages do not begin with what was said to the agent, so calls before them may be missing"

RUNNING = frozenset(
    ("in_progress", "queued", "pending", "running", "streaming", "searching", "interpreting", "generating", "calling", "suspended")
)
"""Words, in lower case, for something that was not over when it was written down."""

# `summary_text` is left out: OpenAI calls the parts of its reasoning so.
_GAP = re.compile(
    r"summar(?!y_text)|compact|truncat|trimmed|omitted|pruned|cleared|evicted|condensed|has_?more|partial|incomplete", re.IGNORECASE
)
_TELLING = re.compile(r"meta|propert|additional_kwargs|provider|details|extra", re.IGNORECASE)
"""Keys under which a format keeps what it says about a message; under the others stands what was said and done."""
_MOST_LOOKED_AT = 1_000
"""Objects under a harmless key that are looked through for words about missing messages."""


def mark_earlier(unknowns: Unknowns, why: str) -> None:
    """Doubt what stood before the first message."""
    unknowns.mark_parts(_EARLIER, why)


def mark_beginning(unknowns: Unknowns) -> None:
    """Doubt the calls of a run of which only the end is here: nobody says anything to the agent."""
    unknowns.mark_parts(CALL_PARTS, NO_BEGINNING)


def mark_later(unknowns: Unknowns, why: str) -> None:
    """Doubt what follows: the run was not over."""
    unknowns.mark_parts(_LATER, why)


def mark_end(unknowns: Unknowns, at: str, word: Json) -> None:
    """Doubt what follows: this word says that the run was not over."""
    mark_later(unknowns, f"{at}: {show(word, 40)}, so the run was not over")


def is_running(word: Json) -> bool:
    """Return whether a status says that something goes on."""
    return isinstance(word, str) and word.lower() in RUNNING


def tells_of_gap(key: str, value: Json) -> bool:
    """Return whether an unknown key speaks of missing messages, by its name or by its one word."""
    if value is None or value is False or value in ("", 0) or value == [] or value == {}:
        return False
    # One word only: a sentence that speaks of a summary is something that somebody said.
    return _GAP.search(key) is not None or (isinstance(value, str) and " " not in value and _GAP.search(value[:60]) is not None)


def find_gap(key: str, value: Json) -> str | None:
    """Return the key under a harmless one that says messages are missing, or None."""
    if not isinstance(value, (dict, list)) or not _TELLING.search(key):
        return None
    waiting: list[Json] = [value]
    for _ in range(_MOST_LOOKED_AT):
        if not waiting:
            return None
        current = waiting.pop()
        if isinstance(current, list):
            waiting.extend(current)
        elif isinstance(current, dict):
            told = next((name for name, member in current.items() if _is_mark(name, member)), None)
            if told is not None:
                return told
            waiting.extend(current.values())
    return None


def _is_mark(key: str, value: Json) -> bool:
    if value is True:
        return _GAP.search(key) is not None
    return key == "lc_source" and isinstance(value, str) and "summar" in value


def weigh_edits(management: Json, at: str, calls: int, unknowns: Unknowns) -> None:
    """Weigh what Anthropic edited out of the messages it was given, of which `calls` calls are here.

    Its edits leave the caller's own list as it was. So tool uses that were cleared are missing only where fewer of them are here.
    """
    for edit in map(dict_or_empty, list_of(dict_or_empty(management).get("applied_edits"))):
        kind, cleared = edit.get("type"), edit.get("cleared_tool_uses")
        if isinstance(kind, str) and kind.startswith("clear_thinking"):
            continue
        if not (isinstance(kind, str) and kind.startswith("clear_tool_uses") and isinstance(cleared, int) and cleared <= calls):
            mark_earlier(unknowns, f"{at}.context_management: {kind!r} took away what is not in these messages")


def compare_choices(choices: Sequence[Message], at: str, unknowns: Unknowns) -> None:
    """Doubt an answer that came in several versions: nobody knows which of them was acted upon."""
    calls = [[(call.name, call.arguments) for call in choice.calls] for choice in choices]
    if any(made != calls[0] for made in calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}: {len(choices)} answers that call different tools; which one was taken is unknown")
    if any(choice.text != choices[0].text for choice in choices):
        unknowns.mark("answer", f"{at}: {len(choices)} different answers; which one was taken is unknown")
