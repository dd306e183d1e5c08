"""Opens the database of a command.

`--database URL`, else `PROCTOR_DATABASE_URL`, else the file `proctor.db` in the workspace.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from proctor.actions.workspace.run_history import DATABASE_FILE, find_database_home
from proctor.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from proctor.service.hub import Hub

T = TypeVar("T")
_PARTS = ("sqlalchemy", "aiosqlite", "greenlet", "cryptography")


def add_database_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that opens the database of the service."""
    parser.add_argument("--database", metavar="URL", help="the database (default: PROCTOR_DATABASE_URL, else proctor.db in the workspace)")
    parser.add_argument("--home", metavar="DIR", help="the workspace (default: the nearest folder with proctor.yaml)")


def find_database(options: argparse.Namespace) -> tuple[str, Path]:
    """Return the address of the database, and the workspace."""
    home = find_database_home(options.home or os.environ.get("PROCTOR_HOME"))
    return options.database or os.environ.get("PROCTOR_DATABASE_URL") or str(home / DATABASE_FILE), home


def use_hub(options: argparse.Namespace, use: Callable[[Hub], Awaitable[T]], *, migrating: bool = True) -> T:
    """Open the database, do one thing with it, close it."""
    try:
        # The service is optional and takes a second to load.
        from proctor.service.access.secret_box import SecretBox
        from proctor.service.hub import Hub, ServiceSettings
        from proctor.service.refusals import Refusal
        from proctor.store.sql.database import open_database
    except ModuleNotFoundError as error:
        # Another missing module is a bug or a broken installation.
        if error.name is None or error.name.partition(".")[0] not in _PARTS:
            raise
        raise MissingExtra("The database of the service", "serve") from None
    url, home = find_database(options)
    box = SecretBox(home, os.environ.get("PROCTOR_SECRET_KEY"))

    async def whole() -> T:
        database = await open_database(url, migrating=migrating)
        try:
            return await use(Hub(database=database, settings=ServiceSettings(home=home), secret_box=box))
        finally:
            await database.close()

    try:
        return asyncio.run(whole())
    except Refusal as refusal:
        problems = [f"{field}: {text}" for field, texts in refusal.fields.items() for text in texts if text not in refusal.message]
        raise InputError("\n  ".join([refusal.message, *problems])) from None
