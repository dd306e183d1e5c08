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

from proctor.errors import InputError
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible, require_run_reader
from proctor.service.access.transactions import Transaction, reading
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.store.files.run_references import BASELINE, LATEST, PREVIOUS, check_name, check_tag
from proctor.store.sql.pages import Row, fetch_first
from proctor.store.sql.tables import run_entries, runs
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


async def find_run(tx: Transaction, word: str, *, near: Row | None = None, document: bool = True) -> Row:
    """Return a visible run by its id or a reference; a reference is searched in the project of `near`, if given. Raises `Refusal`.

    Without `document` its suite, which may be megabytes, is omitted.
    """
    require_run_reader(tx.caller)
    columns = [column for column in runs.c if document or column is not runs.c.document]
    row = await fetch_first(tx.connection, query_visible(runs, tx.caller, id=word).with_only_columns(*columns))
    if row is not None:
        return row
    query = query_visible(runs, tx.caller, project_id=None if near is None else near["project_id"]).with_only_columns(*columns)
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
    row = None if word.startswith(_ID) else await fetch_first(tx.connection, newest)
    if row is None:
        raise not_found("run", word)
    return row


async def read_run(hub: Hub, caller: Caller, word: str, *, document: bool = True) -> Row:
    """Return a run as `find_run` does."""
    async with reading(hub, caller) as tx:
        return await find_run(tx, word, document=document)


async def find_attempt(tx: Transaction, id: str) -> tuple[Row, Row]:
    """Return a stored attempt and its run, which the caller may see. Raises `Refusal` if there is none."""
    row = await fetch_first(tx.connection, sa.select(run_entries).where(run_entries.c.id == id))
    if row is None:
        raise not_found("attempt", id)
    return row, await find_run(tx, row["run_id"])
