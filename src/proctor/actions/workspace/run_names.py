"""What a run may be called, so that a word on the command line never means two things."""

from __future__ import annotations

import re
from collections.abc import Iterable

from proctor.errors import InputError
from proctor.model.show import is_seen
from proctor.store.files.run_references import RESERVED

LONGEST = 100
_LIKE_AN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-")


def check_name(name: str) -> None:
    """Refuse a name that could not be used to find the run again. Raises `InputError`."""
    if not name:
        return
    _check_word("name", name)
    if name in RESERVED:
        raise InputError(f"a run cannot be named {name!r}, which always means another run; names that are taken: {', '.join(RESERVED)}")
    if name.startswith("@"):
        raise InputError(f"a run cannot be named {name!r}: @ marks a tag; --tag {name[1:] or 'TAG'}")
    if _LIKE_AN_ID.match(name):
        raise InputError(f"a run cannot be named {name!r}, which looks like the id of a run")


def check_tag(tag: str) -> None:
    """Refuse a tag that could not be used to find the run again. Raises `InputError`."""
    if not tag:
        raise InputError("a tag of a run is empty")
    _check_word("tag", tag)
    if tag.startswith("@") or any(char.isspace() or char == "," for char in tag):
        raise InputError(f"the tag {tag!r} is no single word; for example: --tag nightly")


def read_tags(given: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that flags give, each once; several may be joined by commas."""
    return tuple(dict.fromkeys(tag.strip() for text in given for tag in text.split(",") if tag.strip()))


def _check_word(kind: str, text: str) -> None:
    if len(text) > LONGEST:
        raise InputError(f"the {kind} of a run has at most {LONGEST} characters, found {len(text)}")
    if "/" in text or "\\" in text or text != text.strip() or not all(is_seen(char) for char in text):
        raise InputError(f"the {kind} {text!r} has a slash, space at an end or a character that cannot be seen; use plain words")
