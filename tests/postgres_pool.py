"""Databases of one PostgreSQL server that tests give back: to empty one takes a part of the time that to copy and to drop one takes.

What comes back as another test left it is not lent again: one whose tables were changed, or that was analysed, is dropped. Every table
that has a page of its own is cut to nothing, so that the next test finds what a copy of the template has, down to the size of its files.
"""

from __future__ import annotations

import asyncio

import asyncpg

from tests.postgres import USER, Cluster

_SHAPE = """
SELECT md5(string_agg(line, ';' ORDER BY line)) FROM (
    SELECT concat_ws(' ', c.relname, c.relkind, a.attnum, a.attname, a.atttypid, a.attnotnull, a.atthasdef) AS line
      FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%'
    UNION ALL SELECT concat(tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat('setting ', setconfig) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
               WHERE d.datname = current_database()
    UNION ALL SELECT concat('analysed ', c.relname) FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid
               WHERE c.relnamespace = 'public'::regnamespace
) AS lines
"""
"""All that a test can change about a database but for the rows."""
_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_USED = """
SELECT quote_ident(relname) FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
"""


class DatabasePool:
    """Lends databases that are as the template is."""

    def __init__(self, cluster: Cluster, template: str) -> None:
        self._cluster = cluster
        self._template = template
        self._free: list[str] = []
        self._shape, self._rows = asyncio.run(self._look())

    def take(self) -> str:
        """Return the address of a database with all tables and nothing in them."""
        return self._free.pop() if self._free else self._cluster.new_database(self._template)

    def give_back(self, url: str) -> None:
        """Empty a database for the next test, or drop it if its schema changed."""
        if asyncio.run(self._empty(url)):
            self._free.append(url)
        else:
            self._cluster.drop_database(url)

    async def _look(self) -> tuple[str, dict[str, str]]:
        """Return the schema of the template, and the few rows of its tables."""
        connection = await self._connect(self._template)
        try:
            shape: str = await connection.fetchval(_SHAPE)
            used = [row[0] for row in await connection.fetch(_USED)]
            return shape, {name: await connection.fetchval(f"SELECT json_agg(t) FROM {name} t") for name in used}
        finally:
            await connection.close()

    async def _empty(self, url: str) -> bool:
        """Return whether a database is again as the template is."""
        try:
            connection = await self._connect(url.rpartition("/")[2])
        except (OSError, asyncpg.PostgresError):
            return False
        try:
            await connection.execute(_OTHERS)
            if await connection.fetchval(_SHAPE) != self._shape:
                return False
            used = [row[0] for row in await connection.fetch(_USED)]
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '5s'")
                await connection.execute(f"TRUNCATE {', '.join(used)} RESTART IDENTITY CASCADE")
                for name, rows in self._rows.items():
                    await connection.execute(f"INSERT INTO {name} SELECT * FROM json_populate_recordset(NULL::{name}, $1)", rows)
            return True
        except (OSError, asyncpg.PostgresError):
            # A copy of the template does not have it.
            return False
        finally:
            await connection.close()

    async def _connect(self, name: str) -> asyncpg.Connection:
        return await asyncpg.connect(host="127.0.0.1", port=self._cluster.port, user=USER, database=name)
