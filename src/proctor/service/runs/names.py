"""Names and tags of runs on the service, and which run a word means.

    run_...     an id
    latest      the newest run that the caller may see; `previous` the one before it, or before the run that it is compared with
    @nightly    the newest run with this tag
    v2          the newest run with this name

A run that is compared with another is looked for in the project of that one. There is no `baseline` here: a name or a tag is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.workspace.run_names import check_name, check_tag
from proctor.errors import InputError
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_seen
from proctor.service.refusals import Refusal, not_found
from proctor.store.files.run_references import BASELINE, LATEST, PREVIOUS
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import runs
from proctor.store.sql.text_search import contains_text

MOST_TAGS = 20
LONGEST_QUERY = 200
"""Characters of a text that runs are searched for."""
_ID = "run_"


def check_names(name: str, tags: Sequence[str]) -> None:
    """Refuse a name and tags that could not be used to find a run again."""
    fields: dict[str, list[str]] = {}
    try:
        check_name(name)
        if name.startswith(_ID):
            raise InputError(f"a run cannot be named {name!r}, which looks like the id of a run")
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
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)


def write_tags(tags: Sequence[str]) -> str | None:
    """Return tags as one text, each between commas, so that one of them can be looked for; a tag has no comma in it."""
    return f",{','.join(dict.fromkeys(tags))}," if tags else None


def read_tags(text: str | None) -> list[str]:
    """Return the tags in such a text."""
    return text.strip(",").split(",") if text else []


def has_tag(tag: str) -> sa.ColumnElement[bool]:
    """Return the condition that a run has a tag; by replacing, which minds upper and lower case in every database."""
    return sa.func.replace(runs.c.tags, f",{tag},", "") != runs.c.tags


def mentions(text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a run, its suite or its note mentions a text; upper and lower case are one."""
    if len(text) > LONGEST_QUERY:
        raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {LONGEST_QUERY} characters"]})
    return sa.or_(*(contains_text(place, text) for place in (runs.c.name, runs.c.suite_name, runs.c.note)))


async def find_meant_run(connection: AsyncConnection, caller: Caller, word: str, *, beside: Row | None = None) -> Row:
    """Return the run that a word means, of those that the caller may see; in the project of `beside`, where one is given."""
    query = query_seen(runs, caller, project_id=None if beside is None else beside["project_id"])
    skipped = 0
    if word == BASELINE:
        raise Refusal("NOT_FOUND", "the service keeps no baseline", hint="give a run a name or a tag, and compare with that")
    if word == PREVIOUS and beside is not None:
        edge = sa.tuple_(sa.literal(beside["created_at"]), sa.literal(beside["id"]))
        query = query.where(sa.tuple_(runs.c.created_at, runs.c.id) < edge)
    elif word in (LATEST, PREVIOUS):
        skipped = 1 if word == PREVIOUS else 0
    elif word.startswith("@"):
        query = query.where(has_tag(word[1:]))
    else:
        query = query.where(runs.c.name == word)
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).offset(skipped).limit(1)
    found = None if word.startswith(_ID) else (await connection.execute(newest)).mappings().first()
    if found is None:
        raise not_found("run", word)
    return dict(found)
