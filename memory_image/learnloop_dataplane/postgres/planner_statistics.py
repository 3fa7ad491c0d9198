"""Statistics that keep up with tables that grow quickly.

PostgreSQL plans by what ANALYZE last saw, and autovacuum comes once a minute, never at all where the server was killed
in between, which forgets what had changed. Until then every index of an empty table looks as good as its primary key.
Measured: the foreign key of `training_transitions`, checked through (namespace, received_at), cost 2 ms a row after
3,000 episodes and twice as much after 6,000.
"""

import logging

import asyncpg

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import TRANSIENT, Database

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
ANALYZE_SECONDS = 60.0
# Again each time a table has doubled; a few pages are read quickly whatever the plan.
_GROWN = """
SELECT quote_ident(relname) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_has_role(session_user, relowner, 'USAGE')
    AND pg_relation_size(oid) > (2 * relpages + 8) * current_setting('block_size')::bigint ORDER BY 1
"""


class Statistics:
    """Analyzes what has doubled, of the tables that belong to the login of the DSN.

    Args:
        dsn: the role the service works under may not analyze.
    """

    def __init__(self, db: Database, dsn: str) -> None:
        self._db = db
        self._dsn = dsn

    async def refresh(self) -> list[str]:
        """Analyzes the tables that are twice as large as when they were analyzed last; returns their names.

        Raises:
            Unavailable: PostgreSQL does not answer; the next look finds them again.
        """
        async with self._db.transaction() as connection:
            grown = [row[0] for row in await connection.fetch(_GROWN)]
        if not grown:
            return grown
        try:
            owner = await asyncpg.connect(self._dsn, timeout=5, command_timeout=ANALYZE_SECONDS)
            try:
                # Another replica may be at it already.
                await owner.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(grown)}")
            finally:
                await owner.close()
        except (*TRANSIENT, asyncpg.PostgresError) as error:
            log.info("statistics of %s are not refreshed: %s", ", ".join(grown), error)
            raise Unavailable("PostgreSQL") from error
        log.info("statistics refreshed: %s", ", ".join(grown))
        return grown
