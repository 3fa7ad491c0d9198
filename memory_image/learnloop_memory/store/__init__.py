"""PostgreSQL: connection pool, tables, migrations."""
