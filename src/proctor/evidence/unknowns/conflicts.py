"""Rule d of evidence coverage: if two places of a record disagree, the part is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import ANSWERS
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Json


def take_agreeing(entry: Mapping[str, Json], keys: Sequence[str], part: Part, at: str, unknowns: Unknowns) -> Json:
    """Return the first value under these keys that is not null; if two of them differ, the part is unknown."""
    given = [(key, entry[key]) for key in keys if entry.get(key) is not None]
    if len(given) > 1:
        first = decode_container(given[0][1])
        for key, value in given[1:]:
            # Empty text is how exporters write "not recorded".
            if value != "" and first != "" and decode_container(value) != first:
                mark_difference(part, at, (given[0][0], key), unknowns)
    return next((value for _, value in given if value != ""), given[0][1] if given else None)


def find_answers(entry: Mapping[str, Json]) -> dict[str, str]:
    """Return the texts under the usual answer fields, which must agree; a blank text or a `message` counts if there is no other."""
    texts = {key: value for key in ANSWERS if isinstance(value := entry.get(key), str)}
    if len(texts) < 2:
        return texts
    written = {key: text for key, text in texts.items() if text.strip()} or texts
    return {key: text for key, text in written.items() if key != "message"} or written


def mark_difference(part: Part, at: str, keys: tuple[str, str], unknowns: Unknowns) -> None:
    """Mark a part that two fields record differently."""
    unknowns.mark(part, f"{keys[0]!r} and {keys[1]!r} at {at} record the same thing and differ; map the right one, or move one to metadata")
