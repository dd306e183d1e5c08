"""`proctor db`"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proctor.cli.exit_codes import Exit
from proctor.cli.parser import make_parser
from proctor.cli.show.output import Output
from proctor.cli.stored import add_database_flags, use_hub
from proctor.errors import InputError
from proctor.model.json_values import write_document
from proctor.report.words.wording import count_noun

if TYPE_CHECKING:
    from proctor.service.hub import Hub
    from proctor.store.sql.transfer import DatabaseStatus

_LONGEST_LINE = 1024 * 1024 * 1024
_STATUS_FORMATS = ("terminal", "json")
_EXPORT_FORMATS = ("jsonl", "parquet")
_VERBS = {
    "export": "write every row as lines of JSON, or traces and results as Parquet files by day",
    "import": "read in what export wrote, into SQLite or PostgreSQL",
    "migrate": "bring the database to the newest schema",
    "status": "what the database is and what is in it; changes nothing",
    "rekey": "re-encrypt every stored secret with the first key of PROCTOR_SECRET_KEY or of the key file",
}


def run(arguments: list[str]) -> int:
    """Manage the database of the service; returns the exit code."""
    parser = make_parser(
        "db",
        "Export, import, migrate or show the database of the service.\n\n"
        + "\n".join(f"  {verb:<8} {does}" for verb, does in _VERBS.items())
        + "\n\nRetention is set by proctor serve --retention-days, --retention-bytes.",
        [
            "proctor db status",
            "proctor db export backup.jsonl",
            "proctor db export history --format parquet",
            "proctor db export - | proctor db import - --database postgresql://proctor@db.internal/proctor",
        ],
    )
    parser.add_argument("verb", metavar="VERB", choices=tuple(_VERBS), help=", ".join(_VERBS))
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="for export and import; - for standard output or input; for Parquet: a new folder"
    )
    parser.add_argument("--merge", action="store_true", help="import into a non-empty database; existing rows are not changed")
    parser.add_argument(
        "--format",
        choices=(*_STATUS_FORMATS, *_EXPORT_FORMATS),
        metavar="FORMAT",
        help="for status: terminal or json (default: terminal); for export: jsonl or parquet (default: jsonl)",
    )
    add_database_flags(parser)
    options = parser.parse_args(arguments)
    if options.verb in ("export", "import") and options.file is None:
        parser.error(f"{options.verb} needs a FILE, or - for standard {'output' if options.verb == 'export' else 'input'}")
    if options.verb not in ("export", "import") and options.file is not None:
        parser.error(f"unrecognized arguments: {options.file}")
    formats = _EXPORT_FORMATS if options.verb == "export" else _STATUS_FORMATS
    if options.format is not None and options.format not in formats:
        parser.error(f"--format of {options.verb}: expected {' or '.join(formats)}, not {options.format}")
    if options.merge and options.verb != "import":
        parser.error("--merge is for import")
    return {"export": _run_export, "import": _run_import, "migrate": _run_migrate, "status": _run_status, "rekey": _run_rekey}[
        options.verb
    ](options)


def _run_export(options: argparse.Namespace) -> int:
    if options.format == "parquet":
        return _run_parquet_export(options)

    async def use(hub: Hub) -> None:
        from proctor.store.sql.transfer import export_lines  # an optional part, and slow to load

        with Output(None if options.file == "-" else options.file) as output:
            async with hub.database.reading() as connection, contextlib.aclosing(export_lines(connection, hub.now())) as lines:
                async for line in lines:
                    output.write(line)

    with _keep_private():
        use_hub(options, use)
    return Exit.PASSED


def _run_parquet_export(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> None:
        from proctor.service.upkeep.parquet_export import export_parquet  # an optional part, and slow to load

        async with hub.database.reading() as connection:
            done = await export_parquet(connection, Path(options.file))
        print(f"wrote {count_noun(done.traces, 'trace')} and {count_noun(done.results, 'result')} to {options.file}", file=sys.stderr)

    if options.file == "-":
        raise InputError("Parquet export needs a new folder")
    with _keep_private():
        use_hub(options, use)
    return Exit.PASSED


@contextlib.contextmanager
def _keep_private() -> Generator[None]:
    # The file is readable only by its owner, like the database.
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _run_import(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> None:
        from proctor.store.sql.transfer import import_lines  # an optional part, and slow to load

        with contextlib.nullcontext(sys.stdin.buffer) if options.file == "-" else open(options.file, "rb") as file:
            async with hub.database.writing() as connection:
                done = await import_lines(connection, _read_lines(file), merge=options.merge)
        print(f"added {done.added} rows" + (f"; {done.present} were there already" if done.present else ""), file=sys.stderr)

    use_hub(options, use)
    return Exit.PASSED


def _run_migrate(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> None:
        from proctor.store.sql.migrations import read_schema_state  # an optional part, and slow to load

        async with hub.database.reading() as connection:
            state = await read_schema_state(connection)
        print(f"the database is at {state.applied[-1]}")

    use_hub(options, use)
    return Exit.PASSED


def _run_status(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> DatabaseStatus:
        from proctor.store.sql.transfer import read_status  # an optional part, and slow to load

        return await read_status(hub.database)

    status = use_hub(options, use, migrating=False)
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(status))
        else:
            schema = status.applied[-1] if status.applied else "none yet"
            if status.unknown:
                schema = f"{status.unknown[-1]}, of a newer proctor"
            lines = [f"{status.dialect}, {status.bytes / 1_000_000:.1f} MB", f"schema: {schema}"]
            if status.pending:
                lines.append(f"pending: {', '.join(status.pending)} (`proctor db migrate`)")
            filled = {name: count for name, count in status.rows.items() if count}
            lines += [f"  {name:<16} {count}" for name, count in filled.items()] or ["  no rows"]
            output.write_text("\n".join(lines) + "\n")
    return Exit.USAGE if status.unknown else Exit.PASSED


def _run_rekey(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> int:
        from proctor.service.access.secrets import relock_all  # an optional part, and slow to load

        return await relock_all(hub)

    print(f"re-encrypted {use_hub(options, use)} secrets with the newest key")
    return Exit.PASSED


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    # A file that is not an export may have no line break and would fill the memory.
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InputError("a line is too long for an export file")
        yield line
