"""The rule that decides which cases of a suite a record answers.

- A record that names a case answers the case with that id, else the case with that name. A name that several cases share is rejected,
  unless these cases are the same test case of a library.
- A record that names no case answers every case with the same input, compared exactly. The input of a conversation is the list of all
  user messages. A record with only the first message answers the one conversation that starts with it.
- If no input is equal, the record answers every case of a suite, or of a selection, that has only one case or no inputs. Conversations
  (`turns`) and custom bodies count as inputs if every case has one.
- Any other record is rejected, and the message lists the choices. A case is never guessed.

Names and inputs are looked up in the whole suite, even if only some cases are selected: a record of a case that is not selected must not
answer a selected one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import cast

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.model.case import Case, is_variant
from proctor.model.evidence import Evidence, Json
from proctor.model.lazy_cases import find_scratch, is_lazy, join_cases
from proctor.model.problem import NOWHERE, Problem
from proctor.model.scratch import NameTable
from proctor.model.show import show

REFUSED_CODE = "case_not_named"
"""The code of a record that could answer several cases and names none of them."""
_MOST_CHOICES = 10
"""Cases listed in the error about a record that could answer several."""
_CHOOSE = "write the id of one of them as `case`, or select one case (`-k`)"
_FIRST = b"first: "
"""The prefix of keys for the first message of a conversation."""
Key = str | bytes


class CaseTable:
    """Positions of cases by key. For lazy cases it stores only hashes of the keys, and checks a hit against the case."""

    def __init__(self, cases: Sequence[Case], list_keys: Callable[[Case], Collection[Key]]) -> None:
        self._cases = cases
        self._list_keys = list_keys
        self._in_memory: dict[Key, list[int]] = {}
        self._hashed = NameTable(find_scratch(cases)) if is_lazy(cases) else None

    def add(self, case: Case, position: int) -> None:
        """Add a case under all of its keys."""
        for key in self._list_keys(case):
            if self._hashed is None:
                self._in_memory.setdefault(key, []).append(position)
            else:
                self._hashed.add(key, position)

    def find(self, key: Key) -> Sequence[int]:
        """Return the positions of the cases with this key, in their order."""
        if self._hashed is None:
            return self._in_memory.get(key, ())
        return sorted(position for position in set(self._hashed.find(key)) if key in self._list_keys(self._cases[position]))


class CaseNames:
    """Positions of cases by the names that a record may use: the id, the id in the case's own file, or the name.

    An id takes precedence over the name of another case, but not over the id that another case has in its own file.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._ids = CaseTable(cases, lambda case: (case.id,))
        self._others = CaseTable(cases, _list_other_names)

    def add(self, case: Case, position: int) -> bool:
        """Add the names of a case; returns False if another case has its id."""
        is_free = not self._ids.find(case.id)
        self._ids.add(case, position)
        self._others.add(case, position)
        return is_free

    def find(self, name: str) -> Sequence[int]:
        """Return the positions of the cases that a name may mean."""
        owner, others = self._ids.find(name), self._others.find(name)
        if not others:
            return owner
        return [*owner, *(position for position in others if not owner or self._cases[position].own_id == name)]

    @functools.cached_property
    def every(self) -> Sequence[str]:
        """All names; cached, because each message about an unknown name needs them."""
        return tuple(dict.fromkeys(name for case in self._cases for name in (case.id, *_list_other_names(case))))


def _list_other_names(case: Case) -> Collection[str]:
    return dict.fromkeys(name for name in (case.own_id, case.name) if name and name != case.id)


class CaseIndex:
    """The cases of a suite, found by the name in a record or by its input."""

    def __init__(self, selected: Sequence[Case], left_out: Sequence[Case] = ()) -> None:
        """Raises `InputError` if two cases have the same id. Positions count the selected cases first."""
        self.cases = join_cases([selected, left_out])
        self._selected = selected
        self.names = CaseNames(self.cases)
        self._has_variants = False
        self.has_inputs = False
        """Whether any case has messages for the agent."""
        self.answers_all = self._index_names()
        """Whether a record that names no case answers every case, whatever its input."""

    def _index_names(self) -> bool:
        """Index the names of all cases, in one pass over them; returns whether a record answers all of them."""
        repeated: list[Problem] = []
        has_input = has_silent_case = False
        for position, case in enumerate(self.cases):
            # Readers reject repeated ids too, but a suite that was built in code was not read.
            if not self.names.add(case, position):
                repeated.append(Problem(message=f"two cases have the id {case.id!r}", origin=case.origin, code="duplicate_id"))
            self._has_variants = self._has_variants or is_variant(case)
            has_input = has_input or case.input is not None
            has_messages = bool(list_messages(case))
            has_silent_case = has_silent_case or not has_messages
            self.has_inputs = self.has_inputs or has_messages
        if repeated:
            raise InputError(repeated[0].message, repeated)
        return _needs_no_choice(len(self.cases), variants=self._has_variants, has_input=has_input, silent=has_silent_case)

    @functools.cached_property
    def _by_input(self) -> CaseTable:
        """The cases by their messages, and conversations also by their first message; built for the first record without a name."""
        table = CaseTable(self.cases, _list_input_keys)
        for position, case in enumerate(self.cases):
            table.add(case, position)
        return table

    @functools.cached_property
    def _selection_answers_all(self) -> bool:
        return len(self._selected) < len(self.cases) and CaseIndex(self._selected).answers_all

    def find(self, evidence: Evidence) -> Sequence[int] | None:
        """Return the positions of the cases that `evidence` answers, or None if it names an unknown case.

        Raises `EvidenceError` with the choices if it could answer several cases.
        """
        name = evidence.case
        if name is None:
            return range(len(self._selected)) if self.answers_all else self._find_by_input(evidence)
        hits = self.names.find(name)
        if len(hits) > 1 and not self._are_one(hits):
            raise self._make_refusal(f"{len(hits)} cases are called {show(name, 80)}; write the id of one of them as `case`", hits)
        return hits or None

    def _are_one(self, positions: Sequence[int]) -> bool:
        # Cases that were built in code have no place: all of them would look like one.
        origins = {self.cases[position].origin for position in positions}
        return len(origins) == 1 and NOWHERE not in origins

    def _find_by_input(self, evidence: Evidence) -> Sequence[int]:
        recorded = list_recorded_messages(evidence)
        for messages in (recorded, _list_first_input(evidence)):
            if messages and (positions := self._by_input.find(_make_key(messages))):
                return positions
        # A record may contain only the first message of a conversation.
        by_first_message = self._by_input.find(_FIRST + _make_key(recorded)) if len(recorded) == 1 else ()
        # Several cases may have the same conversation, and the record answers all of them; conversations that differ later are ambiguous.
        if by_first_message and len({_make_key(list_messages(self.cases[position])) for position in by_first_message}) == 1:
            return by_first_message
        if not by_first_message and self._selection_answers_all:
            return range(len(self._selected))
        if self._has_variants:
            # The variants of a matrix have the same input, and only the id identifies the one that was run.
            raise self._make_refusal(f"names no case, and each case runs once for every combination of a matrix; {_CHOOSE}")
        if by_first_message:
            raise self._make_refusal(
                f"names no case, and several conversations begin with its input {show_messages(recorded)}; {_CHOOSE}", by_first_message
            )
        why = f"names no case, and its input {show_messages(recorded)} is that of no case" if recorded else "names no case and has no input"
        raise self._make_refusal(f"{why}; {_CHOOSE}, or remove the inputs if every record answers all cases")

    def _make_refusal(self, why: str, positions: Sequence[int] | None = None) -> EvidenceError:
        choices = [self.cases[position] for position in positions] if positions is not None else self.cases
        listed = [_describe_choice(case) for case in choices[:_MOST_CHOICES]]
        if len(choices) > _MOST_CHOICES:
            listed.append(f"and {len(choices) - _MOST_CHOICES} more")
        return EvidenceError(f"{why}: {', '.join(listed)}", code=REFUSED_CODE)


def _needs_no_choice(count: int, *, variants: bool, has_input: bool, silent: bool) -> bool:
    """Return whether a record answers all of these cases, whatever its input.

    A case without messages makes claims about any record. Next to such cases a conversation is one more claim about the same record; if
    every case has messages, the cases are different situations. The variants of a matrix have the same input for several agents, and only
    the id identifies the one that was run.
    """
    if variants:
        return False
    return count == 1 or (not has_input and (silent or not count))


def show_messages(messages: Sequence[Json], limit: int = 80) -> str:
    """Return messages for a sentence, shortened."""
    return show(messages[0] if len(messages) == 1 else list(messages), limit)


def _describe_choice(case: Case) -> str:
    messages = list_messages(case)
    return f"{case.id!r} (input {show_messages(messages, 60) if messages else 'none'})"


def list_messages(case: Case) -> tuple[Json, ...]:
    """Return the messages that a case sends to the agent; none if it has no input."""
    if case.custom_body is not None:
        return (case.custom_body,)
    if case.turns:
        return tuple(turn.input for turn in case.turns)
    return (case.input,) if case.input is not None else ()


def list_recorded_messages(evidence: Evidence) -> tuple[Json, ...]:
    """Return the messages that were sent to the agent; none if they were not recorded."""
    if evidence.turns is not None and len(evidence.turns) > 1 and all(turn.input is not None for turn in evidence.turns):
        return tuple(turn.input for turn in evidence.turns)
    return _list_first_input(evidence)


def _list_first_input(evidence: Evidence) -> tuple[Json, ...]:
    recorded = evidence.input
    if isinstance(recorded, list) and recorded and all(isinstance(message, str) for message in cast("list[Json]", recorded)):
        # A conversation whose messages were recorded as one list.
        return tuple(cast("list[str]", recorded))
    return (recorded,) if recorded is not None else ()


def _list_input_keys(case: Case) -> tuple[bytes, ...]:
    messages = list_messages(case)
    # The variants of a matrix have the same input, which therefore does not identify any of them.
    if not messages or is_variant(case):
        return ()
    return (_make_key(messages),) if len(messages) == 1 else (_make_key(messages), _FIRST + _make_key(messages[:1]))


def _make_key(messages: Sequence[Json]) -> bytes:
    """Return messages as a key of a table: a JSON list."""
    try:
        return msgspec.json.encode(messages, order="sorted")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        # A lone surrogate or a number that JSON cannot represent: no less exact, only slower.
        return repr(messages).encode("utf-8", "backslashreplace")
