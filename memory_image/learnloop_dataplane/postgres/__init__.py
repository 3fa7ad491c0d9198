"""PostgreSQL: connection pool, tables, row-level security, migrations."""
