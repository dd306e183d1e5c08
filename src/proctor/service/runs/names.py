"""Names and tags of runs, and run references.

    run_...     an id
    latest      the newest visible run; `previous` the one before it, or before the compared run
    @nightly    the newest run with this tag
    v2          the newest run with this name

A run to compare with is searched in the same project. There is no `baseline`: use a name or a tag.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible
from proctor.service.refusals import Refusal, not_found
from proctor.store.files.run_references import BASELINE, LATEST, PREVIOUS, check_name, check_tag
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import runs
from proctor.store.sql.text_search import contains_text

MOST_TAGS = 20
LONGEST_QUERY = 200
"""Characters of a search text."""
_ID = "run_"


def check_names(name: str, tags: Sequence[str]) -> None:
    """Reject a name and tags that could not be used to find the run."""
    fields: dict[str, list[str]] = {}
    try:
        check_name(name)
        if name.startswith(_ID):
            raise InputError(f"{name!r} looks like a run id and cannot be a name")
    except InputError as error:
        fields["name"] = [str(error)]
    try:
        for tag in tags:
            check_tag(tag)
        if len(tags) > MOST_TAGS:
            raise InputError(f"expected at most {MOST_TAGS} tags, found {len(tags)}")
    except InputError as error:
        fields["tags"] = [str(error)]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields=fields)


def write_tags(tags: Sequence[str]) -> str | None:
    """Return tags as one text with commas around each, for searching; a tag contains no comma."""
    return f",{','.join(dict.fromkeys(tags))}," if tags else None


def read_tags(text: str | None) -> list[str]:
    """Return the tags of such a text."""
    return text.strip(",").split(",") if text else []


def has_tag(tag: str) -> sa.ColumnElement[bool]:
    """Return the condition that a run has a tag; `replace` is case-sensitive in every database."""
    return sa.func.replace(runs.c.tags, f",{tag},", "") != runs.c.tags


def mentions(text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a run's name, suite or note contains a text, ignoring case."""
    if len(text) > LONGEST_QUERY:
        raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {LONGEST_QUERY} characters"]})
    return sa.or_(*(contains_text(place, text) for place in (runs.c.name, runs.c.suite_name, runs.c.note)))


async def find_meant_run(connection: AsyncConnection, caller: Caller, word: str, *, near: Row | None = None) -> Row:
    """Return the visible run of a reference; in the project of `near`, if given."""
    query = query_visible(runs, caller, project_id=None if near is None else near["project_id"])
    skipped = 0
    if word == BASELINE:
        raise Refusal("NOT_FOUND", "the service has no baseline", hint="give a run a name or a tag, and compare with that")
    if word == PREVIOUS and near is not None:
        edge = sa.tuple_(sa.literal(near["created_at"]), sa.literal(near["id"]))
        query = query.where(sa.tuple_(runs.c.created_at, runs.c.id) < edge)
    elif word in (LATEST, PREVIOUS):
        skipped = 1 if word == PREVIOUS else 0
    elif word.startswith("@"):
        query = query.where(has_tag(word[1:]))
    else:
        query = query.where(runs.c.name == word)
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).offset(skipped).limit(1)
    row = None if word.startswith(_ID) else (await connection.execute(newest)).mappings().first()
    if row is None:
        raise not_found("run", word)
    return dict(row)
