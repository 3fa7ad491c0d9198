"""Ranks one agent's memories for a query. Pure, but for the queries that read the columns."""
