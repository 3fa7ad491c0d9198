"""Reading a chain page by page."""

from typing import Any

import orjson

from learnloop_dataplane.postgres.database import Database

_PAGE = """
SELECT seq, at, actor, action, subject, outcome, detail, encode(previous, 'hex') AS previous,
    encode(hash, 'hex') AS hash
FROM audit_log WHERE namespace = $1 AND seq > $2 AND ($4::text IS NULL OR action = $4)
    AND ($5::text IS NULL OR subject = $5)
ORDER BY seq LIMIT $3
"""


async def page(
    db: Database, namespace: str, after: int, limit: int, *, action: str | None = None, subject: str | None = None
) -> list[dict[str, Any]]:
    """Up to `limit` records behind place `after`, hashes as hexadecimal.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_PAGE, namespace, after, limit, action, subject)
    return [{**row, "detail": orjson.loads(row["detail"])} for row in rows]
