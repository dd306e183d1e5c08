"""Which cases of a suite a record answers.

- A record that names a case answers the case of that id, else the one of that name. What several cases are called names none of them,
  unless they are one and the same test case of a library.
- A record that names no case answers every case with the same input. Inputs are compared exactly. The input of a conversation is all
  that was said to the agent, in order; a record that kept only its first message answers the one conversation that begins with it.
- Where no input fits, it answers every case if there is only one or if none of them has an input. Conversations (`turns`) and bodies that
  are sent as written count as inputs where every case has one.
- A record that was asked something else than the case it names, or than the only case there is, is refused: two texts contradict each other
  where they differ in more than white space, and where JSON in them is not the same. An object contradicts no text, and a text with a
  placeholder in it (`{name}`) contradicts nothing.
- Anything else is refused with the choice to make: which case is meant is never guessed.

Names and inputs are looked for in the whole suite, also where only some of its cases were selected: a record of another case does not
become one of those. A selection of one case is a choice: it takes what fits no input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from proctor.decide.case_names import CaseNames, HashedNames, HeldNames
from proctor.decide.said_index import SaidIndex, make_key
from proctor.errors import EvidenceError, InputError
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.lazy_cases import is_lazy, join_cases
from proctor.model.origin import NOWHERE
from proctor.model.problem import Problem
from proctor.model.show import show
from proctor.model.variants import is_variant

REFUSED_CODE = "case_not_named"
"""The code of a record that could answer several cases and names none of them."""
OTHER_INPUT = "other_input"
"""The code of a record that was asked something else than the case it is to answer."""
_MOST_CHOICES = 10
"""Cases named in the error about a record that could answer several."""
_CHOOSE = "write the id of one of them as `case`, or select one case (`-k`)"


class CaseIndex:
    """The cases of a suite, found by the name a record gives or by its input."""

    def __init__(self, selected: Sequence[Case], left_out: Sequence[Case] = ()) -> None:
        """Raises `InputError` where two cases have the same id. Positions count the selected cases first."""
        self.cases = join_cases([selected, left_out])
        self._selected = selected
        self.names: CaseNames = HashedNames(self.cases) if is_lazy(self.cases) else HeldNames()
        """The positions of the cases that a record may mean by a name; several where a name is not clear."""
        self.answers_all = self._index_names()
        """Whether a record that names no case answers every case, whatever its input."""
        # Made once per suite, so that a record costs one look-up however many cases there are.
        self._by_input = SaidIndex(self.cases, _list_said_by)
        self._by_first_message = SaidIndex(self.cases, lambda case: _list_said_by(case)[:1])
        self._indexed = False

    def _index_names(self) -> bool:
        """Find the names of all cases, in one pass over them; returns whether a record need not choose between them."""
        repeated: list[Problem] = []
        asked, silent, variants = False, False, False
        for position, case in enumerate(self.cases):
            # Readers refuse them too, but a suite that was built in code comes here unread.
            if not self.names.add(case, position):
                repeated.append(Problem(message=f"two cases have the id {case.id!r}", origin=case.origin, code="duplicate_id"))
            variants = variants or is_variant(case)
            asked = asked or case.input is not None
            silent = silent or not _list_said_by(case)
        if repeated:
            raise InputError(repeated[0].message, repeated)
        self.names.finish()
        return _needs_no_choice(len(self.cases), variants=variants, asked=asked, silent=silent)

    def _index_inputs(self) -> None:
        # When the first record comes that names no case: most name theirs.
        self._indexed = True
        for position, case in enumerate(self.cases):
            # The variants of a matrix ask the same: an input says nothing of which of them answered.
            said = () if is_variant(case) else _list_said_by(case)
            if said:
                self._by_input.add(said, position)
            if len(said) > 1:
                self._by_first_message.add(said[:1], position)

    def find(self, evidence: Evidence) -> Sequence[int] | None:
        """Return the positions of the cases that `evidence` answers, or None where it names a case nobody knows.

        Raises `EvidenceError` where it could answer several cases, with the choice to make.
        """
        name = evidence.case
        if name is None:
            # A suite of one case is about whatever is checked, unless the record was certainly asked something else.
            if len(self.cases) == 1:
                self._refuse_other_input(evidence, (0,), "names no case, and the only one")
            return range(len(self._selected)) if self.answers_all else self._find_by_input(evidence)
        found = self.names.find(name)
        if found is not None and len(found) > 1 and not self._are_one(found):
            raise self._make_refusal(f"{len(found)} cases are called {show(name, 80)}; write the id of one of them as `case`", found)
        self._refuse_other_input(evidence, found or (), f"names the case {show(name, 80)}, which")
        return found

    def asks_nothing(self, positions: Sequence[int]) -> bool:
        """Return whether no record can contradict the input of these cases: they have none."""
        return not any(_list_said_by(self.cases[position]) for position in positions)

    def _refuse_other_input(self, evidence: Evidence, positions: Sequence[int], who: str) -> None:
        for position in positions:
            asked = _list_said_by(self.cases[position])
            if asked and contradicts(asked, evidence):
                raise EvidenceError(
                    f"{who} asks {_show_said(asked)}; the record was asked {_show_said(_list_said_in(evidence))}", code=OTHER_INPUT
                )

    def _are_one(self, positions: Sequence[int]) -> bool:
        """Return whether these are the same test case, written at one place."""
        # Cases that were built in code have no place: all of them would look like one.
        origins = {self.cases[position].origin for position in positions}
        return len(origins) == 1 and NOWHERE not in origins

    def _find_by_input(self, evidence: Evidence) -> Sequence[int]:
        if not self._indexed:
            self._index_inputs()
        said = _list_said_in(evidence)
        for messages in (said, _find_said_first(evidence)) if said else ():
            found = self._by_input.find(messages)
            if found is not None:
                return found
        # A record may have kept only the first message of a conversation.
        begun = self._by_first_message.find(said) if len(said) == 1 else None
        # Several cases may ask the very same conversation, and all of them are answered; two that only begin alike would be a guess.
        if begun is not None and len({make_key(_list_said_by(self.cases[position])) for position in begun}) == 1:
            return begun
        if begun is None and _need_no_choice(self._selected):
            return range(len(self._selected))
        told = _show_said(said)
        if any(map(is_variant, self.cases)):
            # The same question is asked of several models or prompts, and only the id says which of them answered.
            raise self._make_refusal(f"names no case, and each is asked once for every combination of a matrix; {_CHOOSE}")
        if begun is not None:
            raise self._make_refusal(f"names no case, and several conversations begin with its input {told}; {_CHOOSE}", begun)
        why = f"names no case, and its input {told} is that of no case" if said else "names no case and has no input"
        raise self._make_refusal(f"{why}; {_CHOOSE}")

    def _make_refusal(self, why: str, positions: Sequence[int] | None = None) -> EvidenceError:
        choices = [self.cases[position] for position in positions] if positions is not None else self.cases
        told = [_name_choice(case) for case in choices[:_MOST_CHOICES]]
        if len(choices) > _MOST_CHOICES:
            told.append(f"and {len(choices) - _MOST_CHOICES} more")
        return EvidenceError(f"{why}: {', '.join(told)}", code=REFUSED_CODE)


def _show_said(said: Sequence[Json]) -> str:
    return show(said[0] if len(said) == 1 else list(said), 80)


def contradicts(asked: Sequence[Json], evidence: Evidence) -> bool:
    """Return whether a record was certainly asked something else than a case asks."""
    said = _list_said_in(evidence)
    if not said or any(not isinstance(text, str) or not text.strip() for text in (*asked, *said)):
        return False
    wanted, given = [[_normalize(str(text)) for text in texts] for texts in (asked, said)]
    # A placeholder may have been filled in with anything.
    if any(isinstance(text, str) and "{" in text for text in wanted):
        return False
    if len(given) == 1:
        # Of a conversation one message may have been kept.
        # In doubt it contradicts nothing: a wrong refusal would cost more than it saves.
        return given[0] not in wanted
    return given != wanted if len(wanted) > 1 else wanted[0] not in given


def _normalize(text: str) -> Json:
    """Return a text without what does not matter in it: white space, and how JSON is written."""
    found = decode_container(text)
    return " ".join(text.split()) if isinstance(found, str) else found


def _need_no_choice(cases: Sequence[Case]) -> bool:
    return _needs_no_choice(
        len(cases),
        variants=any(map(is_variant, cases)),
        asked=any(case.input is not None for case in cases),
        silent=any(not _list_said_by(case) for case in cases),
    )


def _needs_no_choice(count: int, *, variants: bool, asked: bool, silent: bool) -> bool:
    """Return whether there is only one case, or none that a record could miss by its input.

    A case that says nothing to the agent is a claim about any record. Beside such cases a conversation is one more claim about the same
    record; a suite in which every case says something is a suite of different situations. Variants of a matrix ask the same of several
    agents, and only the id says which of them answered.
    """
    if variants:
        return False
    return count == 1 or (not asked and (silent or not count))


def _name_choice(case: Case) -> str:
    said = _list_said_by(case)
    asked = show(said[0] if len(said) == 1 else list(said), 60) if said else "none"
    return f"{case.id!r} (input {asked})"


def _list_said_by(case: Case) -> tuple[Json, ...]:
    """Return what a case says to the agent, message by message; nothing where it has no input."""
    if case.custom_body is not None:
        return (case.custom_body,)
    if case.turns:
        return tuple(turn.input for turn in case.turns)
    return (case.input,) if case.input is not None else ()


def _list_said_in(evidence: Evidence) -> tuple[Json, ...]:
    """Return what was said to the agent, message by message; nothing where that was not recorded."""
    if evidence.turns is not None and len(evidence.turns) > 1 and all(turn.input is not None for turn in evidence.turns):
        return tuple(turn.input for turn in evidence.turns)
    return _find_said_first(evidence)


def _find_said_first(evidence: Evidence) -> tuple[Json, ...]:
    said = evidence.input
    if isinstance(said, list) and said and all(isinstance(message, str) for message in cast("list[Json]", said)):
        # A conversation that kept what was said in it as one list.
        return tuple(cast("list[str]", said))
    return (said,) if said is not None else ()
