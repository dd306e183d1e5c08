"""Stored runs and databases that options name. The code of both is loaded when one is used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proctor.cli.parser import HoldsArguments, add_flags
from proctor.errors import InputError, MissingExtra

if TYPE_CHECKING:
    import argparse

    from proctor.service.hub import Hub

RUN_HELP = "a run: its id or the beginning of one, its name, @TAG, latest, previous, or baseline"


def choose_run(home: Path, word: str, *, quiet: bool = False) -> str:
    """Return the id or folder of a run. Raises `StoreError`."""
    from proctor.actions.history.chosen_runs import find_chosen_run  # these are slow to load
    from proctor.store.files.run_references import LATEST

    run = find_chosen_run(home, word)
    if run.note is not None and not quiet and word != LATEST:
        print(run.note, file=sys.stderr)
    return run.run


def choose_run_not_file(home: Path, word: str, *, quiet: bool = False) -> str:
    """Return the id or folder of a run where files are accepted too. Raises `StoreError`, or `InputError` for the name of a file."""
    if Path(word).suffix in (".json", ".jsonl", ".gz", ".parquet", ".yaml") or "/" in word:
        raise InputError(f"no such file or folder: {word!r}; for a stored run give `latest`, its id or its name")
    return choose_run(home, word, quiet=quiet)


def choose_two_runs(home: Path, first: str | None, second: str | None, *, quiet: bool = False) -> tuple[str, str]:
    """Return base and candidate of a comparison and print which they are; a single run is the candidate. Raises `StoreError`."""
    from proctor.actions.history.chosen_runs import choose_pair  # slow to load

    base, candidate = choose_pair(home, first if second is not None else None, second or first)
    for note in dict.fromkeys((base.note, candidate.note)):
        if note is not None and not quiet:
            print(note, file=sys.stderr)
    return base.run, candidate.run


# Opens the database of a command.
# `--database URL`, else `PROCTOR_DATABASE_URL`, else the file `proctor.db` in the workspace.

T = TypeVar("T")
_PARTS = ("sqlalchemy", "aiosqlite", "greenlet", "cryptography")


def add_database_flags(parser: HoldsArguments) -> None:
    """Add the flags of every command that opens the database of the service."""
    parser.add_argument("--database", metavar="URL", help="the database (default: PROCTOR_DATABASE_URL, else proctor.db in the workspace)")
    add_flags(parser, "--home")


def require_database(what: str = "The database of the service") -> None:
    """Raise `MissingExtra` if a library of the database is not installed."""
    if any(find_spec(library) is None for library in _PARTS):
        raise MissingExtra(what, "serve")


@contextlib.asynccontextmanager
async def open_hub(options: argparse.Namespace, *, migrating: bool = True) -> AsyncGenerator[Hub]:
    """Open the database, and close it after the block."""
    # The service is optional and takes most of a second to load.
    from proctor.actions.workspace.run_history import DATABASE_FILE, find_database_home
    from proctor.service.access.secret_box import SecretBox
    from proctor.service.hub import Hub, ServiceSettings
    from proctor.store.sql.database import open_database

    home = find_database_home(options.home or os.environ.get("PROCTOR_HOME"))
    url = options.database or os.environ.get("PROCTOR_DATABASE_URL") or str(home / DATABASE_FILE)
    box = SecretBox(home, os.environ.get("PROCTOR_SECRET_KEY"))
    database = await open_database(url, migrating=migrating)
    try:
        yield Hub(database=database, settings=ServiceSettings(home=home), secret_box=box)
    finally:
        await database.close()


async def list_all(list_page: Callable[..., Awaitable[Mapping[str, Any]]]) -> list[Any]:
    """Return the rows of every page of a list of the service."""
    rows: list[Any] = []
    cursor: str | None = None
    while True:
        page = await list_page(limit=100, cursor=cursor)
        rows += page["data"]
        cursor = page["_meta"]["next"]
        if cursor is None:
            return rows


def use_hub(options: argparse.Namespace, use: Callable[[Hub], Awaitable[T]], *, migrating: bool = True) -> T:
    """Open the database, do one thing with it, close it."""
    require_database()
    from proctor.service.refusals import Refusal  # an optional part

    async def open_and_use() -> T:
        async with open_hub(options, migrating=migrating) as hub:
            return await use(hub)

    try:
        return asyncio.run(open_and_use())
    except Refusal as refusal:
        problems = [f"{field}: {text}" for field, texts in refusal.fields.items() for text in texts if text not in refusal.message]
        raise InputError("\n  ".join([refusal.message, *problems])) from None
