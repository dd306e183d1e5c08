"""The database: connections, tables, migrations, queries."""
