"""`Idempotency-Key` on every POST that creates or changes something: sent again, the same request has the same answer.

After draft-ietf-httpapi-idempotency-key-header. A key belongs to a caller in a namespace and is kept for a day
(`erasure.retention`): nobody hears what another one was answered, or has a key taken away by a neighbour. Only success
is kept: a refused request did nothing, and may be corrected under the same key. Where a process dies between doing and
keeping, the request is done twice, as far as the operation does not recognise it (`idempotency.claims`).
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.api.requests import data_plane, identify
from learnloop_dataplane.api.responses import refusal, unexpected
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy import keyed_digests

MAX_ANSWER = 1_048_576
# These only read. /training/start makes the TrainingJob's name of its key: the
# cluster remembers it longer. /forget does nothing more when it is asked again, and its answer has texts, which must
# not outlive the memories by a day.
WITHOUT = frozenset(
    {
        "/api/v1/memory/forget",
        "/api/v1/memory/retrieve",
        "/api/v1/memory/retrieve/batch",
        "/api/v1/rewards/bias",
        "/api/v1/rewards/dry-run",
        "/api/v1/training/start",
    }
)
PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same request with the same key is done once; its answer is kept for a day",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"},
}
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Idempotency:
    """ASGI middleware; requests without the header pass untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if not covers(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        key = request.headers.get(HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._once(request, key)
        except ApiError as error:
            response = refusal(error)
        except Exception as error:
            response = unexpected(scope, error)
        await response(scope, receive, send)

    async def _once(self, request: Request, key: str) -> Response:
        if not _KEY.fullmatch(key):
            raise Invalid("1 to 128 letters, digits and ._:-, the first a letter or digit", field=HEADER, value=key)
        caller = await identify(request)
        body = await request.body()
        content = _content(request, body)
        digest, known = keyed_digests.digest("request", content), keyed_digests.known("request", content)
        held = await claim(data_plane(request).shared.db, caller, key, digest, known)
        if isinstance(held, KeptAnswer):
            replayed = {"idempotency-replayed": "true"}
            return Response(held.body, held.status, headers=replayed, media_type="application/json")
        status, answer, headers = 500, b"", dict[str, str]()
        try:
            async with held.renewed():
                status, answer, headers = await _answered(self._app, request.scope, body)
        finally:
            if 200 <= status < 300 and len(answer) <= MAX_ANSWER:
                await held.keep(status, answer.decode())
            else:
                await held.release()
        return Response(answer, status_code=status, headers=headers)


def covers(scope: Scope) -> bool:
    """Is this one of the requests that may carry a key?"""
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] not in WITHOUT


def _content(request: Request, body: bytes) -> bytes:
    asked = json.dumps([request.method, request.url.path, sorted(request.query_params.multi_items())])
    return asked.encode() + b"\n" + body


async def _answered(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of what the application answers to this body."""
    status, parts, headers = 500, list[bytes](), dict[str, str]()

    async def again() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def kept(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    receive: Callable[[], Awaitable[Message]] = again
    await app(scope, receive, kept)
    return status, b"".join(parts), headers


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
