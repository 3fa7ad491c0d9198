"""The table `idempotency_keys`: a claim while a process works on a request, the answer once the request succeeded.

A process renews its claim for as long as it works. A process that dies leaves its claim behind; another one may take
that over after `CLAIM_SECONDS`.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from learnloop_dataplane.access.authentication import Identity
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database

log = logging.getLogger(__name__)
HEADER = "idempotency-key"
CLAIM_SECONDS = 60.0
RENEWALS = 4  # within the time that a claim holds
_CLAIM = """
INSERT INTO idempotency_keys AS k (namespace, key, digest) VALUES ($1, $2, $3)
ON CONFLICT (namespace, key) DO UPDATE SET claimed_at = now()
    WHERE k.digest = ANY($5::text[]) AND k.status IS NULL AND k.claimed_at < now() - make_interval(secs => $4)
RETURNING k.claimed_at
"""
# The time of a claim says whose it is: a process that was stopped for long does not renew what another one took over.
_RENEW = """
UPDATE idempotency_keys SET claimed_at = clock_timestamp()
WHERE namespace = $1 AND key = $2 AND status IS NULL AND claimed_at = $3 RETURNING claimed_at
"""
_KNOWN = "SELECT digest, status, answer FROM idempotency_keys WHERE namespace = $1 AND key = $2"
_KEEP = """
UPDATE idempotency_keys SET status = $4, answer = $5
WHERE namespace = $1 AND key = $2 AND claimed_at = $3 AND status IS NULL
"""
_RELEASE = "DELETE FROM idempotency_keys WHERE namespace = $1 AND key = $2 AND claimed_at = $3 AND status IS NULL"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What was answered to this request before: an HTTP status and a JSON body."""

    status: int
    body: str


class Claim:
    """A key that this process works under, since the time that stands in its row."""

    def __init__(self, db: Database, namespace: str, key: str, since: datetime) -> None:
        self._db = db
        self._namespace = namespace
        self._key = key
        self.since = since

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """For as long as this lasts nobody else gets the key."""
        done = asyncio.Event()
        task = asyncio.create_task(self._renew_until(done))
        try:
            yield
        finally:
            done.set()
            await task  # not cancelled: the row and `since` must say the same

    async def keep(self, status: int, body: str) -> None:
        """The request succeeded: who sends it again gets this answer. Does nothing where another process took over.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._db.tenant(self._namespace) as connection:
            await connection.execute(_KEEP, self._namespace, self._key, self.since, status, body)

    async def release(self) -> None:
        """The request did nothing: the key is free again. Does nothing where another process took over.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._db.tenant(self._namespace) as connection:
            await connection.execute(_RELEASE, self._namespace, self._key, self.since)

    async def _renew_until(self, done: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), CLAIM_SECONDS / RENEWALS)
                return
            try:
                async with self._db.tenant(self._namespace) as connection:
                    since = await connection.fetchval(_RENEW, self._namespace, self._key, self.since)
            except (ApiError, asyncpg.PostgresError, OSError) as error:
                log.warning("the claim of an Idempotency-Key is not renewed yet: %s", error)
                continue
            if since is None:
                log.warning(
                    "an Idempotency-Key was taken over, because its claim was not renewed for %s s", CLAIM_SECONDS
                )
                return
            self.since = since


async def claim(
    db: Database, caller: Identity, key: str, digest: str, known_as: Collection[str] = ()
) -> KeptAnswer | Claim:
    """The kept answer, or the claim under which the caller is to do the work.

    Args:
        caller: whose key it is. Another one's answer may hold what this one may not see.
        digest: of the whole request; a key stands for one request.
        known_as: what else its digest was, by keys before this one.

    Raises:
        ApiError: 409, the key was used for another request, or this one is being worked on.
        Unavailable: PostgreSQL does not answer.
    """
    namespace, own = caller.namespace, f"{_who(caller)}:{key}"
    async with db.tenant(namespace) as connection:
        if since := await connection.fetchval(_CLAIM, namespace, own, digest, CLAIM_SECONDS, [digest, *known_as]):
            return Claim(db, namespace, own, since)
        known = await connection.fetchrow(_KNOWN, namespace, own)
    same = known is not None and known["digest"] in {digest, *known_as}
    if known is None or (same and known["status"] is None):
        raise ApiError(
            409, "the same request is being worked on; send it again", field=HEADER, value=key, retry_after=2
        )
    if not same:
        raise ApiError(409, "this key came with another request; choose a new one", field=HEADER, value=key)
    return KeptAnswer(known["status"], known["answer"])


def _who(caller: Identity) -> str:
    return hashlib.sha256(caller.subject.encode()).hexdigest()[:16]
